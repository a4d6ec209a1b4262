package bench_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"lector/engine"
	"lector/engine/bench"
	"lector/engine/cpu"
	"lector/engine/qwen4exp"
)

func tinyRunner(t *testing.T) *bench.Runner {
	t.Helper()
	r, _ := tinyRunnerOn(t, cpu.New(cpu.Options{}))
	return r
}

func tinyRunnerOn(t *testing.T, be *cpu.Backend) (*bench.Runner, *cpu.Backend) {
	t.Helper()
	c := openTiny(t)
	e, err := qwen4exp.Open(c, be, qwen4exp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // it holds memory alone
	return &bench.Runner{Engine: e, Config: c.Config(), Stored: bench.StoredOf(c), Seed: 1, Repeat: 2, Note: func(string, ...any) {}}, be
}

func TestPrefillRows(t *testing.T) {
	r := tinyRunner(t)
	rows, err := r.Prefill(context.Background(), []int{24, 40}, []int{16, 32, 64})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range rows {
		names = append(names, row.Name)
		if len(row.Samples) != 2 || len(row.Stats) != 2 || row.Sum().Tokens != 2*row.Length || row.Median() <= 0 {
			t.Errorf("%s: samples %v, %d tokens", row.Name, row.Samples, row.Sum().Tokens)
		}
	}
	// What is one chunk in both sizes is measured once.
	want := []string{"prefill length=24 chunk=16", "prefill length=24 chunk=24", "prefill length=40 chunk=16", "prefill length=40 chunk=32", "prefill length=40 chunk=40"}
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	c := tinyConfig(t)
	if got, want := rows[3].FLOP, bench.ChunkFLOP(c, 0, 32).Add(bench.ChunkFLOP(c, 32, 8)); got != want {
		t.Errorf("%+v of 32 and 8 tokens, want %+v", got, want)
	}
}

func TestDecodeRows(t *testing.T) {
	r := tinyRunner(t)
	o := bench.DecodeOptions{Positions: []int{20, 45}, Drafts: []int{0, 2}, Tokens: 3, StateOptions: bench.StateOptions{Chunk: 16}}
	rows, err := r.Decode(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 4 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		if row.Committed != row.Steps+row.Accepted || row.Committed < 2*3 || row.Drafted != row.Drafts*row.Steps {
			t.Errorf("%s: %d tokens of %d steps, %d of %d drafts accepted", row.Name, row.Committed, row.Steps, row.Accepted, row.Drafted)
		}
	}
	var want bench.Reads
	for range 2 {
		for p := 45; p < 48; p++ {
			want = want.Add(bench.StepReads(r.Config, r.Stored, p, 0))
		}
	}
	if got := rows[2].Reads; got != want {
		t.Errorf("%s read %+v, want %+v", rows[2].Name, got, want)
	}
}

// A profile is of one more sample, and its operations and what lies between them make up its time.
func TestDecodeProfile(t *testing.T) {
	r, be := tinyRunnerOn(t, cpu.New(cpu.Options{Workers: 2}))
	o := bench.DecodeOptions{Positions: []int{20}, Drafts: []int{0}, Tokens: 3, Profiler: be, Threads: 2, StateOptions: bench.StateOptions{Chunk: 16}}
	rows, err := r.Decode(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	p := rows[0].Profile
	if p == nil || len(rows[0].Samples) != 2 || rows[0].Steps != 2*3 || p.Steps != 3 {
		t.Fatalf("profile %+v beside %d samples of %d steps", p, len(rows[0].Samples), rows[0].Steps)
	}
	sum, runs := 0.0, map[string]int{}
	for _, o := range p.Operations {
		sum += o.Seconds
		runs[o.Name] = o.Runs
	}
	if math.Abs(sum-p.Seconds) > 1e-6 {
		t.Errorf("operations make up %g of %g s", sum, p.Seconds)
	}
	if runs["Pick"] != 3 || runs["experts Down"] == 0 || p.Operations[len(p.Operations)-1].Name != bench.Between {
		t.Errorf("operations %+v", p.Operations)
	}
	if len(be.Profiled()) != len(p.Operations)-1 {
		t.Error("what was counted is not what the row says")
	}
}

// A made-up state restores, and a chunk runs behind it; the same seed makes the same one.
func TestSyntheticState(t *testing.T) {
	r := tinyRunner(t)
	ctx := context.Background()
	rows, err := r.At(ctx, []int{64, 200}, bench.StateOptions{Chunk: 8, Synthetic: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[1].Position != 200 || rows[1].FLOP != bench.ChunkFLOP(r.Config, 200, 8) {
		t.Errorf("rows %+v", rows)
	}
	a, err := bench.SyntheticState(ctx, r.Engine, 33, 7)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bench.SyntheticState(ctx, r.Engine, 33, 7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.Regions {
		if !slices.Equal(a.Regions[i].Data, b.Regions[i].Data) {
			t.Errorf("region %s differs", a.Regions[i].Name)
		}
	}
}

// A state that was saved goes on as the sequence that it was saved of.
func TestStateGoesOn(t *testing.T) {
	r := tinyRunner(t)
	ctx := context.Background()
	tokens := bench.RandomTokens(1, 30, r.Engine.Info().Vocabulary)
	var saved bench.State
	got, err := r.Read(ctx, tokens, bench.ReadOptions{Chunk: 8, Then: func(seq engine.Sequence) (err error) {
		saved, err = bench.SaveState(seq)
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := saved.Start(ctx, r.Engine, 31)
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	probe, err := seq.Probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if probe.Next != got.Last.Next || !slices.Equal(probe.Top, got.Last.Top) {
		t.Errorf("the copy says %+v, the sequence said %+v", probe, got.Last.Probe)
	}
}

func TestRefusals(t *testing.T) {
	r := tinyRunner(t)
	ctx := context.Background()
	if _, err := r.Prefill(ctx, []int{5000}, []int{16}); !errors.Is(err, engine.ErrTooLong) {
		t.Errorf("a text past the model's limit: %v", err)
	}
	if _, err := r.Prefill(ctx, []int{16}, []int{0}); !errors.Is(err, engine.ErrTooLong) {
		t.Errorf("chunks of nothing: %v", err)
	}
	if _, err := r.Decode(ctx, bench.DecodeOptions{Positions: []int{0}, Drafts: []int{0}, Tokens: 1}); !errors.Is(err, engine.ErrEmpty) {
		t.Errorf("decode from nothing: %v", err)
	}
	r.Text = make([]engine.Token, 10)
	if _, err := r.Prefill(ctx, []int{11}, []int{16}); !errors.Is(err, engine.ErrTooLong) {
		t.Errorf("more than the text has: %v", err)
	}
}

func TestRandomTokens(t *testing.T) {
	long := bench.RandomTokens(3, 1000, 37)
	if !slices.Equal(long[:100], bench.RandomTokens(3, 100, 37)) {
		t.Error("a longer draw begins otherwise")
	}
	if slices.Min(long) != 0 || slices.Max(long) != 36 {
		t.Errorf("ids from %d to %d, want all of 37", slices.Min(long), slices.Max(long))
	}
}
