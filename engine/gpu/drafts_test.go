package gpu_test

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"testing"

	"lector/engine"
	"lector/engine/gpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
)

// writing is a sequence that goes on greedily.
type writing struct {
	*qwen4exp.Sequence
	t    *testing.T
	text []engine.Token // chosen so far; the last of it is not consumed yet
}

func newWriting(t *testing.T, e *qwen4exp.Engine, prompt []engine.Token) *writing {
	t.Helper()
	s, err := e.Sequence(100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	step, err := s.Prefill(context.Background(), prompt, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &writing{s, t, []engine.Token{step.Next}}
}

// write decodes the last token with drafts beside it.
func (w *writing) write(drafts ...engine.Token) {
	w.t.Helper()
	rows := append([]engine.Token{w.text[len(w.text)-1]}, drafts...)
	d, err := w.Decode(context.Background(), rows, func(_ engine.Pos, logits []float32) engine.Token {
		return engine.Token(slices.Index(logits, slices.Max(logits)))
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.text = append(w.text, d.Chosen...)
}

// state is every region, one after another.
func (w *writing) state() []byte {
	w.t.Helper()
	regions, err := w.Regions()
	if err != nil {
		w.t.Fatal(err)
	}
	var all []byte
	for _, r := range regions {
		all = append(all, r.Data...)
	}
	return all
}

// Three drafts, whether the head made them, all are right or all are wrong, change neither the text nor a bit of the
// state: rows of a batch have the sums of rows alone, and what is rejected is undone.
func TestDraftsChangeNothing(t *testing.T) {
	c, err := weights.Open(filepath.Join(fixtures, "tiny"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	e, err := qwen4exp.Open(c, open(t, gpu.Options{}), qwen4exp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var prompt []engine.Token
	for i := range 40 {
		prompt = append(prompt, engine.Token(i*i%500))
	}
	const tokens = 8
	plain := newWriting(t, e, prompt)
	states := map[engine.Pos][]byte{}
	for len(plain.text) < tokens+engine.MaxDrafts+1 {
		plain.write()
		states[plain.Pos()] = plain.state()
	}
	for name, draft := range map[string]func(w *writing) []engine.Token{
		"the head's": func(w *writing) []engine.Token {
			drafts, err := w.Draft(context.Background(), w.text[len(w.text)-1], engine.MaxDrafts)
			if err != nil {
				t.Fatal(err)
			}
			return drafts
		},
		"right": func(w *writing) []engine.Token { return plain.text[len(w.text):][:engine.MaxDrafts] },
		"wrong": func(w *writing) []engine.Token {
			next := plain.text[len(w.text)]
			return []engine.Token{(next + 1) % 500, next, next}
		},
	} {
		w := newWriting(t, e, prompt)
		steps := 0
		for ; len(w.text) < tokens; steps++ {
			w.write(draft(w)...)
		}
		if !slices.Equal(w.text, plain.text[:len(w.text)]) {
			t.Errorf("drafts %s: the text is %v, without drafts %v", name, w.text, plain.text)
		}
		if !bytes.Equal(w.state(), states[w.Pos()]) {
			t.Errorf("drafts %s: the state at %d differs", name, w.Pos())
		}
		if right := name == "right"; right != (steps < tokens/2) && name != "the head's" {
			t.Errorf("drafts %s: %d steps for %d tokens", name, steps, len(w.text))
		}
	}
}
