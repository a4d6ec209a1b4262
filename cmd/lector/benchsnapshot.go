package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/engine"
	"lector/engine/bench"
)

// snapshotFlags are the flags of bench snapshot.
type snapshotFlags struct {
	benchFlags
	lengths []int
	dir     string
	gateway string
	copies  int
}

func newBenchSnapshot(a *app) *cobra.Command {
	var f snapshotFlags
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Measure saving and restoring of a state against a plain copy of the same bytes to the same store",
		Long: "snapshot reads texts of several lengths and stores their state up to a handle, digests included: save is all of it at once, and\n" +
			"last is what is left behind the last token when the cells before it were stored while the next was read, as lector ingest does. It\n" +
			"restores the state from the handle of those cells as lector resume does, digests checked. Beside each it copies the same bytes\n" +
			"plainly to the same store, as durably: into one synced file beside a folder store, and as objects of the same sizes into a\n" +
			"bucket, whose server (versitygw) it starts on this machine when it is there. The times to the first token are those of a\n" +
			"restore into a fresh sequence and of reading the text. What was deleted before is off the disk when a clock starts.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchSnapshot(c.Context(), f) },
	}
	f.declare(c)
	f.declareChunk(c)
	repeat := c.Flags().Lookup("repeat") // what is read is much slower than what is measured
	f.repeat, repeat.DefValue, repeat.Usage = 1, "1", "how often each text is read; its state is saved and restored --copies times"
	c.Flags().IntSliceVar(&f.lengths, "lengths", []int{1024, 8192, 32768}, "`tokens` to read; what is beyond the model's limit is left out")
	c.Flags().StringVar(&f.dir, "dir", "", "`folder` on the disk to measure (default: the folder for temporary files)")
	c.Flags().StringVar(&f.gateway, "gateway", "versitygw", "`program` of the S3 server, or off")
	c.Flags().IntVar(&f.copies, "copies", 5, "how often the state of one reading is saved, copied and restored, in turns")
	return c
}

// snapshotBench is one run of bench snapshot.
type snapshotBench struct {
	*benchRun
	f        snapshotFlags
	identity cache.Identity
	temp     string
	stores   []benchStore
	plain    []byte // what plain reads read into
}

func (a *app) benchSnapshot(ctx context.Context, f snapshotFlags) (err error) {
	if len(f.lengths) == 0 || f.chunk < 1 || f.copies < 1 {
		return badInput(fmt.Errorf("--lengths, --chunk and --copies: at least one of each"))
	}
	b, err := a.openBench(ctx, "snapshot", f.benchFlags)
	if err != nil {
		return err
	}
	defer b.Close()
	s := &snapshotBench{benchRun: b, f: f}
	if s.temp, err = os.MkdirTemp(f.dir, "lector-bench-"); err != nil {
		return badInput(fmt.Errorf("make a folder to write to: %w", err))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.temp)) }()
	if s.identity, err = b.cacheIdentity(); err != nil {
		return err
	}
	defer func() {
		for _, st := range s.stores {
			err = errors.Join(err, st.Close())
		}
	}()
	if err := s.openStores(ctx); err != nil {
		return err
	}
	if err := s.samples(ctx); err != nil {
		return err
	}
	return b.finish(s.table)
}

// cacheIdentity is the model's identity without a tenant.
func (b *benchRun) cacheIdentity() (cache.Identity, error) {
	id, err := b.model.engine.Identity()
	if err != nil {
		return cache.Identity{}, err
	}
	fields := make([]cache.Field, len(id.Fields))
	for i, f := range id.Fields {
		fields[i] = cache.Field(f)
	}
	return cache.NewIdentity(fields, id.Class, id.Grid, nil), nil
}

// The rows of one length on one store, in this order.
const (
	rowSave = iota
	rowPlainWrite
	rowLast
	rowRestore
	rowPlainRead
	rowResumed
	rowCold
	snapshotRows
)

func snapshotNames() [snapshotRows]string {
	return [...]string{"save", "plain write", "store last cell", "restore", "plain read", "first token resumed", "first token cold"}
}

// samples takes turns between the lengths, and within each between the stores.
func (s *snapshotBench) samples(ctx context.Context) error {
	info := s.model.engine.Info()
	if s.f.chunk > info.MaxChunk {
		return fmt.Errorf("chunk of %d tokens: %w: at most %d fit at once", s.f.chunk, engine.ErrTooLong, info.MaxChunk)
	}
	lengths := slices.DeleteFunc(slices.Clone(s.f.lengths), func(n int) bool { return n > info.MaxTokens })
	if len(lengths) == 0 || slices.Min(lengths) < 1 {
		return fmt.Errorf("--lengths %v: %w: the model takes 1 to %d", s.f.lengths, engine.ErrTooLong, info.MaxTokens)
	}
	for _, n := range lengths {
		for _, st := range s.stores {
			for _, what := range snapshotNames() {
				series := what + " on " + st.name()
				s.report.Rows = append(s.report.Rows, bench.Row{
					Name: fmt.Sprintf("%s length=%d", series, n), Unit: bench.Seconds, Length: n, Chunk: min(s.flags.chunk, n), Series: series,
				})
			}
		}
	}
	for i := range s.flags.repeat {
		for k, n := range lengths {
			width := snapshotRows * len(s.stores)
			if err := s.sample(ctx, n, s.report.Rows[k*width:][:width]); err != nil {
				return fmt.Errorf("measure a state of %d tokens: %w", n, err)
			}
			s.progress("%d tokens (%d of %d)", n, i+1, s.flags.repeat)
		}
	}
	return nil
}

