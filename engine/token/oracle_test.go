package token_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lector/engine"
	"lector/engine/token"
)

var fullPath = flag.String("tokenizer", "", "path of the full Qwen3 tokenizer.json, to check the recorded cases on it as well")

// recording is testdata/cases.json.gz: see testdata/README.md.
type recording struct {
	Texts []string     `json:"texts"`
	Qwen  answersOfOne `json:"qwen"`
	Nano  answersOfOne `json:"nano"`
}

// answersOfOne holds what the reference makes of the texts with one tokenizer file.
type answersOfOne struct {
	Special [][]engine.Token `json:"special"` // added tokens recognised
	Plain   [][]engine.Token `json:"plain"`   // without added tokens; null where equal to Special
	Decode  []struct {
		IDs     []engine.Token `json:"ids"`
		Text    string         `json:"text"`
		Special string         `json:"special"`
	} `json:"decode"`
}

func gunzip(t testing.TB, name string) []byte {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func loadRecording(t testing.TB) recording {
	t.Helper()
	var r recording
	if err := json.Unmarshal(gunzip(t, "cases.json.gz"), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func loadQwen(t testing.TB) *token.Tokenizer {
	t.Helper()
	tok, err := token.Parse("qwen3-reduced", gunzip(t, "qwen3-reduced.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func loadNano(t testing.TB) *token.Tokenizer {
	t.Helper()
	tok, err := token.Load("../nano/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// subject is one tokenizer with its recorded answers.
type subject struct {
	name string
	tok  *token.Tokenizer
	want answersOfOne
}

func subjects(t *testing.T, r recording) []subject {
	all := []subject{{"qwen3-reduced", loadQwen(t), r.Qwen}, {"nano", loadNano(t), r.Nano}}
	if *fullPath != "" {
		full, err := token.Load(*fullPath)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, subject{"qwen3-full", full, r.Qwen})
	}
	return all
}

// Promise 1, and of promise 3 that plain text spells out what looks like an added token.
func TestEncodeAgreesWithReference(t *testing.T) {
	r := loadRecording(t)
	if len(r.Texts) < 1500 {
		t.Fatalf("only %d recorded texts", len(r.Texts))
	}
	for _, s := range subjects(t, r) {
		t.Run(s.name, func(t *testing.T) {
			differ := 0
			for i, text := range r.Texts {
				plain := s.want.Plain[i]
				if plain == nil {
					plain = s.want.Special[i]
				}
				for _, c := range []struct {
					mode   string
					encode func(string) ([]engine.Token, error)
					want   []engine.Token
				}{{"special", s.tok.EncodeSpecial, s.want.Special[i]}, {"plain", s.tok.Encode, plain}} {
					got, err := c.encode(text)
					if err != nil {
						t.Fatalf("%s %q: %v", c.mode, text, err)
					}
					if !slices.Equal(got, c.want) {
						if differ++; differ < 10 {
							t.Errorf("%s %q:\n got %s\nwant %s", c.mode, text, spell(s.tok, got), spell(s.tok, c.want))
						}
					}
				}
			}
			if differ > 0 {
				t.Errorf("%d of %d differ", differ, 2*len(r.Texts))
			}
		})
	}
}

func TestDecodeAgreesWithReference(t *testing.T) {
	r := loadRecording(t)
	for _, s := range subjects(t, r) {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range s.want.Decode {
				if got := s.tok.Decode(c.IDs); got != c.Text {
					t.Errorf("Decode(%v) = %q, want %q", c.IDs, got, c.Text)
				}
				if got := s.tok.DecodeSpecial(c.IDs); got != c.Special {
					t.Errorf("DecodeSpecial(%v) = %q, want %q", c.IDs, got, c.Special)
				}
			}
		})
	}
}

// spell shows ids with their pieces.
func spell(t *token.Tokenizer, ids []engine.Token) string {
	var b bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&b, "%d:%q ", id, t.Piece(id))
	}
	return b.String()
}
