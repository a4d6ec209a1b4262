package gpu_test

import (
	"bytes"
	"testing"

	"lector/engine"
	"lector/engine/gpu"
	"lector/engine/qwen4exp"
)

// A sequence that went back on a device holds what it held at the mark, and goes on as if it had never been further.
func TestRewind(t *testing.T) {
	m := openModel(t, fixtureCase{"tiny", 64, false})
	e := m.open(t, open(t, gpu.Options{}), qwen4exp.Grouped)
	defer e.Close()
	tokens := m.fixture.Tokens[:8]
	s, err := e.Sequence(32)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	read := func(part []engine.Token) [][]byte {
		t.Helper()
		if _, err := s.Prefill(t.Context(), part, nil); err != nil {
			t.Fatal(err)
		}
		return held(t, s)
	}
	at := read(tokens[:5])
	if err := s.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := read(tokens[5:])
	for range 2 {
		if err := s.Rewind(t.Context()); err != nil {
			t.Fatal(err)
		}
		same(t, "rewound", held(t, s), at)
		same(t, "gone on from the mark", read(tokens[5:]), want)
	}
}

// held copies the state of a sequence.
func held(t *testing.T, s *qwen4exp.Sequence) (out [][]byte) {
	t.Helper()
	regions, err := s.Regions()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range regions {
		out = append(out, bytes.Clone(r.Data))
	}
	return out
}

func same(t *testing.T, what string, got, want [][]byte) {
	t.Helper()
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("%s: region %d differs", what, i)
		}
	}
}
