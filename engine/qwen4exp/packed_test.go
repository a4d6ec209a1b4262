package qwen4exp_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/qwen4exp"
	"lector/engine/stream"
	"lector/engine/stream/streamtest"
	"lector/engine/weights"
	"lector/engine/weights/pack"
)

// packInto packs a checkpoint and returns the store's folder.
func packInto(t testing.TB, source string, s pack.Settings) string {
	t.Helper()
	c, err := weights.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := filepath.Join(t.TempDir(), "store")
	if _, err := pack.Run(context.Background(), c, dir, pack.Options{Settings: s}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openDir(t testing.TB, dir string, opt qwen4exp.Options) *qwen4exp.Engine {
	t.Helper()
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e, err := qwen4exp.Open(c, cpu.New(cpu.Options{Workers: 2}), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// least is the smallest budget that opens the model.
func least(t testing.TB, dir string) int {
	t.Helper()
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	low, high := 1, 1<<30
	for low < high {
		mid := (low + high) / 2
		e, err := qwen4exp.Open(c, cpu.New(cpu.Options{Workers: 2}), qwen4exp.Options{Memory: mid})
		if err != nil {
			if !errors.Is(err, engine.ErrMemory) {
				t.Fatal(err)
			}
			low = mid + 1
			continue
		}
		e.Close()
		high = mid
	}
	return low
}

// reading is everything that a run of chunks, drafts and decoded tokens says.
type reading struct {
	steps  []engine.Probe
	drafts []engine.Token
	chosen []engine.Token
}

// readAll reads tokens in chunks, then drafts and decodes a few.
func readAll(t testing.TB, e *qwen4exp.Engine, tokens []engine.Token, chunk int) (*qwen4exp.Sequence, reading) {
	t.Helper()
	s, err := e.Sequence(len(tokens) + 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var r reading
	ctx := context.Background()
	for part := range slices.Chunk(tokens, min(chunk, e.Info().MaxChunk)) {
		step, err := s.Prefill(ctx, part, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.steps = append(r.steps, step.Probe)
	}
	next := r.steps[len(r.steps)-1].Next
	if e.Info().DraftHead {
		if r.drafts, err = s.Draft(ctx, next, engine.MaxDrafts); err != nil {
			t.Fatal(err)
		}
	}
	d, err := s.Decode(ctx, append([]engine.Token{next}, r.drafts...), func(_ engine.Pos, logits []float32) engine.Token {
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		return engine.Token(best)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.chosen = d.Chosen
	return s, r
}

// A packed store gives the bits of its source, whatever the budget, the ring and the lanes.
func TestPackedGivesTheBitsOfItsSource(t *testing.T) {
	for _, c := range []struct {
		name, dir string
	}{
		{"nano", "../nano"}, {"tiny", filepath.Join(fixtures, "tiny")}, {"odd", filepath.Join(fixtures, "odd")},
		{"tiny-mlx-folded", filepath.Join(fixtures, "tiny-mlx-folded")}, {"tiny-mlx-plain", filepath.Join(fixtures, "tiny-mlx-plain")},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens := sample(70)
			want, said := readAll(t, openDir(t, c.dir, qwen4exp.Options{}), tokens, 32)
			dir := packInto(t, c.dir, pack.Settings{Group: 64})
			floor := least(t, dir)
			for _, opt := range []qwen4exp.Options{
				{}, {Memory: floor + floor/4, Stream: stream.Options{Lanes: 3}}, {Memory: 3 * floor, Stream: stream.Options{Ring: 16, Lanes: 1}},
				{Memory: 3 * floor, Stream: stream.Options{Ring: 23}}, {Memory: 1 << 30},
			} {
				e := openDir(t, dir, opt)
				if id, err := e.Identity(); err != nil || id.Fields[0] != identityOf(t, c.dir) {
					t.Errorf("identity %v, %v", id, err)
				}
				got, says := readAll(t, e, tokens, 32)
				sameState(t, got, want)
				if e.Info().MaxChunk >= 32 && fmt.Sprint(says.steps) != fmt.Sprint(said.steps) {
					t.Errorf("%+v: steps differ", opt)
				}
				if !slices.Equal(says.drafts, said.drafts) || !slices.Equal(says.chosen, said.chosen) {
					t.Errorf("%+v: drafts %v and choices %v, want %v and %v", opt, says.drafts, says.chosen, said.drafts, said.chosen)
				}
			}
		})
	}
}

func identityOf(t *testing.T, dir string) engine.Field {
	t.Helper()
	id, err := openDir(t, dir, qwen4exp.Options{}).Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id.Fields[0]
}

// Quantised while it was packed: streaming gives what the same records give from memory.
func TestStreamedGivesTheBitsOfMappedRecords(t *testing.T) {
	for _, s := range []pack.Settings{{Bits: 4, ExpertsBits: 4, Group: 64}, {Bits: 8, ExpertsBits: 3, Group: 32}, {ExpertsBits: 2, Group: 32}, {ExpertsBits: 6, Group: 64}} {
		dir := packInto(t, filepath.Join(fixtures, "tiny"), s)
		tokens := sample(40)
		all, _ := readAll(t, openDir(t, dir, qwen4exp.Options{}), tokens, 40)
		few, _ := readAll(t, openDir(t, dir, qwen4exp.Options{Memory: least(t, dir) + 50000}), tokens, 9)
		sameState(t, few, all)
	}
}

// counted opens a packed store on a disk that counts.
func counted(t testing.TB, dir string, memory int) (*qwen4exp.Engine, *streamtest.Disk) {
	disk := &streamtest.Disk{}
	return openDir(t, dir, qwen4exp.Options{Memory: memory, Stream: stream.Options{Wrap: disk.Wrap}}), disk
}

func TestChunkStatsCountWhatWasRead(t *testing.T) {
	dir := packInto(t, filepath.Join(fixtures, "tiny"), pack.Settings{Group: 64})
	p, err := weights.OpenPacked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, c := range []struct {
		name     string
		memory   int
		resident bool
	}{{"above the model's size", 1 << 30, true}, {"no bound", 0, true}, {"little more than a ring", least(t, dir) + 700000, false}} {
		t.Run(c.name, func(t *testing.T) {
			e, disk := counted(t, dir, c.memory)
			s, err := e.Sequence(64)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			tokens := sample(64)
			var total engine.ChunkStats
			for i, at := range []int{0, 16, 32, 48} {
				disk.Set()
				step, err := s.Prefill(context.Background(), tokens[at:at+16], nil)
				if err != nil {
					t.Fatal(err)
				}
				reads := disk.Reads(weights.PackedExpertsFile)
				offsets := map[int64]bool{}
				for _, r := range reads {
					if offsets[r.Offset] {
						t.Errorf("chunk %d: the record at %d was read twice", i, r.Offset)
					}
					offsets[r.Offset] = true
				}
				st := step.Stats
				if st.Records != len(reads) || st.RecordBytes != int64(len(reads)*p.ExpertBytes(0, 0)) {
					t.Errorf("chunk %d: %d records and %d bytes, %d reads", i, st.Records, st.RecordBytes, len(reads))
				}
				if st.Ngram <= 0 || st.RingWait < 0 {
					t.Errorf("chunk %d: n-gram seconds %g, ring wait %g", i, st.Ngram, st.RingWait)
				}
				if c.resident && i > 0 && len(reads) > stream.Records(p)/4 {
					t.Errorf("chunk %d: %d reads with room for all", i, len(reads))
				}
				total = total.Add(st)
			}
			if s.Stats() != total {
				t.Errorf("sum %+v, want %+v", s.Stats(), total)
			}
			if c.resident {
				again, err := e.Sequence(64)
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close()
				disk.Set()
				if _, err := again.Prefill(context.Background(), tokens, nil); err != nil {
					t.Fatal(err)
				}
				if n := len(disk.Reads(weights.PackedExpertsFile)); n != 0 {
					t.Errorf("the same tokens again: %d records were read", n)
				}
			}
		})
	}
}

// With experts of many times the budget, each needed record is read once in a layer and chunk.
func TestExpertsBeyondTheBudgetAreReadOncePerLayer(t *testing.T) {
	dir := packInto(t, filepath.Join(fixtures, "tiny"), pack.Settings{Group: 64})
	e, disk := counted(t, dir, least(t, dir)+100000)
	s, err := e.Sequence(8)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Observe(qwen4exp.Debug{Route: true}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{3, 5} {
		from := int(s.Pos())
		disk.Set()
		if _, err := s.Prefill(context.Background(), sample(8)[from:from+n], nil); err != nil {
			t.Fatal(err)
		}
		needed := map[[2]int]bool{}
		for layer := range e.Info().Layers + 1 {
			for pos := range from + n {
				ids, _, err := s.RouteAt(layer, pos)
				for _, id := range ids {
					if err == nil {
						needed[[2]int{layer, int(id)}] = true
					}
				}
			}
		}
		got := len(disk.Reads(weights.PackedExpertsFile))
		if got > len(needed) || got < len(needed)-16 {
			t.Errorf("%d reads, %d records are needed and 16 slots are there", got, len(needed))
		}
	}
}

var errDisk = errors.New("injected disk failure")

// A fault in the middle of a layer is a typed error and leaves the sequence as it was; then everything goes on.
func TestPackedFaultsHaveNoEffect(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := packInto(t, filepath.Join(fixtures, "tiny"), pack.Settings{Group: 64})
	e, disk := counted(t, dir, least(t, dir)+200000)
	tokens := sample(36)
	want := read(t, openDir(t, dir, qwen4exp.Options{}), tokens, 6)
	s := read(t, e, tokens[:30], 6)
	var ctx context.Context
	var cancel context.CancelFunc
	for _, file := range []string{weights.PackedExpertsFile, weights.PackedNgramFile} {
		for _, first := range []int{1, 7, 20} {
			for _, c := range []struct {
				rule streamtest.Rule
				want error
			}{
				{streamtest.Rule{Err: errDisk}, engine.ErrStorage},
				{streamtest.Rule{Short: 64}, engine.ErrStorage},
				{streamtest.Rule{Flip: true}, engine.ErrStorage},
				{streamtest.Rule{Do: func() { cancel() }}, context.Canceled},
				{streamtest.Rule{Do: func() { cancel() }, Delay: 3 * time.Millisecond}, context.Canceled},
			} {
				ctx, cancel = context.WithCancel(context.Background())
				c.rule.File, c.rule.First, c.rule.Times = file, first, 1
				disk.Set(c.rule)
				before := s.Stats()
				_, err := s.Prefill(ctx, tokens[30:], nil)
				cancel()
				if !errors.Is(err, c.want) {
					t.Fatalf("%s, read %d, %+v: %v, want %v", file, first, c.rule, err, c.want)
				}
				if s.Pos() != 30 || s.Stats() != before {
					t.Fatalf("%s, read %d: the sequence is at %d", file, first, s.Pos())
				}
			}
		}
	}
	disk.Set()
	if _, err := s.Prefill(context.Background(), tokens[30:], nil); err != nil {
		t.Fatal(err)
	}
	sameState(t, s, want)
}

// Scratch, states, ring and pool share the budget; what does not fit is refused by name.
func TestBudgetIsShared(t *testing.T) {
	dir := packInto(t, filepath.Join(fixtures, "tiny"), pack.Settings{Group: 64})
	floor := least(t, dir)
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := qwen4exp.Open(c, cpu.New(cpu.Options{Workers: 2}), qwen4exp.Options{Memory: floor - 1}); !errors.Is(err, engine.ErrMemory) {
		t.Errorf("one byte less than the least: %v", err)
	}
	last := 0
	for _, budget := range []int{floor, 2 * floor, 4 * floor, 20 * floor} {
		e := openDir(t, dir, qwen4exp.Options{Memory: budget})
		if got := qwen4exp.Planned(e); got > int64(budget) {
			t.Errorf("chunk and ring take %d of %d", got, budget)
		}
		if rows := e.Info().MaxChunk; rows < last || rows < 1 {
			t.Errorf("%d rows with %d bytes, %d with less", rows, budget, last)
		} else {
			last = rows
		}
		var open []*qwen4exp.Sequence
		for {
			s, err := e.Sequence(16)
			if err != nil {
				if !errors.Is(err, engine.ErrMemory) {
					t.Fatal(err)
				}
				break
			}
			if open = append(open, s); qwen4exp.Planned(e) > int64(budget) {
				t.Fatalf("%d sequences in %d bytes", len(open), budget)
			}
			if len(open) > 200 {
				break
			}
		}
		if len(open) == 0 {
			t.Fatalf("no sequence fits %d bytes", budget)
		}
		if _, err := open[0].Prefill(context.Background(), sample(1), nil); err != nil {
			t.Errorf("with a full budget: %v", err)
		}
		for _, s := range open {
			s.Close()
		}
		s, err := e.Sequence(16)
		if err != nil {
			t.Fatalf("closed sequences give nothing back: %v", err)
		}
		s.Close()
	}
}

func TestPackedLaws(t *testing.T) {
	dir := packInto(t, filepath.Join(fixtures, "odd"), pack.Settings{Group: 64})
	e := openDir(t, dir, qwen4exp.Options{Memory: 6 * least(t, dir)})
	tokens := sample(50)
	sameState(t, read(t, e, tokens, 3), read(t, e, tokens, 17)) // the cut leaves no trace
	e.ReleaseScratch()
	sameState(t, read(t, e, tokens, 5), read(t, e, tokens, 1))
}
