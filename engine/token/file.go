package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"lector/engine"
)

// maxVocabulary bounds ids, so that a damaged file cannot ask for memory without end.
const maxVocabulary = 1 << 20

// Load reads a tokenizer.json.
func Load(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w", err)
	}
	return Parse(path, data)
}

// Parse reads the content of a tokenizer.json; name is for messages. What the file asks for and this package
// does not do is refused by name. Ignored, as the reference ignores them when it adds no special tokens: the
// post-processor, truncation and padding.
func Parse(name string, data []byte) (*Tokenizer, error) {
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer %s: %w", name, err)
	}
	sum := sha256.Sum256(data)
	t.name, t.digest = name, hex.EncodeToString(sum[:])
	return t, nil
}

func parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	t := &Tokenizer{special: make(map[engine.Token]bool, len(f.Added))}
	for _, step := range []func(*file) error{t.readStages, t.readModel, t.readAdded, t.readVocabulary, t.readMerges} {
		if err := step(&f); err != nil {
			return nil, err
		}
	}
	t.chat = t.findChatTokens()
	return t, nil
}

// file is the part of a tokenizer.json that ids depend on.
type file struct {
	Added        []addedEntry `json:"added_tokens"`
	Normalizer   *stage       `json:"normalizer"`
	PreTokenizer *stage       `json:"pre_tokenizer"`
	Decoder      *stage       `json:"decoder"`
	Model        model        `json:"model"`
}

type addedEntry struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// stage is a normaliser, a pre-tokenizer or a decoder: the type says which fields it has.
type stage struct {
	Type     string  `json:"type"`
	Stages   []stage `json:"pretokenizers"`
	Pattern  pattern `json:"pattern"`
	Behavior string  `json:"behavior"`
	Invert   bool    `json:"invert"`
	// The reference takes an absent switch for true.
	PrefixSpace *bool `json:"add_prefix_space"`
	UseRegex    *bool `json:"use_regex"`
}

type pattern struct {
	Regex  string `json:"Regex"`
	String string `json:"String"`
}

