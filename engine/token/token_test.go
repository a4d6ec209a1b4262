package token_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"lector/engine"
	"lector/engine/token"
)

const (
	patternLetters = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// object is a JSON object to be edited.
type object = map[string]any

// small is the smallest whole tokenizer.json: the bytes, one merge (b and c) and three added tokens.
func small() object {
	vocabulary := object{}
	next := 0x100
	for b := range 256 {
		letter := rune(b)
		if b <= ' ' || b >= 0x7F && b <= 0xA0 || b == 0xAD {
			letter = rune(next)
			next++
		}
		vocabulary[string(letter)] = b
	}
	vocabulary["bc"] = 256
	added := func(id int, content string, special bool) object {
		return object{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": special}
	}
	return object{
		"added_tokens":  []any{added(257, "<|im_start|>", true), added(258, "<|im_end|>", true), added(259, "<tool_call>", false)},
		"normalizer":    object{"type": "NFC"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []any{split(patternLetters), byteLevel()}},
		"decoder":       byteLevel(),
		"model":         object{"type": "BPE", "vocab": vocabulary, "merges": []any{[]any{"b", "c"}}},
	}
}

func split(pattern string) object {
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

func byteLevel() object {
	return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
}

func marshal(t testing.TB, o object) []byte {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parseSmall(t testing.TB, edit func(o object)) *token.Tokenizer {
	t.Helper()
	o := small()
	if edit != nil {
		edit(o)
	}
	tok, err := token.Parse("small", marshal(t, o))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func at(o object, path ...string) object {
	for _, p := range path {
		o = o[p].(object)
	}
	return o
}

func stageOf(o object, i int) object {
	return o["pre_tokenizer"].(object)["pretokenizers"].([]any)[i].(object)
}

func addedOf(o object, i int) object { return o["added_tokens"].([]any)[i].(object) }

// What this package does not do is refused by the name that the file gives it.
func TestParseRefusesByName(t *testing.T) {
	cases := []struct {
		name string
		edit func(o object)
		want string
	}{
		{"model", func(o object) { at(o, "model")["type"] = "Unigram" }, `model type "Unigram"`},
		{"no model", func(o object) { delete(o, "model") }, `model type ""`},
		{"dropout", func(o object) { at(o, "model")["dropout"] = 0.1 }, "dropout 0.1"},
		{"prefix", func(o object) { at(o, "model")["continuing_subword_prefix"] = "##" }, `prefix "##"`},
		{"ignore_merges", func(o object) { at(o, "model")["ignore_merges"] = true }, "ignore_merges"},
		{"normalizer", func(o object) { at(o, "normalizer")["type"] = "NFKC" }, `normalizer "NFKC"`},
		{"pattern", func(o object) { at(stageOf(o, 0), "pattern")["Regex"] = `\p{N}{1,3}` }, `split pattern "\\p{N}{1,3}"`},
		{"literal", func(o object) { stageOf(o, 0)["pattern"] = object{"String": "▁"} }, `literal "▁"`},
		{"behavior", func(o object) { stageOf(o, 0)["behavior"] = "Removed" }, `split behavior "Removed"`},
		{"no pre-tokenizer", func(o object) { o["pre_tokenizer"] = nil }, "pre-tokenizer (none)"},
		{"other pre-tokenizer", func(o object) { stageOf(o, 1)["type"] = "Digits" }, `pre-tokenizer "Sequence" "Split" "Digits"`},
		{"no ByteLevel", func(o object) { at(o, "pre_tokenizer")["pretokenizers"] = []any{split(patternLetters)} }, `pre-tokenizer "Sequence" "Split"`},
		{"prefix space", func(o object) { delete(stageOf(o, 1), "add_prefix_space") }, "add_prefix_space"},
		{"decoder", func(o object) { at(o, "decoder")["type"] = "Metaspace" }, `decoder "Metaspace"`},
		{"no decoder", func(o object) { delete(o, "decoder") }, "decoder (none)"},
		{"lstrip", func(o object) { addedOf(o, 1)["lstrip"] = true }, `"<|im_end|>"`},
		{"empty added", func(o object) { addedOf(o, 1)["content"] = "" }, "added token 258 is empty"},
		{"negative added", func(o object) { addedOf(o, 1)["id"] = -3 }, "-3"},
		{"shared added id", func(o object) { addedOf(o, 1)["id"] = 257 }, "share the id 257"},
		{"huge id", func(o object) { addedOf(o, 1)["id"] = 1 << 30 }, "1073741824"},
		{"negative id", func(o object) { at(o, "model", "vocab")["bc"] = -1 }, `"bc"`},
		{"shared id", func(o object) { at(o, "model", "vocab")["bc"] = 97 }, "share the id 97"},
		{"missing byte", func(o object) { delete(at(o, "model", "vocab"), "Ā"); at(o, "model", "vocab")["zz"] = 0 }, "byte 0x00"},
		{"no such letter", func(o object) { at(o, "model", "vocab")["中"] = 260 }, `"中"`},
		{"unknown merge", func(o object) { at(o, "model")["merges"] = []any{"b d"} }, `"b" and "d"`},
		{"merge of three", func(o object) { at(o, "model")["merges"] = []any{[]any{"b", "c", "d"}} }, "merge of 3 parts"},
		{"merge without a space", func(o object) { at(o, "model")["merges"] = []any{"bc"} }, `"bc"`},
		{"special by merging", func(o object) { addedOf(o, 0)["id"] = 256; addedOf(o, 0)["content"] = "bc" }, `spell the special token "bc"`},
		{"special of one byte", func(o object) { addedOf(o, 0)["id"] = 33; addedOf(o, 0)["content"] = "!" }, `spell the special token "!"`},
		{"added elsewhere", func(o object) { at(o, "model", "vocab")["<|im_end|>"] = 260 }, "258, and 260"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := small()
			c.edit(o)
			_, err := token.Parse("odd.json", marshal(t, o))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "odd.json") {
				t.Errorf("got %v, want a refusal that says %q and names the file", err, c.want)
			}
		})
	}
}

func TestParseTakes(t *testing.T) {
	same := parseSmall(t, nil)
	want, err := same.Encode("abcd")
	if err != nil || !slices.Equal(want, []engine.Token{'a', 256, 'd'}) {
		t.Fatalf("Encode = %v, %v", want, err)
	}
	for name, edit := range map[string]func(o object){
		"merges in one string":  func(o object) { at(o, "model")["merges"] = []any{"b c"} },
		"no normalizer":         func(o object) { o["normalizer"] = nil },
		"added in vocabulary":   func(o object) { at(o, "model", "vocab")["<|im_end|>"] = 258 },
		"a hole in the ids":     func(o object) { at(o, "model", "vocab")["cd"] = 300 },
		"null and empty fields": func(o object) { at(o, "model")["dropout"] = nil; at(o, "model")["end_of_word_suffix"] = "" },
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseSmall(t, edit).Encode("abcd")
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Encode = %v, %v, want %v", got, err, want)
			}
		})
	}
}

