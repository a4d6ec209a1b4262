package enginetest

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"lector/engine"
)

// restore puts a copied state into seq, byte for byte.
func (b *bench) restore(seq engine.Sequence, st state) {
	b.Helper()
	b.fill(seq, st, func(r engine.Restoration) {
		if err := r.Commit(b.Context()); err != nil {
			b.Fatalf("commit the state after %d tokens: %v", st.Pos, err)
		}
	})
}

// fill copies a state into a restoration and hands it over.
func (b *bench) fill(seq engine.Sequence, st state, use func(engine.Restoration)) {
	b.Helper()
	r, err := seq.Restore(st.Pos)
	if err != nil {
		b.Fatalf("restore %d tokens: %v", st.Pos, err)
	}
	regions := r.Regions()
	if len(regions) != len(st.Regions) {
		b.Fatalf("restoration has %d regions, the export had %d", len(regions), len(st.Regions))
	}
	for i, have := range st.Regions {
		if regions[i].Name != have.Name || len(regions[i].Data) != len(have.Data) {
			b.Fatalf("restoration's region %d is %s of %d bytes, the export's %s of %d", i, regions[i].Name, len(regions[i].Data), have.Name, len(have.Data))
		}
		copy(regions[i].Data, have.Data)
	}
	use(r)
}

func lawRestore(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	n := len(tokens)
	whole, _ := b.read(tokens)
	want := b.state(whole)
	text := b.generate(whole, 8, 0)
	for _, at := range []int{1, 2, n / 2, n - 1, n} {
		first, _ := b.read(tokens[:at])
		stopped := b.state(first)
		other := newBench(t, s) // a fresh engine, as another host has
		seq := other.sequence(n + 64)
		other.restore(seq, stopped)
		other.same("restored", other.state(seq), stopped) // logits and probe come from the restored residual
		if at < n {
			other.prefill(seq, tokens[at:])
		}
		other.same("restored and gone on", other.state(seq), want)
		if got := other.generate(seq, 8, 0); !equal(got, text) {
			t.Fatalf("restored at %d: text is %v, want %v", at, got, text)
		}
	}
}

func lawAbort(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	whole, _ := b.read(tokens)
	want := b.state(whole)
	seq := b.sequence(len(tokens))
	b.fill(seq, want, engine.Restoration.Abort)
	b.empty("after an abort", seq)
	b.fill(seq, want, func(r engine.Restoration) {
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		if err := r.Commit(ctx); err == nil {
			t.Skip("a commit is not cancelled by its context")
		}
		b.empty("after a cancelled commit", seq)
	})
	b.prefill(seq, tokens)
	b.same("read after an abort", b.state(seq), want)
}

// empty checks that nothing of a restore is left.
func (b *bench) empty(what string, seq engine.Sequence) {
	b.Helper()
	if seq.Pos() != 0 || len(seq.Tokens()) != 0 {
		b.Fatalf("%s: sequence holds %d tokens %v", what, seq.Pos(), seq.Tokens())
	}
}

func lawUnfit(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(4)
	seq := b.sequence(4)
	_, err := seq.Restore(5)
	b.wantError("restore beyond capacity", err, engine.ErrTooLong)
	b.empty("after a refused restore", seq)
	b.prefill(seq, tokens[:2])
	was := b.state(seq)
	if _, err := seq.Restore(2); err == nil {
		t.Fatal("restore into a sequence that holds tokens succeeded")
	}
	b.same("after a refused restore", b.state(seq), was)
}

func lawDamaged(t *testing.T, s Suite) {
	b := newBench(t, s)
	tokens := s.Tokens(s.Length)
	whole, _ := b.read(tokens)
	good := b.state(whole)
	nan := math.Float32bits(float32(math.NaN()))
	for i, region := range good.Regions {
		class, bits := engine.ErrNumeric, nan
		if region.ValueBytes() == 2 {
			bits = nan >> 16 // of a half and of a bfloat16 as well
		}
		switch {
		case len(region.Data) == 0:
			continue
		case region.DType == "i32" && region.Name == "tokens":
			class, bits = engine.ErrToken, uint32(b.engine.Info().Vocabulary)
		case region.DType == "i32" || region.DType == "i8":
			continue // any integer may be right
		}
		for _, at := range []int{0, len(region.Data) - region.ValueBytes()} {
			seq := b.sequence(len(tokens))
			b.fill(seq, good, func(r engine.Restoration) {
				copy(r.Regions()[i].Data[at:], binary.LittleEndian.AppendUint32(nil, bits)[:region.ValueBytes()])
				err := r.Commit(b.Context())
				b.wantError("commit with a damaged "+region.Name, err, class)
				if !strings.Contains(err.Error(), region.Name) {
					t.Fatalf("commit with a damaged %s says %q, which does not name it", region.Name, err)
				}
			})
			b.empty("after damaged "+region.Name, seq)
			b.restore(seq, good)
			b.same("restored after damage", b.state(seq), good)
			if err := seq.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
		}
	}
}

func equal(a, b []engine.Token) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
