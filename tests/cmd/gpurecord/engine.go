package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"lector/engine/bench"
	"lector/engine/gpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
	"lector/metal"
)

// The synthetic model of these figures is mid, with 4-bit weights.
const (
	chunk    = 2048
	nearTo   = 4096  // the position that costs are compared with
	farOut   = 65536 // and the one far out
	decodeAt = 4096
)

// limits are what the device was measured to do in the same run, in GB/s.
type limits struct{ memory, hostCopy float64 }

// engineFigures are the rates of prefill and decode.
func engineFigures(ctx context.Context, d metal.Device, l limits, profileTo string) (figures []figure, err error) {
	err = withStore(ctx, decoded("mid"), func(c *weights.Checkpoint) error {
		for _, experts := range []string{"resident", "streamed"} {
			err := onDevice(d, func(be *gpu.Backend) error {
				found, err := midFigures(ctx, c, be, midRun{experts, l, profileTo})
				figures = append(figures, found...)
				return err
			})
			if err != nil {
				return fmt.Errorf("mid, experts %s: %w", experts, err)
			}
		}
		return nil
	})
	if err != nil {
		return figures, err
	}
	found, err := timeOptions{tokens: 64}.decode(ctx, d, "wide", l.memory)
	return append(figures, found...), err
}

// midRun is how mid is measured.
type midRun struct {
	experts string // resident or streamed
	limits
	profile string
}

// midFigures measures mid with all experts on the device, or with less memory than they take.
func midFigures(ctx context.Context, c *weights.Checkpoint, be *gpu.Backend, m midRun) ([]figure, error) {
	memory := 0
	if m.experts == "streamed" {
		least, err := leastOf(c, be)
		if err != nil {
			return nil, err
		}
		memory = int(least) + 256<<20
	}
	e, err := qwen4exp.Open(c, be, qwen4exp.Options{Tokenizer: "none", Memory: memory})
	if err != nil {
		return nil, err
	}
	found, err := rates(ctx, e, be, runnerOf(e, c), m)
	return found, errors.Join(err, e.Close())
}

func leastOf(c *weights.Checkpoint, be *gpu.Backend) (int64, error) {
	e, err := open(c, be)
	if err != nil {
		return 0, err
	}
	least, err := e.LeastMemory()
	return least, errors.Join(err, e.Close())
}

// rates measures one engine.
func rates(ctx context.Context, e *qwen4exp.Engine, be *gpu.Backend, r *bench.Runner, m midRun) ([]figure, error) {
	if err := r.Warm(ctx); err != nil {
		return nil, err
	}
	size := min(chunk, e.Info().MaxChunk)
	rows, err := r.Prefill(ctx, []int{3 * size}, []int{size})
	if err != nil {
		return nil, err
	}
	figures := []figure{prefillFigure("prefill of mid, experts "+m.experts, rows[0])}
	if m.experts != "resident" {
		return append(figures, streamFigure(rows[0], m.hostCopy)), nil
	}
	rows, err = r.At(ctx, []int{nearTo, farOut}, bench.StateOptions{Chunk: size, Synthetic: true})
	if err != nil {
		return figures, err
	}
	for _, row := range rows {
		figures = append(figures, prefillFigure(fmt.Sprintf("a chunk of mid at %d tokens", row.Position), row))
	}
	far := &figures[len(figures)-1]
	far.note += fmt.Sprintf("; %.0f %% of the rate at %d", 100*rows[1].Median()/rows[0].Median(), nearTo)
	found, err := decodeFigures(ctx, decodeRun{name: "mid", engine: e, backend: be, runner: r, tokens: 64, memory: m.memory, profile: m.profile})
	return append(figures, found...), err
}

// streamFigure is the rate at which records came to the device, and its share of the copy engine's.
func streamFigure(row bench.Row, hostCopy float64) figure {
	s := row.Sum()
	rate := float64(s.RecordBytes) / s.Seconds / 1e9
	busy := s.Delta + s.Attention + s.Experts + s.MTP
	return figure{"records of mid, experts streamed", rate, "GB/s", fmt.Sprintf(
		"from the host's memory; %.1f %% of a copy of host memory to the device; in the blocks the device works %.0f %% of the time", 100*rate/hostCopy, 100*busy/s.Seconds)}
}

// profiled profiles the host until stop is called; nothing where folder is empty.
func profiled(folder string) (stop func() error, err error) {
	if folder == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(filepath.Join(folder, "cpu.pprof"))
	if err != nil {
		return nil, err
	}
	runtime.SetBlockProfileRate(1)
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		block, err := os.Create(filepath.Join(folder, "block.pprof"))
		if err == nil {
			err = errors.Join(pprof.Lookup("block").WriteTo(block, 0), block.Close())
		}
		return errors.Join(err, f.Close())
	}, nil
}

// prefillFigure says where the time went as well.
func prefillFigure(name string, row bench.Row) figure {
	s := row.Sum()
	share := func(seconds float64) float64 { return 100 * seconds / s.Seconds }
	return figure{name, row.Median(), "tokens/s", fmt.Sprintf(
		"chunks of %d, %.2f TFLOP/s; DeltaNet %.0f %%, attention %.0f %%, experts %.0f %%, n-grams %.0f %%, draft head %.0f %%, other %.0f %%; %.1f MB of records a chunk",
		row.Chunk, row.FLOPs()/1e12, share(s.Delta), share(s.Attention), share(s.Experts), share(s.Ngram), share(s.MTP), share(s.Other),
		float64(s.RecordBytes)/float64(max(1, s.Tokens))*float64(row.Chunk)/1e6)}
}

// rateOf is a figure's value, as it was measured.
func rateOf(figures []figure, name string) float64 {
	for _, f := range figures {
		if f.name == name {
			return f.value
		}
	}
	return 0
}
