package enginetest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"lector/engine"
)

// Suite is what Run needs to know of an engine under test.
type Suite struct {
	// Open loads the engine; each law opens its own, and closes it.
	Open func(t testing.TB) engine.Engine
	// Tokens gives n tokens of a sample prompt; the first of a longer sample are those of a shorter one.
	Tokens func(n int) []engine.Token
	// Length of the sample in tokens; 0: 40. It should reach what is special about the engine's state.
	Length int
	// Fail makes the next Prefill of e fail midway; nil where there is no way to.
	Fail func(e engine.Engine)
	// SkipDrafts leaves out the laws of drafts, for a model without a head.
	SkipDrafts bool
}

// Run checks every law of an engine as a subtest named after it.
func Run(t *testing.T, s Suite) {
	if s.Length == 0 {
		s.Length = 40
	}
	laws := []struct {
		name string
		law  func(*testing.T, Suite)
		skip bool // the caller has said that there is nothing to run it on
	}{
		{"identity is the same in every engine", lawIdentity, false},
		{"cuts leave no trace", lawCuts, false},
		{"decode equals prefill", lawDecode, false},
		{"regions have their sizes", lawSizes, false},
		{"bad input has no effect", lawBadInput, false},
		{"a cancelled call has no effect", lawCancelled, false},
		{"a failed call has no effect", lawFailed, s.Fail == nil},
		{"statistics add up", lawStats, false},
		{"closed sequences refuse", lawClosed, false},
		{"restore and go on equals not stopping", lawRestore, false},
		{"an aborted restore leaves an empty sequence", lawAbort, false},
		{"a restore that does not fit is refused", lawUnfit, false},
		{"damaged state is refused by name", lawDamaged, false},
		{"going back leaves no trace", lawRewind, false},
		{"drafts never change the text", lawDrafts, s.SkipDrafts},
		{"rejected drafts leave no trace", lawRejected, s.SkipDrafts},
		{"drafting changes no state", lawDraft, s.SkipDrafts},
	}
	for _, l := range laws {
		if l.skip {
			continue
		}
		t.Run(l.name, func(t *testing.T) { l.law(t, s) })
	}
}

// bench is one law's engine, with shorthands that end the test on an error.
type bench struct {
	*testing.T
	Suite
	engine engine.Engine
}

func newBench(t *testing.T, s Suite) *bench {
	t.Helper()
	e := s.Open(t)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return &bench{T: t, Suite: s, engine: e}
}

// sequence opens an empty sequence, closed with the test before the engine is.
func (b *bench) sequence(capacity int) engine.Sequence {
	b.Helper()
	s, err := b.engine.NewSequence(capacity)
	if err != nil {
		b.Fatalf("open a sequence of %d: %v", capacity, err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Errorf("close sequence: %v", err)
		}
	})
	return s
}

func (b *bench) prefill(s engine.Sequence, tokens []engine.Token) engine.Step {
	b.Helper()
	step, err := s.Prefill(b.Context(), tokens, nil)
	if err != nil {
		b.Fatalf("prefill %d tokens at %d: %v", len(tokens), s.Pos(), err)
	}
	return step
}

// read prefills tokens cut at the given places into a fresh sequence with room for some more.
func (b *bench) read(tokens []engine.Token, cuts ...int) (engine.Sequence, engine.Step) {
	b.Helper()
	s := b.sequence(len(tokens) + 64)
	var last engine.Step
	from := 0
	for _, to := range append(cuts, len(tokens)) {
		if to > from {
			last = b.prefill(s, tokens[from:to])
			from = to
		}
	}
	return s, last
}

// state is everything a sequence says about itself.
type state struct {
	Pos     engine.Pos
	Tokens  []engine.Token
	Regions []engine.Region
	Logits  []float32
	Probe   engine.Probe
}

func (b *bench) state(s engine.Sequence) state {
	b.Helper()
	st := state{Pos: s.Pos(), Tokens: s.Tokens(), Regions: b.regions(s)}
	if st.Pos == 0 {
		return st
	}
	var err error
	if st.Logits, err = s.Logits(b.Context()); err != nil {
		b.Fatalf("logits at %d: %v", st.Pos, err)
	}
	st.Logits = slices.Clone(st.Logits)
	if st.Probe, err = s.Probe(b.Context()); err != nil {
		b.Fatalf("probe at %d: %v", st.Pos, err)
	}
	return st
}

// regions copies the state, so that it stays when the sequence moves.
func (b *bench) regions(s engine.Sequence) []engine.Region {
	b.Helper()
	lent, err := s.Regions()
	if err != nil {
		b.Fatalf("regions at %d: %v", s.Pos(), err)
	}
	out := slices.Clone(lent)
	for i := range out {
		out[i].Data = bytes.Clone(out[i].Data)
	}
	return out
}

// same fails the test with the first thing that differs.
func (b *bench) same(what string, got, want state) {
	b.Helper()
	if got.Pos != want.Pos || !slices.Equal(got.Tokens, want.Tokens) {
		b.Fatalf("%s: holds %d tokens %v, want %d tokens %v", what, got.Pos, got.Tokens, want.Pos, want.Tokens)
	}
	b.sameRegions(what, got.Regions, want.Regions)
	for i := range want.Logits {
		if math.Float32bits(got.Logits[i]) != math.Float32bits(want.Logits[i]) {
			b.Fatalf("%s: logit %d is %v, want %v", what, i, got.Logits[i], want.Logits[i])
		}
	}
	b.sameProbe(what, got.Probe, want.Probe)
}

func (b *bench) sameRegions(what string, got, want []engine.Region) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d regions, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Name != w.Name || g.DType != w.DType || g.Kind != w.Kind || g.Lag != w.Lag || !slices.Equal(g.Shape, w.Shape) {
			b.Fatalf("%s: region %d is %s %s %v, want %s %s %v", what, i, g.Name, g.DType, g.Shape, w.Name, w.DType, w.Shape)
		}
		if len(g.Data) != len(w.Data) {
			b.Fatalf("%s: region %s has %d bytes, want %d", what, w.Name, len(g.Data), len(w.Data))
		}
		for at := range w.Data {
			if g.Data[at] != w.Data[at] {
				b.Fatalf("%s: region %s differs at byte %d (row %d)", what, w.Name, at, at/max(w.RowBytes(), 1))
			}
		}
	}
}

func (b *bench) sameProbe(what string, got, want engine.Probe) {
	b.Helper()
	if !reflect.DeepEqual(got, want) {
		b.Fatalf("%s: probe is %+v, want %+v", what, got, want)
	}
}

// greedy chooses the largest logit, ties to the lower id.
func greedy(_ engine.Pos, logits []float32) engine.Token { return argmax(logits) }

// wantError checks the class of an error.
func (b *bench) wantError(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("%s: error is %v, want %v", what, err, want)
	}
}

// lateCancel is a context that ends when it was looked at a number of times: a cancel midway without a race.
type lateCancel struct {
	context.Context
	cancel context.CancelFunc
	left   int
}

func newLateCancel(parent context.Context, looks int) *lateCancel {
	ctx, cancel := context.WithCancel(parent)
	if looks < 1 {
		cancel()
	}
	return &lateCancel{Context: ctx, cancel: cancel, left: looks}
}

// Err counts a look.
func (c *lateCancel) Err() error {
	if c.left--; c.left < 0 {
		c.cancel()
	}
	return c.Context.Err()
}
