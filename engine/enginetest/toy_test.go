package enginetest_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"lector/engine"
	"lector/engine/enginetest"
)

func sample(n int) []engine.Token {
	ids, err := enginetest.ToyTokenizer{}.Encode(strings.Repeat("The old lighthouse keeper counted ships and slept. ", n))
	if err != nil {
		panic(err)
	}
	return ids[:n]
}

func TestToyKeepsTheLaws(t *testing.T) {
	for name, breaks := range map[string]bool{"leaves": false, "breaks": true} {
		t.Run(name, func(t *testing.T) {
			var fail atomic.Bool
			enginetest.Run(t, enginetest.Suite{
				Open: func(testing.TB) engine.Engine {
					return &enginetest.Toy{Breaks: breaks, BeforePrefill: func(context.Context, int, []engine.Token) error {
						if fail.Swap(false) {
							return engine.ErrDevice
						}
						return nil
					}}
				},
				Tokens: sample,
				Fail:   func(engine.Engine) { fail.Store(true) },
			})
		})
	}
}

func TestToyWithoutHead(t *testing.T) {
	enginetest.Run(t, enginetest.Suite{
		Open:       func(testing.TB) engine.Engine { return &enginetest.Toy{NoHead: true} },
		Tokens:     sample,
		SkipDrafts: true,
	})
}

func TestToyRefusesAStateOfOtherTokens(t *testing.T) {
	toy := &enginetest.Toy{}
	from, err := toy.NewSequence(16)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.Prefill(t.Context(), sample(9), nil); err != nil {
		t.Fatal(err)
	}
	regions, err := from.Regions()
	if err != nil {
		t.Fatal(err)
	}
	for i, region := range regions {
		to, err := toy.NewSequence(16)
		if err != nil {
			t.Fatal(err)
		}
		r, err := to.Restore(9)
		if err != nil {
			t.Fatal(err)
		}
		for j, have := range regions {
			copy(r.Regions()[j].Data, have.Data)
		}
		r.Regions()[i].Data[0] ^= 1
		if err := r.Commit(t.Context()); err == nil {
			t.Errorf("a flipped bit of %s was adopted", region.Name)
		} else if to.Pos() != 0 {
			t.Errorf("a refused %s left %d tokens", region.Name, to.Pos())
		}
	}
}

func TestToyDraftsAreRightAndWrong(t *testing.T) {
	toy := &enginetest.Toy{}
	right, wrong := 0, 0
	for n := 1; n <= 40; n++ {
		seq, err := toy.NewSequence(64)
		if err != nil {
			t.Fatal(err)
		}
		step, err := seq.Prefill(t.Context(), sample(n), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := seq.Decode(t.Context(), []engine.Token{step.Next, step.Draft}, func(_ engine.Pos, l []float32) engine.Token {
			best := 0
			for id := range l {
				if l[id] > l[best] {
					best = id
				}
			}
			return engine.Token(best)
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Chosen) == 2 {
			right++
		} else {
			wrong++
		}
	}
	if right < 10 || wrong < 5 {
		t.Errorf("%d drafts were right and %d wrong: tests need both", right, wrong)
	}
}

func TestToyFaults(t *testing.T) {
	block := enginetest.BlockPrefill(2)
	toy := &enginetest.Toy{BeforePrefill: block.Hook}
	seq, err := toy.NewSequence(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seq.Prefill(t.Context(), sample(3), nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := seq.Prefill(t.Context(), sample(4), nil)
		done <- err
	}()
	<-block.Started
	if toy.Prefilled() != 3 || toy.Prefills() != 2 {
		t.Errorf("%d tokens in %d calls, want 3 in 2", toy.Prefilled(), toy.Prefills())
	}
	close(block.Release)
	if err := <-done; err != nil || toy.Prefilled() != 7 {
		t.Errorf("released call: %v, %d tokens", err, toy.Prefilled())
	}
	broken := errors.New("torn wire")
	toy = &enginetest.Toy{BeforePrefill: enginetest.FailPrefill(1, broken)}
	if seq, err = toy.NewSequence(0); err != nil {
		t.Fatal(err)
	}
	if _, err := seq.Prefill(t.Context(), sample(3), nil); !errors.Is(err, broken) || toy.Prefilled() != 0 {
		t.Errorf("the call to fail: %v, %d tokens", err, toy.Prefilled())
	}
	if err := toy.Close(); err == nil {
		t.Error("an engine with an open sequence was closed")
	}
}

func TestToyTokenizer(t *testing.T) {
	var tok enginetest.ToyTokenizer
	for _, text := range []string{"", "the thing", "naïve — 🙂\r\n", "<end>"} {
		ids, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		d := tok.Decoder()
		for _, id := range ids {
			if id == enginetest.ToyEnd {
				t.Errorf("plain text %q became a special token", text)
			}
			out.WriteString(d.Add(id))
		}
		out.WriteString(d.Flush())
		if out.String() != text {
			t.Errorf("%q came back as %q", text, out.String())
		}
	}
	ids, err := tok.Chat([]engine.Message{{Role: "user", Content: "hi"}}, false)
	if err != nil || len(ids) != 4 {
		t.Errorf("chat is %v, %v", ids, err)
	}
	if _, err := tok.Chat([]engine.Message{{Role: "nobody"}}, false); err == nil {
		t.Error("an unknown role was rendered")
	}
}
