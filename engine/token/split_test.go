package token

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2/v2"
	"pgregory.net/rapid"
)

// nasty is what the alternatives of the split patterns disagree about. Its characters are old enough for every
// Unicode table.
var nasty = []rune("aAzsStTmMdDrReEvVlL\u017fßéüÅ中한क์กاא" + "'''''" + "\u2019\"._-!?=|<>€©😀👍\u200d\ufe0f" + "019٣१½Ⅷ²" +
	"     \t\t\v\f\u00a0\u0085\u2028\u3000\u200b" + "\n\n\n\r\r\r" + "\u0301\u0308\u093c\u094d\u0e48\u20dd\u3099" + "\x00\x1b\x1c\u007f\ufffd\U0010ffff")

func matches(t *rapid.T, re *regexp2.Regexp, s string) (out []string) {
	m, err := re.FindStringMatch(s)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		out = append(out, m.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The hand-written split is the pattern, as an engine that runs the pattern itself sees it.
func TestSplitIsThePattern(t *testing.T) {
	for _, pattern := range []string{patternLetters, patternMarks} {
		re := regexp2.MustCompile(pattern, regexp2.None)
		p, err := newSplitter(pattern)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			s := string(rapid.SliceOfN(rapid.SampledFrom(nasty), 0, 24).Draw(t, "text"))
			var got []string
			for rest := s; rest != ""; {
				n := p.next(rest)
				got = append(got, rest[:n])
				rest = rest[n:]
			}
			if want := matches(t, re, s); !slices.Equal(got, want) {
				t.Fatalf("%q: got %q, want %q", s, got, want)
			}
		})
	}
}

func TestUnknownPatternIsQuoted(t *testing.T) {
	pattern := `\p{N}{1,3}|\s+`
	if _, err := newSplitter(pattern); err == nil || !strings.Contains(err.Error(), `\\p{N}{1,3}|\\s+`) {
		t.Errorf("newSplitter(%q) = %v, want a refusal that quotes it", pattern, err)
	}
}

func TestTablesAreSorted(t *testing.T) {
	for name, spans := range map[string][]span{"class": classSpans, "mark": markSpans, "decomposing": decomposingSpans} {
		last := rune(-1)
		for _, s := range spans {
			if s.lo <= last || s.hi < s.lo || s.value == 0 {
				t.Errorf("%s: span %X-%X (%d) after %X", name, s.lo, s.hi, s.value, last)
			}
			last = s.hi
		}
	}
}
