package qwen4exp_test

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
)

// codecs are the settings that say how a state is held, but for the default.
func codecs() []qwen4exp.Options {
	return []qwen4exp.Options{{KV: qwen4exp.KVF16}, {KV: qwen4exp.KVQ8}, {State: qwen4exp.StateBF16}, {KV: qwen4exp.KVQ8, State: qwen4exp.StateBF16}}
}

// Whatever holds the rows, every law of an engine stands: a restored state goes on as if it had not stopped, and cuts
// leave no trace, bit for bit.
func TestLawsOfCodecs(t *testing.T) {
	for _, opt := range []qwen4exp.Options{{KV: qwen4exp.KVF16}, {KV: qwen4exp.KVQ8, State: qwen4exp.StateBF16}} {
		t.Run(opt.Codec(), func(t *testing.T) { laws(t, "tiny", opt) })
	}
}

// The identity of the default says what it always said, so that states stored before stay readable; a setting changes
// one field, which a refused restore names.
func TestCodecInIdentity(t *testing.T) {
	fields := func(opt qwen4exp.Options) map[string]string {
		e := open(t, "tiny", cpu.New(cpu.Options{}), opt)
		defer e.Close()
		id, err := e.Identity()
		if err != nil {
			t.Fatal(err)
		}
		out, names := map[string]string{}, ""
		for _, f := range id.Fields {
			out[f.Name], names = f.Value, names+f.Name+" "
		}
		if names != "weights config tokenizer mtp_hidden_norm codec " {
			t.Fatalf("fields are %s", names)
		}
		return out
	}
	plain := fields(qwen4exp.Options{})
	if plain["codec"] != "exact-f32" {
		t.Fatalf("codec of the default is %s, which is another identity", plain["codec"])
	}
	if got := fields(qwen4exp.Options{KV: qwen4exp.KVF32}); !maps.Equal(got, plain) {
		t.Errorf("naming the default changes %v to %v", plain, got)
	}
	seen := map[string]bool{plain["codec"]: true}
	for _, opt := range codecs() {
		got := fields(opt)
		if seen[got["codec"]] {
			t.Errorf("%+v has the codec of another setting, %s", opt, got["codec"])
		}
		seen[got["codec"]] = true
		got["codec"] = plain["codec"]
		if !maps.Equal(got, plain) {
			t.Errorf("%+v changes more than the codec: %v", opt, got)
		}
	}
	for _, opt := range []qwen4exp.Options{{KV: "q4"}, {State: "f16"}} {
		if _, err := qwen4exp.Open(checkpoint(t, "tiny"), cpu.New(cpu.Options{}), opt); err == nil {
			t.Errorf("%+v opens", opt)
		}
	}
}

func TestParseCodec(t *testing.T) {
	for _, opt := range append(codecs(), qwen4exp.Options{KV: qwen4exp.KVF32, State: qwen4exp.StateF32}) {
		kv, state, ok := qwen4exp.ParseCodec(opt.Codec())
		if got := (qwen4exp.Options{KV: kv, State: state}).Codec(); !ok || got != opt.Codec() {
			t.Errorf("%s reads as kv %s, state %s, %v", opt.Codec(), kv, state, ok)
		}
	}
	for _, name := range []string{"", "kv-", "kv-f32", "kv-q4", "state-bf16+kv-q8", "kv-q8+", "exact-f32+kv-q8", "kv-q8+kv-q8"} {
		if kv, state, ok := qwen4exp.ParseCodec(name); ok {
			t.Errorf("%q reads as kv %s, state %s", name, kv, state)
		}
	}
}

// FuzzParseCodec: what reads as a codec is the name of what was read.
func FuzzParseCodec(f *testing.F) {
	for _, opt := range codecs() {
		f.Add(opt.Codec())
	}
	f.Add("exact-f32")
	f.Fuzz(func(t *testing.T, name string) {
		kv, state, ok := qwen4exp.ParseCodec(name)
		if got := (qwen4exp.Options{KV: kv, State: state}).Codec(); ok && got != name {
			t.Errorf("%q reads as %q", name, got)
		}
	})
}

// dtypes are the types of the regions of a kind.
func dtypes(t *testing.T, s *qwen4exp.Sequence, suffix string) (out []string) {
	t.Helper()
	regions, err := s.Regions()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range regions {
		if strings.HasSuffix(r.Name, suffix) {
			out = append(out, r.DType)
		}
	}
	return slices.Compact(out)
}