func TestNormalizerIsOptional(t *testing.T) {
	for _, c := range []struct {
		normalizer any
		want       string
	}{{object{"type": "NFC"}, "é"}, {nil, "e\u0301"}} {
		tok := parseSmall(t, func(o object) { o["normalizer"] = c.normalizer })
		ids, err := tok.Encode("e\u0301")
		if err != nil || tok.Decode(ids) != c.want {
			t.Errorf("normalizer %v: %q, %v, want %q", c.normalizer, tok.Decode(ids), err, c.want)
		}
	}
}

// A normalised added token is sought in the normalised text, any other in the text as it is.
func TestAddedTokensAndNormalisation(t *testing.T) {
	tok := parseSmall(t, func(o object) {
		addedOf(o, 2)["content"] = "<e\u0301>"
		addedOf(o, 2)["normalized"] = true
	})
	for text, want := range map[string]int{"<é>": 1, "<e\u0301>": 1, "<tool_call>": 11} {
		ids, err := tok.EncodeSpecial(text)
		if err != nil || len(ids) != want {
			t.Errorf("EncodeSpecial(%q) = %v, %v, want %d ids", text, ids, err, want)
		}
	}
}

func TestLongestAddedTokenWins(t *testing.T) {
	tok := parseSmall(t, func(o object) { addedOf(o, 2)["content"] = "<|im_start|>x" })
	ids, err := tok.EncodeSpecial("<|im_start|>y<|im_start|>x")
	if want := []engine.Token{257, 'y', 259}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("got %v, %v, want %v", ids, err, want)
	}
}

