package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/engine/ops"
	"lector/engine/stream"
	"lector/engine/weights"
	"lector/engine/weights/pack"
	"lector/engine/weights/synth"
)

func newBenchIO(a *app) *cobra.Command {
	b := &benchIO{app: a}
	c := &cobra.Command{
		Use:   "io",
		Short: "Compare the reading of a packed store with a plain parallel reader of the same file",
		Long: "io reads the expert records of --model, a packed store, as an engine does, and the same file with as many plain\n" +
			"parallel reads, in turns. It then counts what a chunk would read at several sizes, with experts drawn evenly, for the\n" +
			"ring alone and with the slots that all of --memory has room for. Without a packed --model it makes a random one and removes it.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return b.run(c.Context()) },
	}
	c.Flags().BoolVar(&b.asJSON, "json", false, "print as JSON")
	c.Flags().DurationVar(&b.turn, "turn", 2*time.Second, "`time` of one turn")
	c.Flags().IntVar(&b.rounds, "rounds", 3, "turns of each reader")
	c.Flags().IntVar(&b.lanes, "lanes", 8, "reads at once")
	return c
}

// benchIO is one run of bench io.
type benchIO struct {
	*app
	asJSON bool
	turn   time.Duration
	rounds int
	lanes  int
}

// ioReport is what bench io prints. Rates are bytes a second, the median of all turns.
type ioReport struct {
	Model       string    `json:"model"`
	File        int64     `json:"file_bytes"`
	RecordBytes int       `json:"record_bytes"`
	Records     int       `json:"records"`
	Direct      bool      `json:"direct"` // reads go past the page cache
	Lanes       int       `json:"lanes"`
	Store       float64   `json:"store_rate"`
	Plain       float64   `json:"plain_rate"`
	Ratio       float64   `json:"ratio"`
	StoreTurns  []float64 `json:"store_turns"`
	PlainTurns  []float64 `json:"plain_turns"`
	Slots       int       `json:"slots"` // that --memory has room for
	Chunks      []ioChunk `json:"chunks"`
}

// ioChunk is what one chunk reads once the pool has settled.
type ioChunk struct {
	Tokens   int     `json:"tokens"`
	Records  int     `json:"records"`
	PerToken float64 `json:"bytes_per_token"`
	Pooled   float64 `json:"bytes_per_token_pooled"`
}

func (b *benchIO) run(ctx context.Context) error {
	if b.rounds < 1 || b.lanes < 1 || b.turn <= 0 {
		return badInput(errors.New("--rounds, --lanes and --turn: at least 1 of each"))
	}
	dir, remove, err := b.packedModel(ctx)
	if err != nil {
		return err
	}
	defer remove()
	p, err := weights.OpenPacked(dir)
	if err != nil {
		return badInput(err)
	}
	defer p.Close()
	r := ioReport{Model: filepath.Base(dir), Records: stream.Records(p), Lanes: b.lanes}
	for l := range p.Layers() {
		r.RecordBytes = max(r.RecordBytes, p.RecordBytes(l))
	}
	if err := b.rates(ctx, p, &r); err != nil {
		return err
	}
	if err := b.table(p, &r); err != nil {
		return err
	}
	if b.asJSON {
		return json.NewEncoder(b.out).Encode(r)
	}
	return r.print(b.app)
}