// A recurrent state that is held in bfloat16 is so at the end of every cell, and float32 in between; stopping at either
// and going on, in one chunk or token by token, gives the bits of not having stopped.
func TestStateStopsAtCells(t *testing.T) {
	be := newFlaky()
	be.grid = cellTokens
	e := open(t, "tiny", be, qwen4exp.Options{State: qwen4exp.StateBF16})
	defer e.Close()
	tokens := sample(30)
	want := read(t, e, tokens, len(tokens))
	for _, at := range []int{5, 8, 16, 19, 24} {
		first := read(t, e, tokens[:at], at)
		rounded := "f32"
		if at%cellTokens == 0 {
			rounded = "bf16"
		}
		if got := dtypes(t, first, ".recurrent"); !slices.Equal(got, []string{rounded}) {
			t.Fatalf("at %d recurrent states are %v, want %s", at, got, rounded)
		}
		second := moved(t, e, first)
		sameState(t, second, first)
		for i := at; i < len(tokens); i++ {
			if _, err := second.Decode(context.Background(), tokens[i:i+1], largest); err != nil {
				t.Fatal(err)
			}
		}
		sameState(t, second, want)
	}
	plain := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{})
	defer plain.Close()
	a, err := want.Logits(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	b, err := read(t, plain, tokens, 30).Logits(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(a, b) {
		t.Error("rounding the state changes nothing")
	}
}

// Drafts that are refused leave no trace of a cell that they ended.
func TestRefusedDraftsLeaveCells(t *testing.T) {
	be := newFlaky()
	be.grid = cellTokens
	e := open(t, "tiny", be, qwen4exp.Options{State: qwen4exp.StateBF16, KV: qwen4exp.KVQ8})
	defer e.Close()
	ctx := context.Background()
	for start := 5; start < 9; start++ {
		tokens := sample(start)
		greedy := continuation(t, read(t, e, tokens, start), 4)
		for right := range 4 {
			s := read(t, e, tokens, start)
			batch := slices.Clone(greedy)
			for i := right + 1; i < 4; i++ {
				batch[i] = (batch[i] + 1) % 300
			}
			if _, err := s.Decode(ctx, batch, largest); err != nil {
				t.Fatal(err)
			}
			want := read(t, e, tokens, start)
			for _, id := range greedy[:right+1] {
				if _, err := want.Decode(ctx, []engine.Token{id}, largest); err != nil {
					t.Fatal(err)
				}
			}
			sameState(t, s, want)
		}
	}
}

// moved is a new sequence with the state of s.
func moved(t *testing.T, e *qwen4exp.Engine, s *qwen4exp.Sequence) *qwen4exp.Sequence {
	t.Helper()
	from, err := s.Regions()
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Sequence(s.Capacity())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	r, err := out.Restore(s.Pos())
	if err != nil {
		t.Fatal(err)
	}
	for i, to := range r.Regions() {
		if copy(to.Data, from[i].Data) != len(to.Data) || to.DType != from[i].DType {
			t.Fatalf("region %s takes %d bytes of %s, %d of %s were exported", to.Name, len(to.Data), to.DType, len(from[i].Data), from[i].DType)
		}
	}
	if err := r.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	return out
}

// What a sequence takes of a memory budget, and what a token adds to its state, are the bytes of its rows.
func TestBytesOfCodecs(t *testing.T) {
	// tiny: two attention layers and the head's, each with K and V of 2 heads of 32 and an index key of 32, and a token id
	for kv, want := range map[qwen4exp.KV]int{
		qwen4exp.KVF32: 3*(2*64*4+32*4) + 4,
		qwen4exp.KVF16: 3*(2*64*2+32*4) + 4,
		qwen4exp.KVQ8:  3*(2*(64+2*2+8)+32*4) + 4, // codes, two scales, the loss
	} {
		e := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{KV: kv})
		if got := e.Info().BytesPerToken; got != want {
			t.Errorf("%s: %d bytes a token, want %d", kv, got, want)
		}
		const rows = 1 << 14
		small, err := qwen4exp.StateBytes(e, rows)
		if err != nil {
			t.Fatal(err)
		}
		large, err := qwen4exp.StateBytes(e, 2*rows)
		if err != nil {
			t.Fatal(err)
		}
		held := want - 4 + 3*32*4/4 // the ids are not on the device; a block key for every 4 tokens is
		if got := float64(large-small) / rows; math.Abs(got-float64(held)) > 4 {
			t.Errorf("%s: a sequence holds %.1f bytes a token, want about %d", kv, got, held)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What a state says that it lost is what the run that rounds nothing has otherwise, where nothing was rounded before.
func TestLossIsMeasured(t *testing.T) {
	be := newFlaky()
	be.grid = cellTokens
	tokens := sample(48)
	regions := func(opt qwen4exp.Options) map[string]engine.Region {
		e := open(t, "tiny", be, opt)
		t.Cleanup(func() { e.Close() })
		all, err := read(t, e, tokens, 48).Regions()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]engine.Region{}
		for i, r := range all {
			r.Data = nil
			for _, v := range oracle.Numbers(all, i) {
				r.Data = binary.LittleEndian.AppendUint32(r.Data, math.Float32bits(v))
			}
			out[r.Name] = r
		}
		return out
	}
	exact, rounded := regions(qwen4exp.Options{}), regions(qwen4exp.Options{KV: qwen4exp.KVQ8})
	for _, name := range []string{"layers.3.k", "layers.3.v"} { // the first attention layer
		if got, want := rounded[name].Loss, distance(rounded[name].Data, exact[name].Data); math.Abs(got/want-1) > 1e-4 || want < 1e-3 || want > 1e-2 {
			t.Errorf("%s says that it lost %g, and lost %g", name, got, want)
		}
	}
	for name, r := range exact {
		if r.Loss != 0 {
			t.Errorf("%s of an exact state says that it lost %g", name, r.Loss)
		}
	}
	// a state that is rounded at the end of each cell: the last rounding is the one at 48
	a, b := regions(qwen4exp.Options{State: qwen4exp.StateBF16})["layers.0.recurrent"], exact["layers.0.recurrent"]
	if a.DType != "bf16" || a.Loss < 1e-3 || a.Loss > 3e-3 || distance(a.Data, b.Data) < a.Loss/2 {
		t.Errorf("the recurrent state is %s, says that it lost %g, and is off by %g", a.DType, a.Loss, distance(a.Data, b.Data))
	}
}

// distance is the relative L2 distance of float32 numbers.
func distance(got, want []byte) float64 {
	off, whole := 0.0, 0.0
	for i := 0; i < len(want); i += 4 {
		g, w := math.Float32frombits(binary.LittleEndian.Uint32(got[i:])), math.Float32frombits(binary.LittleEndian.Uint32(want[i:]))
		off += float64(g-w) * float64(g-w)
		whole += float64(w) * float64(w)
	}
	return math.Sqrt(off / whole)
}