func TestEncodeRefusesWhatIsNotUTF8(t *testing.T) {
	tok := parseSmall(t, nil)
	for text, want := range map[string]string{
		"ab\xff":               "byte 0xff at offset 2",
		"\uFFFD\x80":           "byte 0x80 at offset 3",
		"é\xc3":                "byte 0xc3 at offset 2",
		"\xed\xa0\x80":         "byte 0xed at offset 0", // a surrogate
		"<|im_start|>\xc0\xaf": "byte 0xc0 at offset 12",
	} {
		for name, encode := range map[string]func(string) ([]engine.Token, error){"Encode": tok.Encode, "EncodeSpecial": tok.EncodeSpecial} {
			if ids, err := encode(text); err == nil || !strings.Contains(err.Error(), want) || ids != nil {
				t.Errorf("%s(%q) = %v, %v, want an error with %q", name, text, ids, err, want)
			}
		}
	}
	if ids, err := tok.Encode("\uFFFD"); err != nil || tok.Decode(ids) != "\uFFFD" {
		t.Errorf("a written U+FFFD: %v, %v", ids, err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if _, err := token.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Load of a missing file: %v, want an error with the path", err)
	}
	data := marshal(t, small())
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := token.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if got := tok.Digest(); got != hex.EncodeToString(sum[:]) {
		t.Errorf("Digest = %s", got)
	}
	if tok.Vocabulary() != 260 {
		t.Errorf("Vocabulary = %d, want 260", tok.Vocabulary())
	}
	if _, err := token.Parse("cut.json", data[:len(data)-9]); err == nil || !strings.Contains(err.Error(), "cut.json") {
		t.Errorf("a cut file: %v", err)
	}
}

func TestPieceAndAdded(t *testing.T) {
	tok := parseSmall(t, nil)
	for id, want := range map[engine.Token]string{'a': "a", 0xC3: "\xc3", 256: "bc", 257: "<|im_start|>", -1: "", 260: "", 1 << 30: ""} {
		if got := tok.Piece(id); got != want {
			t.Errorf("Piece(%d) = %q, want %q", id, got, want)
		}
	}
	if id, ok := tok.Added("<tool_call>"); !ok || id != 259 {
		t.Errorf("Added(<tool_call>) = %d, %v", id, ok)
	}
	if id, ok := tok.Added("bc"); ok || id != engine.NoToken {
		t.Errorf("Added(bc) = %d, %v: it is an ordinary piece", id, ok)
	}
}

// Promise 4 and 5, step by step.
func TestDecoderHoldsBackIncompleteCharacters(t *testing.T) {
	tok := parseSmall(t, nil)
	const start, end, call = 257, 258, 259
	cases := []struct {
		name string
		ids  []engine.Token
		want []string // of each Add, then of Flush
	}{
		{"euro", []engine.Token{0xE2, 0x82, 0xAC, 'x'}, []string{"", "", "€", "x", ""}},
		{"left open", []engine.Token{'a', 0xF0, 0x9F, 0x98}, []string{"a", "", "", "", "\uFFFD"}},
		{"broken off", []engine.Token{0xE2, 0x82, 'a'}, []string{"", "", "\uFFFDa", ""}},
		{"restarted", []engine.Token{0xE2, 0xE2, 0x82, 0xAC}, []string{"", "\uFFFD", "", "€", ""}},
		{"never valid", []engine.Token{0xFF, 0x80, 0xC0}, []string{"\uFFFD", "\uFFFD", "\uFFFD", ""}},
		{"special inside a character", []engine.Token{0xC3, start, 0xA9, end}, []string{"", "", "é", "", ""}},
		{"added inside a character", []engine.Token{0xC3, call, 0xA9}, []string{"", "\uFFFD<tool_call>", "\uFFFD", ""}},
		{"outside the vocabulary", []engine.Token{0xC3, -7, 1 << 30, 0xA9, 260}, []string{"", "", "", "é", "", ""}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := tok.Decoder()
			var got []string
			for _, id := range c.ids {
				got = append(got, d.Add(id))
			}
			got = append(got, d.Flush())
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if d.Flush() != "" || d.Add('z') != "z" {
				t.Error("the decoder does not start anew after Flush")
			}
			if all := tok.Decode(c.ids); all != strings.Join(c.want, "") {
				t.Errorf("Decode = %q", all)
			}
		})
	}
	if got := tok.DecodeSpecial([]engine.Token{start, 'a', end}); got != "<|im_start|>a<|im_end|>" {
		t.Errorf("DecodeSpecial = %q", got)
	}
}