// packedModel is --model, or a random store in a temporary folder.
func (b *benchIO) packedModel(ctx context.Context) (dir string, remove func(), err error) {
	if weights.IsPacked(b.model) {
		return b.model, func() {}, nil
	}
	if b.model != "nano" {
		return "", nil, badInput(fmt.Errorf("%s is not a packed store: make one with lector model pack", b.model))
	}
	temp, err := os.MkdirTemp("", "lector-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(temp) } // a temporary folder: what stays is the system's to remove
	b.note("no packed --model: writing a random one into %s", temp)
	if err := writeRandom(ctx, temp); err != nil {
		remove()
		return "", nil, err
	}
	return filepath.Join(temp, "mid"), remove, nil
}

// writeRandom packs a random model with some 400 MB of experts.
func writeRandom(ctx context.Context, temp string) error {
	source := filepath.Join(temp, "source")
	if err := synth.Write(ctx, source, synth.Options{Preset: "mid", Layers: 4, Seed: 1}); err != nil {
		return err
	}
	c, err := weights.Open(source)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := pack.Run(ctx, c, filepath.Join(temp, "mid"), pack.Options{Settings: pack.Settings{Group: 64}}); err != nil {
		return err
	}
	return os.RemoveAll(source)
}

// rates lets both readers take turns, so that a disk that slows down slows both.
func (b *benchIO) rates(ctx context.Context, p *weights.Packed, r *ioReport) error {
	file, err := stream.OpenFile(filepath.Join(p.Dir(), weights.PackedExpertsFile))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := p.ExpertsFile().Stat()
	if err != nil {
		return err
	}
	r.File = info.Size()
	slots, err := stream.Memory(max(stream.RingSlots, stream.LeastSlots(p)), stream.SlotBytes(p))
	if err != nil {
		return err
	}
	view := func(int, int, []byte) (ops.Expert, error) { return ops.Expert{}, nil }
	store, err := stream.Open(p, slots, view, stream.Options{Lanes: b.lanes})
	if err != nil {
		return err
	}
	defer store.Close()
	for range b.rounds {
		plain, err := b.plain(ctx, file, r.File)
		if err != nil {
			return err
		}
		swept, err := b.sweeps(ctx, p, store)
		if err != nil {
			return err
		}
		r.PlainTurns, r.StoreTurns = append(r.PlainTurns, plain), append(r.StoreTurns, swept)
	}
	r.Direct, r.Plain, r.Store = file.Direct(), median(r.PlainTurns), median(r.StoreTurns)
	r.Ratio = r.Store / r.Plain
	return nil
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// plainBlock is what the plain reader reads at once.
const plainBlock = 4 << 20

// plain reads the file from the start, around and around, with parallel reads of whole blocks.
func (b *benchIO) plain(ctx context.Context, file *stream.File, size int64) (float64, error) {
	buffers, err := stream.Memory(b.lanes, plainBlock)
	if err != nil {
		return 0, err
	}
	defer buffers.Free()
	var next, total atomic.Int64
	errs := make([]error, b.lanes)
	start := time.Now()
	var lanes sync.WaitGroup
	for i := range b.lanes {
		lanes.Go(func() {
			for ctx.Err() == nil && time.Since(start) < b.turn {
				at := next.Add(1) - 1
				at = at % max(1, (size+plainBlock-1)/plainBlock) * plainBlock
				n, err := file.ReadAt(buffers.Mem[i][:min(plainBlock, size-at)], at)
				if err != nil {
					errs[i] = fmt.Errorf("read at %d: %w", at, err)
					return
				}
				total.Add(int64(n))
			}
		})
	}
	lanes.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return 0, err
	}
	return float64(total.Load()) / time.Since(start).Seconds(), nil
}

// sweeps reads layer after layer as an engine does that has no work to do, from a pool that keeps nothing.
func (b *benchIO) sweeps(ctx context.Context, p *weights.Packed, store *stream.Store) (float64, error) {
	before, start := store.Stats().Bytes, time.Now()
	for layer := 0; time.Since(start) < b.turn; layer = (layer + 1) % p.Layers() {
		var wants []ops.Want
		for e := range p.Experts(layer) {
			wants = append(wants, ops.Want{Expert: e, Rows: 1})
		}
		sweep := store.Layer(ctx, layer, false).Sweep(wants)
		for from := 0; from < len(wants); from += 8 {
			last := min(from+8, len(wants)) - 1
			if sweep.Wait(last) != nil {
				break
			}
			sweep.Done(last)
		}
		if err := sweep.End(); err != nil {
			return 0, err
		}
	}
	return float64(store.Stats().Bytes-before) / time.Since(start).Seconds(), nil
}

// table counts chunks of several sizes.
func (b *benchIO) table(p *weights.Packed, r *ioReport) error {
	memory, err := b.memoryBytes()
	if err != nil {
		return err
	}
	if memory == 0 {
		memory = defaultMemory()
	}
	config, err := weights.Open(p.Dir())
	if err != nil {
		return badInput(err)
	}
	defer config.Close()
	r.Slots = min(stream.Records(p), memory/stream.SlotBytes(p))
	for _, tokens := range []int{512, 1024, 2048, 4096} {
		alone := thirdChunk(p, config.Config().TopK, tokens, stream.MinSlots)
		pooled := thirdChunk(p, config.Config().TopK, tokens, r.Slots)
		r.Chunks = append(r.Chunks, ioChunk{
			Tokens: tokens, Records: alone.Records, PerToken: float64(alone.Bytes) / float64(tokens), Pooled: float64(pooled.Bytes) / float64(tokens),
		})
	}
	return nil
}

// thirdChunk is what the third chunk reads: by then the pool holds what it will.
func thirdChunk(p *weights.Packed, topK, tokens, slots int) stream.Stats {
	src := rand.New(rand.NewPCG(1, uint64(tokens)))
	s := stream.Simulate(p, slots, min(stream.RingSlots, slots/2))
	var before stream.Stats
	for range 3 {
		before = s.Stats()
		for layer := range p.Layers() {
			s.Sweep(layer, false, draw(src, p.Experts(layer), topK, tokens))
		}
	}
	return s.Stats().Sub(before)
}

// draw sends every token to k different experts of n.
func draw(src *rand.Rand, n, k, tokens int) (wants []ops.Want) {
	rows := make([]int, n)
	chosen := make([]int, n) // token that chose the expert last, from 1
	for t := range tokens {
		for left := min(k, n); left > 0; {
			if e := src.IntN(n); chosen[e] != t+1 {
				chosen[e] = t + 1
				rows[e]++
				left--
			}
		}
	}
	for e, n := range rows {
		if n > 0 {
			wants = append(wants, ops.Want{Expert: e, Rows: n})
		}
	}
	return wants
}

func (r ioReport) print(a *app) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	cache := "past the page cache"
	if !r.Direct {
		cache = "through the page cache: these are not the disk's rates"
	}
	fmt.Fprintf(t, "model\t%s: %d records of %s in %s\n", r.Model, r.Records, size(int64(r.RecordBytes)), size(r.File))
	fmt.Fprintf(t, "reads\t%d at once, %s\n", r.Lanes, cache)
	fmt.Fprintf(t, "store\t%s/s, records checked\n", size(int64(r.Store)))
	fmt.Fprintf(t, "plain\t%s/s in blocks of %s\n", size(int64(r.Plain)), size(plainBlock))
	fmt.Fprintf(t, "ratio\t%.0f %%\n\n", 100*r.Ratio)
	fmt.Fprintf(t, "tokens a chunk\trecords\tbytes a token\twith %d slots\n", r.Slots)
	for _, c := range r.Chunks {
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\n", c.Tokens, c.Records, size(int64(c.PerToken)), size(int64(c.Pooled)))
	}
	return t.Flush()
}