type model struct {
	Type         string           `json:"type"`
	Dropout      float64          `json:"dropout"`
	Prefix       string           `json:"continuing_subword_prefix"`
	Suffix       string           `json:"end_of_word_suffix"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocabulary   map[string]int32 `json:"vocab"`
	Merges       []mergeEntry     `json:"merges"`
}

// mergeEntry is written as "left right" or as ["left", "right"].
type mergeEntry [2]string

// UnmarshalJSON reads either form.
func (m *mergeEntry) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		var parts []string
		if err := json.Unmarshal(data, &parts); err != nil {
			return err
		}
		if len(parts) != 2 {
			return fmt.Errorf("merge of %d parts, not 2", len(parts))
		}
		*m = mergeEntry(parts)
		return nil
	}
	var joined string
	if err := json.Unmarshal(data, &joined); err != nil {
		return err
	}
	left, right, ok := strings.Cut(joined, " ")
	if !ok {
		return fmt.Errorf("merge %q has no space between its parts", joined)
	}
	*m = mergeEntry{left, right}
	return nil
}

// readStages checks everything around the model.
func (t *Tokenizer) readStages(f *file) error {
	if n := f.Normalizer; n != nil {
		if n.Type != "NFC" {
			return fmt.Errorf("normalizer %q is not supported, only NFC", n.Type)
		}
		t.nfc = true
	}
	p := f.PreTokenizer
	if p == nil || p.Type != "Sequence" || len(p.Stages) != 2 || p.Stages[0].Type != "Split" || p.Stages[1].Type != "ByteLevel" {
		return fmt.Errorf("pre-tokenizer %s is not supported, only Split followed by ByteLevel", p.names())
	}
	split, level := p.Stages[0], p.Stages[1]
	if split.Behavior != "Isolated" || split.Invert {
		return fmt.Errorf("split behavior %q (invert %t) is not supported, only Isolated", split.Behavior, split.Invert)
	}
	if isTrue(level.PrefixSpace) || isTrue(level.UseRegex) {
		return errors.New("pre-tokenizer ByteLevel with add_prefix_space or use_regex is not supported")
	}
	if f.Decoder == nil || f.Decoder.Type != "ByteLevel" {
		return fmt.Errorf("decoder %s is not supported, only ByteLevel", f.Decoder.names())
	}
	if literal := split.Pattern.String; literal != "" {
		return fmt.Errorf("split at the literal %q is not supported", literal)
	}
	var err error
	t.split, err = newSplitter(split.Pattern.Regex)
	return err
}

func isTrue(b *bool) bool { return b == nil || *b }

// names describes a stage and what it is made of for a message.
func (s *stage) names() string {
	if s == nil {
		return "(none)"
	}
	names := []string{strconv.Quote(s.Type)}
	for _, inner := range s.Stages {
		names = append(names, strconv.Quote(inner.Type))
	}
	return strings.Join(names, " ")
}

func (t *Tokenizer) readModel(f *file) error {
	m := &f.Model
	switch {
	case m.Type != "BPE":
		return fmt.Errorf("model type %q is not supported, only BPE", m.Type)
	case m.Dropout != 0:
		return fmt.Errorf("dropout %v would make ids random", m.Dropout)
	case m.Prefix != "" || m.Suffix != "":
		return fmt.Errorf("subword prefix %q and suffix %q are not supported", m.Prefix, m.Suffix)
	case m.IgnoreMerges:
		return errors.New("ignore_merges is not supported")
	}
	return nil
}

// readAdded makes the pieces, as many as there are ids, and puts the added tokens in their places.
func (t *Tokenizer) readAdded(f *file) error {
	size := 0
	for _, id := range f.Model.Vocabulary {
		size = max(size, int(id)+1)
	}
	for _, a := range f.Added {
		size = max(size, int(a.ID)+1)
	}
	if size > maxVocabulary {
		return fmt.Errorf("id %d is beyond the %d that are supported", size-1, maxVocabulary)
	}
	t.pieces = make([]string, size)
	var raw, normal []addedToken
	for _, a := range f.Added {
		if err := a.check(); err != nil {
			return err
		}
		if t.pieces[a.ID] != "" {
			return fmt.Errorf("added tokens %q and %q share the id %d", t.pieces[a.ID], a.Content, a.ID)
		}
		t.pieces[a.ID], t.special[a.ID] = a.Content, a.Special
		if a.Normalized {
			normal = append(normal, addedToken{t.normalise(a.Content), a.ID})
			continue
		}
		raw = append(raw, addedToken{a.Content, a.ID})
	}
	t.raw, t.normal = newMatcher(raw), newMatcher(normal)
	return nil
}

func (a addedEntry) check() error {
	switch {
	case a.ID < 0:
		return fmt.Errorf("added token %q has the id %d", a.Content, a.ID)
	case a.Content == "":
		return fmt.Errorf("added token %d is empty", a.ID)
	case a.SingleWord || a.LStrip || a.RStrip:
		return fmt.Errorf("added token %q: single_word, lstrip and rstrip are not supported", a.Content)
	}
	return nil
}

// readVocabulary puts the pieces of the model in their places. The file writes a byte as a character of the
// byte-level alphabet.
func (t *Tokenizer) readVocabulary(f *file) error {
	added := make(map[string]int32, len(f.Added))
	for _, a := range f.Added {
		added[a.Content] = a.ID
	}
	letters, values := byteAlphabet()
	for s, id := range f.Model.Vocabulary {
		if id < 0 || s == "" {
			return fmt.Errorf("piece %q has the id %d", s, id)
		}
		if own, ok := added[s]; ok {
			if own != id {
				return fmt.Errorf("added token %q has the id %d, and %d in the vocabulary", s, own, id)
			}
			continue
		}
		raw := make([]byte, 0, len(s))
		for _, r := range s {
			b, ok := values[r]
			if !ok {
				return fmt.Errorf("piece %q (id %d) has %q, which stands for no byte", s, id, r)
			}
			raw = append(raw, b)
		}
		if t.pieces[id] != "" {
			return fmt.Errorf("pieces %q and %q share the id %d", t.pieces[id], raw, id)
		}
		t.pieces[id] = string(raw)
	}
	for b, letter := range letters {
		id, ok := f.Model.Vocabulary[string(letter)]
		if !ok {
			return fmt.Errorf("vocabulary has no piece for the byte 0x%02x", b)
		}
		t.bytes[b] = id
	}
	return t.checkSpelling(slices.Values(t.bytes[:]))
}

// readMerges ranks the merges in the order of the file.
func (t *Tokenizer) readMerges(f *file) error {
	t.merges = make(merges, len(f.Model.Merges))
	for rank, m := range f.Model.Merges {
		left, okLeft := f.Model.Vocabulary[m[0]]
		right, okRight := f.Model.Vocabulary[m[1]]
		id, ok := f.Model.Vocabulary[m[0]+m[1]]
		if !okLeft || !okRight || !ok {
			return fmt.Errorf("merge %d of %q and %q: a part or the result is not in the vocabulary", rank, m[0], m[1])
		}
		t.merges[pair(left, right)] = merge{rank: int32(rank), id: id}
	}
	return t.checkSpelling(func(yield func(engine.Token) bool) {
		for _, m := range t.merges {
			if !yield(m.id) {
				return
			}
		}
	})
}

// checkSpelling refuses ids that plain text can reach and that are special: a document could forge them.
func (t *Tokenizer) checkSpelling(reached func(yield func(engine.Token) bool)) error {
	for id := range reached {
		if t.special[id] {
			return fmt.Errorf("plain text can spell the special token %q (id %d)", t.pieces[id], id)
		}
	}
	return nil
}

// byteAlphabet is the printable character that stands for each byte in a byte-level vocabulary, and back:
// printable Latin-1 for itself, the rest in order from U+0100.
func byteAlphabet() (letters [256]rune, values map[rune]byte) {
	values = make(map[rune]byte, 256)
	next := rune(0x100)
	for b := range 256 {
		letters[b] = rune(b)
		if b <= ' ' || b >= 0x7F && b <= 0xA0 || b == 0xAD {
			letters[b] = next
			next++
		}
		values[letters[b]] = byte(b)
	}
	return letters, values
}