// Promise 4: whatever the ids, every part of the stream is valid UTF-8.
func TestDecoderYieldsValidText(t *testing.T) {
	tok := loadNano(t)
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(rapid.Int32Range(0, 300), rapid.Int32Range(-2, int32(tok.Vocabulary())+2))
		ids := rapid.SliceOfN(id, 0, 30).Draw(t, "ids")
		d := tok.Decoder()
		var all strings.Builder
		for _, id := range ids {
			part := d.Add(id)
			if !utf8.ValidString(part) {
				t.Fatalf("Add(%d) = %q", id, part)
			}
			all.WriteString(part)
		}
		all.WriteString(d.Flush())
		if got := tok.Decode(ids); got != all.String() {
			t.Fatalf("Decode = %q, stream %q", got, all.String())
		}
	})
}

func TestOneLetterForLong(t *testing.T) {
	tok := loadNano(t)
	text := strings.Repeat("a", 1<<20)
	ids, err := tok.Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	if tok.Decode(ids) != text {
		t.Error("a million letters do not come back")
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := loadNano(t)
	texts := loadRecording(t).Texts[:200]
	want := make([][]engine.Token, len(texts))
	fresh := loadNano(t)
	for i, text := range texts {
		want[i], _ = fresh.Encode(text)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, text := range texts {
				if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("%q: %v, %v", text, got, err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzParse(f *testing.F) {
	f.Add(marshal(f, small()), "abc <|im_start|> e\u0301")
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{},"merges":[[]]},"added_tokens":[{}]}`), "")
	f.Add(bytes.Replace(marshal(f, small()), []byte("257"), []byte("2147483647"), 1), "x")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := token.Parse("fuzz", data)
		if err != nil {
			return
		}
		for _, encode := range []func(string) ([]engine.Token, error){tok.Encode, tok.EncodeSpecial} {
			if ids, err := encode(text); err == nil {
				_ = tok.DecodeSpecial(ids)
			}
		}
		if ids, err := tok.Chat([]engine.Message{{Role: "user", Content: text}}, true); err == nil {
			_ = tok.Decode(ids)
		}
	})
}

// Normal text comes back as it was, other text normalised, and none of it as a special token.
func FuzzRoundTrip(f *testing.F) {
	tok := loadNano(f)
	special := engine.Token(tok.Vocabulary())
	for _, name := range []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"} {
		id, ok := tok.Added(name)
		if !ok {
			f.Fatalf("nano has no %s", name)
		}
		special = min(special, id)
	}
	for _, text := range []string{"", "The keeper's log.\r\n\r\n", "<|im_start|>", "e\u0301", "a" + strings.Repeat("\u0323", 33), "\xff", "각👩‍👩‍👧\u0000"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := tok.Encode(text)
		if (err == nil) != utf8.ValidString(text) {
			t.Fatalf("Encode(%q): %v", text, err)
		}
		if err != nil {
			return
		}
		if i := slices.IndexFunc(ids, func(id engine.Token) bool { return id >= special }); i >= 0 {
			t.Fatalf("Encode(%q) holds the special token %d", text, ids[i])
		}
		got := tok.Decode(ids)
		if norm.NFC.IsNormalString(text) && got != text {
			t.Fatalf("%q comes back as %q", text, got)
		}
		again, err := tok.Encode(got)
		if err != nil || !slices.Equal(again, ids) {
			t.Fatalf("%q: ids %v, and %v of what came back (%v)", text, ids, again, err)
		}
	})
}

func ExampleTokenizer_Encode() {
	tok, err := token.Load("../nano/tokenizer.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode("The keeper said: <|im_end|>")
	fmt.Println(err, tok.Decode(ids))
	// Output: <nil> The keeper said: <|im_end|>
}
