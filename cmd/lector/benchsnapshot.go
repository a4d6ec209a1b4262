package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/cache/dir"
	"lector/engine"
	"lector/engine/bench"
)

// snapshotFlags are the flags of bench snapshot.
type snapshotFlags struct {
	benchFlags
	lengths []int
	dir     string
}

func newBenchSnapshot(a *app) *cobra.Command {
	var f snapshotFlags
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Measure saving and restoring of a state against a plain durable copy of the same bytes",
		Long: "snapshot reads texts of several lengths, stores their state in a folder store as lector ingest does, and restores it as\n" +
			"lector resume does: digests are computed and checked, every write is synced. Beside each it writes the same bytes into\n" +
			"one plain file and syncs it, and reads that file back; both reads come from the page cache. The times to the first\n" +
			"token are those of a restore in a fresh sequence and of reading the text.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchSnapshot(c.Context(), f) },
	}
	f.declare(c)
	f.declareChunk(c)
	c.Flags().IntSliceVar(&f.lengths, "lengths", []int{512, 2048, 8192}, "`tokens` to read")
	c.Flags().StringVar(&f.dir, "dir", "", "`folder` on the disk to measure (default: the folder for temporary files)")
	return c
}

// snapshotBench is one run of bench snapshot.
type snapshotBench struct {
	*benchRun
	identity cache.Identity
	temp     string
	plain    []byte // what plain reads read into
}

func (a *app) benchSnapshot(ctx context.Context, f snapshotFlags) (err error) {
	if len(f.lengths) == 0 || f.chunk < 1 {
		return badInput(fmt.Errorf("--lengths and --chunk: at least one length, and chunks of at least 1 token"))
	}
	b, err := a.openBench(ctx, "snapshot", f.benchFlags)
	if err != nil {
		return err
	}
	defer b.Close()
	s := &snapshotBench{benchRun: b}
	if s.temp, err = os.MkdirTemp(f.dir, "lector-bench-"); err != nil {
		return badInput(fmt.Errorf("make a folder to write to: %w", err))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.temp)) }()
	if err := s.identify(); err != nil {
		return err
	}
	if err := s.samples(ctx, f.lengths); err != nil {
		return err
	}
	return b.finish(s.table)
}

func (s *snapshotBench) identify() error {
	id, err := s.model.engine.Identity()
	if err != nil {
		return err
	}
	fields := make([]cache.Field, len(id.Fields))
	for i, f := range id.Fields {
		fields[i] = cache.Field(f)
	}
	s.identity = cache.NewIdentity(fields, id.Class, id.Grid, nil)
	return nil
}

// The rows of one length, in this order.
const (
	rowSave = iota
	rowPlainWrite
	rowRestore
	rowPlainRead
	rowResumed
	rowCold
	snapshotRows
)

func snapshotNames() [snapshotRows]string {
	return [...]string{"save", "plain write", "restore", "plain read", "first token resumed", "first token cold"}
}

// samples takes turns between the lengths.
func (s *snapshotBench) samples(ctx context.Context, lengths []int) error {
	for _, n := range lengths {
		for _, what := range snapshotNames() {
			s.report.Rows = append(s.report.Rows, bench.Row{
				Name: fmt.Sprintf("%s length=%d", what, n), Unit: bench.Seconds, Length: n, Chunk: min(s.flags.chunk, n), Series: what,
			})
		}
	}
	for i := range s.flags.repeat {
		for k, n := range lengths {
			if err := s.sample(ctx, n, s.report.Rows[k*snapshotRows:][:snapshotRows]); err != nil {
				return fmt.Errorf("measure a state of %d tokens: %w", n, err)
			}
			s.progress("%d tokens (%d of %d)", n, i+1, s.flags.repeat)
		}
	}
	return nil
}

