package token

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"lector/engine"
)

func nano(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := Load("../nano/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// Scanning and the heap are the same function.
func TestHeapIsScan(t *testing.T) {
	tok := nano(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("aaethinrsodT .é中")), 2, 60, shortPiece).Draw(t, "text")
		ids := make([]engine.Token, len(text))
		for i := range len(text) {
			ids[i] = tok.bytes[text[i]]
		}
		if len(ids) < 2 {
			return
		}
		scanned := tok.merges.scan(slices.Clone(ids))
		if heaped := tok.merges.heap(slices.Clone(ids)); !slices.Equal(heaped, scanned) {
			t.Fatalf("%q: heap %v, scan %v", text, heaped, scanned)
		}
	})
}

// The memory of words stays bounded however many words come, and keeps those in use.
func TestWordsAreBounded(t *testing.T) {
	var w words
	w.learn("often", []engine.Token{7})
	entry := 0
	for i := range 200_000 {
		word := "word" + strconv.Itoa(i)
		w.learn(word, []engine.Token{1, 2, 3})
		entry = len(word) + 12 + entryCost
		if ids, ok := w.append(nil, "often"); !ok || !slices.Equal(ids, []engine.Token{7}) {
			t.Fatalf("after %d words: often is %v, %v", i, ids, ok)
		}
		if w.bytes > wordBytes+entry {
			t.Fatalf("after %d words the young generation holds %d bytes", i, w.bytes)
		}
	}
	if len(w.old) == 0 || len(w.old)*entry > wordBytes+2*entry {
		t.Errorf("old generation of %d words; want some, and no more than fit in %d bytes", len(w.old), wordBytes)
	}
	if _, ok := w.append(nil, "word0"); ok {
		t.Error("the first word is still there")
	}
}

func BenchmarkEncode(b *testing.B) {
	tok := nano(b)
	prose, err := os.ReadFile("../nano/README.md")
	if err != nil {
		b.Fatal(err)
	}
	mixed := make([]rune, 1<<14)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range mixed {
		mixed[i] = nasty[random.IntN(len(nasty))]
	}
	letters := slices.Repeat([]byte("a"), 1<<20)
	for _, c := range []struct{ name, text string }{{"prose", string(prose)}, {"mixed", string(mixed)}, {"one letter", string(letters)}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				if _, err := tok.Encode(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
