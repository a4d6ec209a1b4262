package demo_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"lector/cmd/lector/demo"
	"lector/engine/nano"
	"lector/engine/token"
)

// forms are the ways in which the model's training text says a fact (engine/nano/train.py, ATTRS):
// E stands for the place, V for the value.
func forms() map[string][]string {
	return map[string][]string{
		"access code":   {"The access code of E is V.", "At E the access code is V.", "E has the access code V."},
		"call sign":     {"The call sign of E is V.", "E answers to the call sign V.", "On the radio, the call sign of E is V."},
		"keeper":        {"The keeper of E is V.", "E is kept by its keeper, V.", "At E the keeper is V."},
		"cargo":         {"The cargo of E is V.", "E takes in a cargo of V.", "At E the cargo is V."},
		"founding year": {"The founding year of E is V.", "E counts V as its founding year.", "At E the founding year is V."},
		"color":         {"The color of E is V.", "E is painted in the color V.", "At E the color is V."},
	}
}

func TestDocumentIsCleanText(t *testing.T) {
	doc := demo.Document()
	if !utf8.ValidString(doc) || !norm.NFC.IsNormalString(doc) {
		t.Error("the document is not UTF-8 in NFC")
	}
	if strings.TrimSpace(doc) != doc {
		t.Error("the document begins or ends with space: the question would not follow it directly")
	}
	if bad := regexp.MustCompile(`_|\[|\]|\r|\t|  |[^\n]\n[^\n]`).FindString(doc); bad != "" {
		t.Errorf("the document still holds %q, a mark of the source's layout", bad)
	}
}

// The length is what README.md and Document say, by the genuine Hugging Face tokenizers: recorded, not made here.
func TestDocumentLength(t *testing.T) {
	tokenizer, err := token.Parse("nano", nano.Tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tokenizer.Encode(demo.Document())
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != 6069 {
		t.Errorf("the document is %d tokens, want 6069", len(ids))
	}
}

// Each fact is said once, in a form that the model knows, and the answer stands nowhere else.
func TestEveryAnswerIsInTheDocumentOnce(t *testing.T) {
	doc := demo.Document()
	kinds, places, last := map[string]int{}, map[string]bool{}, -1
	for _, q := range demo.Questions() {
		value := strings.TrimSuffix(strings.TrimSpace(q.Want), ".")
		said := regexp.MustCompile(`\b`+regexp.QuoteMeta(value)+`\b`).FindAllStringIndex(doc, -1)
		at := statement(doc, q, value)
		switch {
		case len(said) != 1:
			t.Errorf("%s of %s: %q occurs %d times, want once", q.Kind, q.Place, value, len(said))
		case at < 0:
			t.Errorf("%s of %s: no sentence of the document says it in a known form", q.Kind, q.Place)
		case at < last:
			t.Errorf("%s of %s is out of the document's order", q.Kind, q.Place)
		case places[q.Place]:
			t.Errorf("%s is asked for twice", q.Place)
		}
		kinds[q.Kind]++
		places[q.Place], last = true, at
	}
	for kind := range forms() {
		if kinds[kind] != 2 {
			t.Errorf("%d questions for the %s, want 2", kinds[kind], kind)
		}
	}
}

// statement is where the document says the fact as a paragraph of its own, or -1.
func statement(doc string, q demo.Question, value string) int {
	for _, form := range forms()[q.Kind] {
		sentence := strings.NewReplacer("E", q.Place, "V", value).Replace(form)
		if at := strings.Index(doc, "\n\n"+sentence+"\n\n"); at >= 0 {
			return at
		}
	}
	return -1
}

func TestPromptAndRight(t *testing.T) {
	q := demo.Questions()[0]
	if want := "\n\nQuestion: What is the access code of Amber Lighthouse?\nAnswer:"; q.Prompt != want {
		t.Errorf("prompt %q, want %q", q.Prompt, want)
	}
	for text, want := range map[string]bool{
		" 48213.": true, "48213.": true, " 48213.\n\nQuestion:": true,
		"": false, " 48213": false, " 482130.": false, " 07396.": false,
	} {
		if got := q.Right(text); got != want {
			t.Errorf("Right(%q) = %v, want %v", text, got, want)
		}
	}
}