// sample reads one text, stores its state and restores it.
func (s *snapshotBench) sample(ctx context.Context, n int, rows []bench.Row) (err error) {
	if limit := s.model.engine.Info().MaxTokens; n < 1 || n > limit {
		return fmt.Errorf("%w: the model takes 1 to %d", engine.ErrTooLong, limit)
	}
	if limit := s.model.engine.Info().MaxChunk; rows[rowCold].Chunk > limit {
		return fmt.Errorf("chunk of %d tokens: %w: at most %d fit at once", rows[rowCold].Chunk, engine.ErrTooLong, limit)
	}
	folder, err := os.MkdirTemp(s.temp, "sample-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	store, err := dir.Open(filepath.Join(folder, "store"))
	if err != nil {
		return err
	}
	defer store.Close()
	t := &storedState{bench: s, space: &cache.Space{Store: store, Tenant: s.tenant}, plain: filepath.Join(folder, "plain"), rows: rows}
	if t.tokens, err = s.runner.Tokens(n); err != nil {
		return err
	}
	got, err := s.runner.Read(ctx, t.tokens, bench.ReadOptions{Chunk: rows[rowCold].Chunk, Then: func(seq engine.Sequence) error {
		return t.save(ctx, seq)
	}})
	if err != nil {
		return err
	}
	t.took(rowCold, got.Seconds)
	return t.restore(ctx, got.Last.Probe)
}

// storedState is one state on its way into a store and back.
type storedState struct {
	bench    *snapshotBench
	space    *cache.Space
	plain    string // file of the plain copy
	tokens   []engine.Token
	rows     []bench.Row
	manifest cache.Digest
}

func (t *storedState) took(row int, seconds float64) {
	t.rows[row].Samples = append(t.rows[row].Samples, seconds)
}

// save stores the state as one step with all that a handle needs, then writes its bytes plainly.
func (t *storedState) save(ctx context.Context, seq engine.Sequence) error {
	probe, err := seq.Probe(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	regions, err := seq.Regions()
	if err != nil {
		return err
	}
	id, n := t.bench.identity, len(t.tokens)
	node, _, err := t.space.PutStep(ctx, cache.StepArgs{
		Identity: id, Key: cache.Keys(id.Producer, t.tokens, []int{n})[0], To: n, Tokens: t.tokens,
		Regions: cacheRegions(regions), Probe: cacheProbe(probe), Keep: true,
	})
	if err != nil {
		return err
	}
	m, digest, err := t.space.PutManifest(ctx, id, []cache.Node{node})
	if err != nil {
		return err
	}
	if _, err := t.space.PutHandle(ctx, cache.Handle{Version: cache.HandleVersion, Manifest: digest, Model: id.Model, Tokens: n, Tenant: t.space.TenantName()}); err != nil {
		return err
	}
	t.took(rowSave, time.Since(start).Seconds())
	t.manifest = digest
	for i := range t.rows {
		t.rows[i].Bytes = m.Bytes
	}
	start = time.Now()
	if err := writePlain(t.plain, regions); err != nil {
		return err
	}
	t.took(rowPlainWrite, time.Since(start).Seconds())
	return nil
}

// writePlain writes the regions into one file, so that it would survive a power cut.
func writePlain(path string, regions []engine.Region) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, r := range regions {
		if _, err = f.Write(r.Data); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// restore brings the state back into a fresh sequence, and checks that it says what it said.
func (t *storedState) restore(ctx context.Context, want engine.Probe) (err error) {
	start := time.Now()
	seq, err := t.bench.model.engine.NewSequence(len(t.tokens))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seq.Close()) }()
	m, err := t.space.Manifest(ctx, t.manifest)
	if err != nil {
		return err
	}
	r, err := seq.Restore(engine.Pos(m.Tokens))
	if err != nil {
		return err
	}
	if _, err := t.space.Restore(ctx, m, "", nil, cacheRegions(r.Regions())); err != nil {
		r.Abort()
		return err
	}
	if err := r.Commit(ctx); err != nil {
		return err
	}
	t.took(rowRestore, time.Since(start).Seconds())
	live, err := seq.Probe(ctx)
	if err != nil {
		return err
	}
	t.took(rowResumed, time.Since(start).Seconds())
	if live.Next != want.Next {
		return fmt.Errorf("the restored state says token %d, it was %d", live.Next, want.Next)
	}
	start = time.Now()
	if err := t.bench.readPlain(t.plain, m.Bytes); err != nil {
		return err
	}
	t.took(rowPlainRead, time.Since(start).Seconds())
	return nil
}

// readPlain reads a file into memory that is there already.
func (s *snapshotBench) readPlain(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if int64(len(s.plain)) < size {
		s.plain = make([]byte, size)
	}
	_, err = io.ReadFull(f, s.plain[:size])
	return errors.Join(err, f.Close())
}

// cacheRegions describes the engine's regions to the store. The data is shared, not copied.
func cacheRegions(regions []engine.Region) []cache.Region {
	out := make([]cache.Region, len(regions))
	for i, r := range regions {
		kind := cache.Fixed
		if r.Kind == engine.Rows {
			kind = cache.Rows
		}
		out[i] = cache.Region{Name: r.Name, DType: r.DType, Shape: r.Shape, Kind: kind, Lag: r.Lag, Data: r.Data, Loss: float32(r.Loss)}
	}
	return out
}

func cacheProbe(p engine.Probe) cache.Probe {
	out := cache.Probe{Next: p.Next, Draft: p.Draft}
	for _, top := range p.Top {
		out.Top = append(out.Top, cache.TopLogit(top))
	}
	return out
}

func (s *snapshotBench) table() error {
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	r := s.report
	fmt.Fprintf(t, "model\t%s, class %s, weights %.12s\n", r.Model.Name, r.Model.Class, r.Model.Digest)
	fmt.Fprintf(t, "host\t%s, %d cores, %d threads, %s %s/%s\n", r.Host.CPU, r.Host.Cores, r.Ceiling.Workers, r.Host.Go, r.Host.OS, r.Host.Arch)
	fmt.Fprintf(t, "store\t%s; digests and syncs are in the times, medians of %d\n\n", filepath.Dir(s.temp), s.flags.repeat)
	fmt.Fprintln(t, "length, tokens\tstate\tsave, s\tplain write, s\tratio\trestore, s\tplain read, s\tratio\tfirst token resumed, s\tcold, s\tspeed-up")
	for at := 0; at < len(r.Rows); at += snapshotRows {
		var m [snapshotRows]float64
		for i := range m {
			m[i] = r.Rows[at+i].Median()
		}
		fmt.Fprintf(t, "%d\t%s\t%.4f\t%.4f\t%.2f x\t%.4f\t%.4f\t%.2f x\t%.4f\t%.3f\t%.0f x\n", r.Rows[at].Length, size(r.Rows[at].Bytes),
			m[rowSave], m[rowPlainWrite], m[rowSave]/m[rowPlainWrite], m[rowRestore], m[rowPlainRead], m[rowRestore]/m[rowPlainRead],
			m[rowResumed], m[rowCold], m[rowCold]/m[rowResumed])
	}
	return t.Flush()
}
