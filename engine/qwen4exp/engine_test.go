package qwen4exp_test

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/enginetest"
	"lector/engine/ops"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
)

const fixtures = "../../tests/fixtures"

// sample is a fixed prompt with repeats and end-of-text tokens in it, inside every fixture's vocabulary.
func sample(n int) []engine.Token {
	out := make([]engine.Token, n)
	x := uint32(12345)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = engine.Token(x >> 8 % 300)
		if i%37 == 20 {
			out[i] = 1 // end of text in the fixtures
		}
		if i > 60 && i%29 < 6 {
			out[i] = out[i-53]
		}
	}
	return out
}

func open(t testing.TB, model string, be ops.Backend, opt qwen4exp.Options) *qwen4exp.Engine {
	t.Helper()
	e, err := qwen4exp.Open(checkpoint(t, model), be, opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// checkpoint is a fixture's model, which is closed when the test ends.
func checkpoint(t testing.TB, model string) *weights.Checkpoint {
	t.Helper()
	c, err := weights.Open(filepath.Join(fixtures, model))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestLaws(t *testing.T) {
	for _, model := range []string{"tiny", "odd", "tiny-mlx-folded", "tiny-mlx-plain"} {
		t.Run(model, func(t *testing.T) { laws(t, model, qwen4exp.Options{}) })
	}
}

// cellTokens is the grid of the laws: small, so that what happens at the end of a cell does.
const cellTokens = 8

// laws runs the suite of every engine on a fixture's model.
func laws(t *testing.T, model string, opt qwen4exp.Options) {
	enginetest.Run(t, enginetest.Suite{
		Open: func(t testing.TB) engine.Engine {
			be := newFlaky()
			be.grid = cellTokens
			return &failing{Engine: open(t, model, be, opt)}
		},
		Tokens:     sample,
		Length:     90, // past the indexer's budget
		Fail:       func(e engine.Engine) { e.(*failing).backend().failAfter = 5 },
		SkipDrafts: model == "tiny-mlx-plain",
	})
}

// flaky is the CPU backend with a Wait that fails when told to.
type flaky struct {
	*cpu.Backend
	failAfter int // waits until one fails; 0: never
	grid      int // 0: the backend's own
	onWait    func()
}

var errInjected = errors.New("injected failure")

func newFlaky() *flaky { return &flaky{Backend: cpu.New(cpu.Options{})} }

// Batch is f itself, which counts its waits.
func (f *flaky) Batch() ops.Backend { return f }

// Grid is a small one where a test wants to cross many cells.
func (f *flaky) Grid() int { return cmp.Or(f.grid, f.Backend.Grid()) }

func (f *flaky) Wait(ctx context.Context) error {
	if f.onWait != nil {
		f.onWait()
	}
	if f.failAfter > 0 {
		if f.failAfter--; f.failAfter == 0 {
			return errInjected
		}
	}
	return f.Backend.Wait(ctx)
}

// failing remembers which backend an engine runs on.
type failing struct {
	*qwen4exp.Engine
}

func (f *failing) backend() *flaky { return qwen4exp.BackendOf(f.Engine).(*flaky) }

// Stopping at any wait, by a failure or a cancelled context, leaves the sequence as it was.
func TestFailureAtAnyWaitHasNoEffect(t *testing.T) {
	be := newFlaky()
	e := open(t, "tiny", be, qwen4exp.Options{})
	defer e.Close()
	tokens := sample(60)
	want := read(t, e, tokens, 60)
	s := read(t, e, tokens[:40], 40)
	next := tokens[40]
	for at := 1; ; at++ {
		be.failAfter = at
		_, err := s.Prefill(context.Background(), tokens[40:], &next)
		if err == nil {
			be.failAfter = 0
			break
		}
		if !errors.Is(err, errInjected) {
			t.Fatalf("wait %d: %v", at, err)
		}
		if s.Pos() != 40 {
			t.Fatalf("after a failure at wait %d the sequence is at %d", at, s.Pos())
		}
		ctx, cancel := context.WithCancel(context.Background())
		be.onWait = func() {
			if at--; at == 0 {
				cancel()
			}
		}
		saved := at
		if _, err := s.Prefill(ctx, tokens[40:], &next); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled at wait %d: %v", saved, err)
		}
		be.onWait, at = nil, saved
		cancel()
	}
	sameState(t, s, want)
}

func read(t testing.TB, e *qwen4exp.Engine, tokens []engine.Token, chunk int) *qwen4exp.Sequence {
	t.Helper()
	s, err := e.Sequence(len(tokens) + 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for part := range slices.Chunk(tokens, chunk) {
		if _, err := s.Prefill(context.Background(), part, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// sameState compares two sequences bit for bit.
func sameState(t testing.TB, got, want *qwen4exp.Sequence) {
	t.Helper()
	g, err := got.Regions()
	if err != nil {
		t.Fatal(err)
	}
	w, err := want.Regions()
	if err != nil {
		t.Fatal(err)
	}
	if len(g) != len(w) {
		t.Fatalf("%d regions, want %d", len(g), len(w))
	}
	for i := range w {
		if g[i].Name != w[i].Name || !slices.Equal(g[i].Data, w[i].Data) {
			t.Fatalf("region %s differs", w[i].Name)
		}
		if g[i].Loss != w[i].Loss {
			t.Fatalf("region %s lost %g, want %g", w[i].Name, g[i].Loss, w[i].Loss)
		}
	}
}

// A pass that panics leaves nothing behind that still runs: what it put off is done when the panic arrives.
func TestPanicsLeaveNothingPutOff(t *testing.T) {
	be := cpu.New(cpu.Options{Class: cpu.Blocked, Workers: 2})
	e := open(t, "tiny", be, qwen4exp.Options{})
	defer e.Close()
	s, err := e.NewSequence(64)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, y := tensor(t, be, 8), [2]ops.Tensor{tensor(t, be, 1), tensor(t, be, 1)}
	for i := range x.Floats() {
		x.Floats()[i] = float32(i + 1)
	}
	w := ops.Matrix{Name: "w", Format: ops.F32, Out: 1, In: 8, Data: make([]byte, 32)}
	for i := range 8 {
		w.Data[4*i+3], w.Data[4*i+2] = 0x3f, 0x80 // 1
	}
	func() {
		defer func() {
			if said := recover(); said != "planted" {
				t.Errorf("the panic says %v", said)
			}
		}()
		qwen4exp.Panic(s.(*qwen4exp.Sequence), func(be ops.Backend) {
			be.Linear(y[0], x, w)
			be.Linear(y[1], x, w)
		})
	}()
	for i, v := range y {
		if got := v.Floats()[0]; got != 36 {
			t.Errorf("product %d is %v behind the panic, not 36", i, got)
		}
	}
}

func tensor(t *testing.T, be ops.Backend, n int) ops.Tensor {
	x, err := be.Alloc(1, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { be.Free(x) })
	return x
}
