package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"

	"lector/engine"
	"lector/engine/bench"
)

func newBench(a *app) *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure this machine", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(
		newBenchPrefill(a), newBenchDecode(a), newBenchSnapshot(a), newBenchIO(a), newBenchPeer(a), newBenchCompare(a), newBenchCount(a),
	)
	return c
}

// benchFlags are the flags that measurements of an engine share.
type benchFlags struct {
	repeat int
	seed   uint64
	file   string
	chunk  int
	json   string
	svg    string

	profile string
}

// defaultChunk is the chunk that engines are tuned for.
const defaultChunk = 2048

func (f *benchFlags) declare(c *cobra.Command) {
	c.Flags().IntVar(&f.repeat, "repeat", 3, "samples of every setting; settings take turns")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the random tokens")
	c.Flags().StringVar(&f.file, "file", "", "text `file` to read instead of random tokens")
	c.Flags().StringVar(&f.json, "json", "", "`file` to write the report to, with every sample; - prints it instead of the table")
}

func (f *benchFlags) declareProfile(c *cobra.Command) {
	c.Flags().StringVar(&f.profile, "profile", "", "`file` to write a profile of this process to, for go tool pprof")
}

func (f *benchFlags) declareSVG(c *cobra.Command) {
	c.Flags().StringVar(&f.svg, "svg", "", "`file` to plot the rates to")
}

func (f *benchFlags) declareChunk(c *cobra.Command) {
	c.Flags().IntVar(&f.chunk, "chunk", defaultChunk, "`tokens` of a chunk")
}

// benchRun is one measurement: the engine, the machine, and the report that it fills.
type benchRun struct {
	*app
	flags  benchFlags
	model  *model
	runner *bench.Runner
	report bench.Report
}

// cpuDevice is the name of the device that is this machine's cores.
const cpuDevice = "cpu"

// openBench loads --model, says what will be measured on what, and warms up.
func (a *app) openBench(ctx context.Context, kind string, f benchFlags) (*benchRun, error) {
	if f.repeat < 1 {
		return nil, badInput(fmt.Errorf("--repeat %d: at least 1", f.repeat))
	}
	m, err := a.openModel()
	if err != nil {
		return nil, err
	}
	b := &benchRun{app: a, flags: f, model: m}
	if err := b.prepare(ctx, kind); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return b, nil
}

// Close releases the model.
func (b *benchRun) Close() error { return b.model.Close() }

func (b *benchRun) prepare(ctx context.Context, kind string) error {
	id, err := b.model.engine.Identity()
	if err != nil {
		return err
	}
	digest := ""
	for _, f := range id.Fields {
		if f.Name == "weights" {
			digest = f.Value
		}
	}
	b.report = bench.Report{
		Version: bench.ReportVersion, Kind: kind, Date: time.Now().UTC().Truncate(time.Second), Host: thisHost(), Seed: b.flags.seed,
		Model:   bench.Model{Name: b.model.checkpoint.Name(), Digest: digest, Class: id.Class},
		Ceiling: bench.Ceiling{Workers: b.threads()},
	}
	b.runner = &bench.Runner{
		Engine: b.model.engine, Config: b.model.checkpoint.Config(), Stored: bench.StoredOf(b.model.checkpoint),
		Seed: b.flags.seed, Repeat: b.flags.repeat, Note: b.progress, Begin: b.ceiling,
	}
	if err := b.readText(); err != nil {
		return err
	}
	b.report.Host.Device = b.model.device.name
	return b.runner.Warm(ctx)
}

// progress says how far a run is, to a person who watches or asked for it.
func (b *benchRun) progress(format string, args ...any) {
	if b.verbose || b.terminal() {
		b.note(format, args...)
	}
}

// readText encodes --file.
func (b *benchRun) readText() error {
	if b.flags.file == "" {
		return nil
	}
	text, name, err := b.readInput(b.flags.file)
	if err != nil {
		return err
	}
	if b.runner.Text, err = documentTokens(b.model, text, name, false); err != nil {
		return err
	}
	b.report.Text = name
	return nil
}

// ceiling measures what the device can do, products, reading and handing over; the latter two on the CPU alone, whose memory this
// process reads. It keeps the best of every call.
func (b *benchRun) ceiling(ctx context.Context) error {
	if err := b.report.Ceiling.MeasureGEMM(ctx, b.model.device.Backend); err != nil {
		return err
	}
	if b.report.Host.Device == cpuDevice {
		b.report.Ceiling.MeasureHandoff()
		return b.report.Ceiling.MeasureRead(b.model.device.Backend)
	}
	return nil
}

// longRun is a run in which the machine may have changed its clock or its neighbours.
const longRun = 5 * time.Second

// measure takes the samples, whose runner takes the ceiling first, and after a long run the ceiling again.
func (b *benchRun) measure(ctx context.Context, samples func() ([]bench.Row, error)) error {
	start := time.Now()
	rows, err := b.profiled(samples)
	if err != nil {
		return refused(err)
	}
	b.report.Rows = rows
	if time.Since(start) < longRun {
		return nil
	}
	return b.ceiling(ctx)
}

// profiled writes a profile of what f does to --profile.
func (b *benchRun) profiled(f func() ([]bench.Row, error)) (rows []bench.Row, err error) {
	if b.flags.profile == "" {
		return f()
	}
	err = writeTo(b.flags.profile, func(w io.Writer) error {
		if err := pprof.StartCPUProfile(w); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
		var failed error
		rows, failed = f()
		return failed
	})
	return rows, err
}

// refused marks an error about a setting that the model cannot run.
func refused(err error) error {
	if errors.Is(err, engine.ErrNoHead) {
		return badInput(err)
	}
	return err
}

// finish writes the report where it was asked for, and otherwise calls table.
func (b *benchRun) finish(table func() error) error {
	if b.flags.svg != "" {
		if err := writeTo(b.flags.svg, b.report.WriteSVG); err != nil {
			return fmt.Errorf("write plot: %w", err)
		}
	}
	if b.flags.json == "-" {
		return b.report.Encode(b.out)
	}
	if b.flags.json != "" {
		if err := writeTo(b.flags.json, b.report.Encode); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return table()
}

func writeTo(path string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Clean(path))
	if err != nil {
		return badInput(err)
	}
	return errors.Join(write(f), f.Close())
}

// readReport opens a report that finish wrote.
func readReport(path string) (bench.Report, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return bench.Report{}, badInput(fmt.Errorf("there is no report %s: a bench writes one with --json %s", path, path))
	}
	if err != nil {
		return bench.Report{}, badInput(fmt.Errorf("read report: %w", err))
	}
	r, err := bench.ParseReport(data)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		err = fmt.Errorf("%w at byte %d", err, syntax.Offset)
	}
	if err != nil {
		return r, badInput(fmt.Errorf("%s: %w", path, err))
	}
	return r, nil
}