// sample reads one text, and stores and restores its state several times on each store.
func (s *snapshotBench) sample(ctx context.Context, n int, rows []bench.Row) (err error) {
	tokens, err := s.runner.Tokens(n)
	if err != nil {
		return err
	}
	got, err := s.runner.Read(ctx, tokens, bench.ReadOptions{Chunk: rows[rowCold].Chunk, Then: func(seq engine.Sequence) error {
		for range s.f.copies {
			for i, st := range s.stores {
				t := &storedState{
					benchRun: s.benchRun, identity: s.identity, tokens: tokens, rows: rows[i*snapshotRows:][:snapshotRows],
					space: &cache.Space{Store: st.store(), Tenant: benchSave},
					cells: &cache.Space{Store: st.store(), Tenant: benchCells}, temp: s.temp,
				}
				if err := s.turn(ctx, st, t, seq); err != nil {
					return fmt.Errorf("on %s: %w", st.name(), err)
				}
			}
		}
		return nil
	}})
	for i := range s.stores {
		rows[i*snapshotRows+rowCold].Samples = append(rows[i*snapshotRows+rowCold].Samples, got.Seconds)
	}
	return err
}

// turn saves a state, copies its bytes, restores it and reads the copy.
func (s *snapshotBench) turn(ctx context.Context, st benchStore, t *storedState, seq engine.Sequence) error {
	probe, err := seq.Probe(ctx)
	if err != nil {
		return err
	}
	if err := t.save(ctx, seq, probe); err != nil {
		return err
	}
	regions, err := seq.Regions()
	if err != nil {
		return err
	}
	pieces := gather(regions)
	if err := t.timed(rowPlainWrite, func() error { return st.write(ctx, pieces) }); err != nil {
		return err
	}
	if err := t.saveCells(ctx, seq, probe); err != nil {
		return err
	}
	if err := t.restore(ctx, probe); err != nil {
		return err
	}
	if size := t.rows[0].Bytes; int64(len(s.plain)) < size {
		s.plain = make([]byte, size)
		clear(s.plain) // its pages are there before the clock runs
	}
	if err := t.timed(rowPlainRead, func() error { return st.read(ctx, s.plain) }); err != nil {
		return err
	}
	return st.drop(ctx, t.space, t.cells)
}

func (s *snapshotBench) table() error {
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	r := s.report
	fmt.Fprintf(t, "model\t%s, class %s, weights %.12s\n", r.Model.Name, r.Model.Class, r.Model.Digest)
	fmt.Fprintf(t, "host\t%s, %d cores, %d threads, %s %s/%s, load %s\n", r.Host.CPU, r.Host.Cores, r.Ceiling.Workers, r.Host.Go, r.Host.OS, r.Host.Arch, r.Host.Load)
	fmt.Fprintf(t, "stores\tin %s; digests and syncs are in the times, medians of %d\n\n", filepath.Dir(s.temp), s.flags.repeat*s.f.copies)
	fmt.Fprintln(t, "length, tokens\tstate\tstore\tsave, s\tcopy, s\tspeed\tlast, s\trestore, s\tspeed\tplain read, s\tfirst token resumed, s\tcold, s\tspeed-up")
	for at := 0; at < len(r.Rows); at += snapshotRows {
		var m [snapshotRows]float64
		for i := range m {
			m[i] = r.Rows[at+i].Median()
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%.4f\t%.4f\t%.0f %%\t%.4f\t%.4f\t%.0f %%\t%.4f\t%.4f\t%.3f\t%.0f x\n", r.Rows[at].Length, size(r.Rows[at].Bytes),
			s.stores[at/snapshotRows%len(s.stores)].name(), m[rowSave], m[rowPlainWrite], 100*m[rowPlainWrite]/m[rowSave],
			m[rowLast], m[rowRestore], 100*m[rowPlainWrite]/m[rowRestore], m[rowPlainRead], m[rowResumed], m[rowCold], m[rowCold]/m[rowResumed])
	}
	fmt.Fprintln(t, "\nspeed\tof saving and of restoring, beside that of the copy\nlast\tthe last cell and the handle, when all before were stored while the next was read")
	return t.Flush()
}
