package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lector/engine/bench"
	"lector/engine/gpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
	"lector/engine/weights/pack"
	"lector/engine/weights/synth"
	"lector/metal"
	"lector/metal/ptx"
)

// timeOptions are the settings of gpurecord time, which shows figures without a record.
type timeOptions struct {
	from    string
	kernels bool   // the figures of single kernels
	models  string // presets to decode, with commas
	tokens  int    // to decode
	profile string // folder of profiles of the host, or empty
}

func timeFlags(args []string) error {
	var o timeOptions
	flags := flag.NewFlagSet("time", flag.ContinueOnError)
	flags.BoolVar(&o.kernels, "kernels", true, "figures of single kernels")
	flags.StringVar(&o.models, "models", "mid", "what to measure, with commas: decode of mid or wide, or streamed, the prefill of mid from the host's memory")
	flags.IntVar(&o.tokens, "tokens", 64, "tokens to decode")
	flags.StringVar(&o.profile, "profile", "", "folder for profiles of the host while it decodes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.from = filepath.Dir(self)
	return o.run(context.Background(), os.Stdout)
}

func (o timeOptions) run(ctx context.Context, w io.Writer) error {
	d, err := ptx.Open(ptx.Options{Cache: filepath.Join(o.from, "ptx")})
	if err != nil {
		return err
	}
	var errs []error
	show := func(figures []figure, err error) {
		for _, f := range figures {
			fmt.Fprintf(w, "%-60s %12.4g %-8s %s\n", f.name, f.value, f.unit, f.note)
		}
		errs = append(errs, err)
	}
	var l limits
	if o.kernels {
		figures, err := measure(d)
		l = limits{rateOf(figures, copyFigure), rateOf(figures, hostCopyFigure)}
		show(figures, err)
	}
	for _, name := range strings.FieldsFunc(o.models, func(r rune) bool { return r == ',' }) {
		if name == "streamed" {
			show(o.streamed(ctx, d, l))
			continue
		}
		show(o.decode(ctx, d, name, l.memory))
	}
	return errors.Join(append(errs, d.Close())...)
}

// streamed measures the prefill of mid with less memory than its experts take.
func (o timeOptions) streamed(ctx context.Context, d metal.Device, l limits) (figures []figure, err error) {
	err = withStore(ctx, decoded("mid"), func(c *weights.Checkpoint) error {
		return onDevice(d, func(be *gpu.Backend) (err error) {
			figures, err = midFigures(ctx, c, be, midRun{"streamed", l, o.profile})
			return err
		})
	})
	return figures, err
}

// decode measures a model's decode alone.
func (o timeOptions) decode(ctx context.Context, d metal.Device, name string, memory float64) (figures []figure, err error) {
	err = withStore(ctx, decoded(name), func(c *weights.Checkpoint) error {
		return onDevice(d, func(be *gpu.Backend) error {
			e, err := qwen4exp.Open(c, be, qwen4exp.Options{Tokenizer: "none"})
			if err != nil {
				return err
			}
			figures, err = decodeFigures(ctx, decodeRun{name: name, engine: e, backend: be, runner: runnerOf(e, c), tokens: o.tokens, memory: memory, profile: o.profile})
			return errors.Join(err, e.Close())
		})
	})
	return figures, err
}

// decoded are the models that decode is measured on: mid, and one whose layers are as wide as the release's, so that
// bytes and not the number of dispatches decide.
func decoded(name string) synth.Options {
	if name == "wide" {
		return synth.Options{Preset: "real-shape", Layers: 12, Experts: 16, Seed: 1}
	}
	return synth.Options{Preset: name, Seed: 1}
}

// withStore makes a random store of 4-bit weights in the host's memory, where it has a folder there, and opens it for
// the time of use.
func withStore(ctx context.Context, o synth.Options, use func(*weights.Checkpoint) error) error {
	folder, err := os.MkdirTemp(memoryFolder(), "lector-"+o.Preset+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	store, err := packed(ctx, folder, o, pack.Settings{Bits: 4, ExpertsBits: 4, Group: 64})
	if err != nil {
		return err
	}
	c, err := weights.Open(store)
	if err != nil {
		return err
	}
	return errors.Join(use(c), c.Close())
}

// memoryFolder is a folder in the host's memory, or the usual one for temporary files.
func memoryFolder() string {
	const folder = "/dev/shm"
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	return os.TempDir()
}

func runnerOf(e *qwen4exp.Engine, c *weights.Checkpoint) *bench.Runner {
	return &bench.Runner{
		Engine: e, Config: c.Config(), Stored: bench.StoredOf(c), Seed: 1, Repeat: 3,
		Note: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	}
}

// decodeRun is a measurement of decode.
type decodeRun struct {
	name    string
	engine  *qwen4exp.Engine
	backend *gpu.Backend
	runner  *bench.Runner
	tokens  int
	memory  float64 // rate of a copy within device memory, in GB/s; 0 where it is not known
	profile string
}

// decodeFigures are the rate of decode, its share of the memory's rate, and what the dispatches cost at least.
func decodeFigures(ctx context.Context, d decodeRun) ([]figure, error) {
	if err := d.runner.Warm(ctx); err != nil {
		return nil, err
	}
	size := min(chunk, d.engine.Info().MaxChunk)
	if _, err := d.runner.Prefill(ctx, []int{2 * size}, []int{size}); err != nil { // so that all experts are there
		return nil, err
	}
	decode := bench.DecodeOptions{Positions: []int{decodeAt}, Drafts: []int{0}, Tokens: 4, StateOptions: bench.StateOptions{Chunk: size, Synthetic: true}}
	if _, err := d.runner.Decode(ctx, decode); err != nil { // so that all kernels are compiled
		return nil, err
	}
	decode.Tokens = d.tokens
	stop, err := profiled(d.profile)
	if err != nil {
		return nil, err
	}
	before := d.backend.Dispatches()
	rows, err := d.runner.Decode(ctx, decode)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	row := rows[0]
	each := float64(d.backend.Dispatches()-before) / float64(max(row.Steps, 1))
	sum := row.Sum()
	ms := func(seconds float64) float64 { return 1e3 * seconds / float64(max(sum.Tokens, 1)) }
	rate := figure{"decode of " + d.name + ", bytes that it must read", row.BytesPerSecond() / 1e9, "GB/s", fmt.Sprintf("%.1f MB a token", float64(row.Reads.Total())/float64(max(row.Steps, 1))/1e6)}
	if d.memory > 0 {
		rate.note += fmt.Sprintf("; %.1f %% of a copy within device memory", 100*rate.value/d.memory)
	}
	return []figure{
		{"decode of " + d.name, row.Median(), "tokens/s", fmt.Sprintf("at %d tokens, no drafts; ms a token: DeltaNet %.2f, attention %.2f, experts %.2f, draft head %.2f, n-grams %.2f, other %.2f",
			decodeAt, ms(sum.Delta), ms(sum.Attention), ms(sum.Experts), ms(sum.MTP), ms(sum.Ngram), ms(sum.Other))},
		{"decode of " + d.name + ", dispatches", each, "a token", "with those that bring the state there"},
		rate,
	}, nil
}
