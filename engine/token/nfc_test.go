package token

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// composing is what composes, decomposes, reorders and blocks. All of it is in the reference's tables.
var composing = []rune("aeousAEOzZüệÅ\u212b\u2126αωᾳίא\u05d1اوي\u0627कनक़\u0958か\u3099\u309a\u304bハ" +
	"\u0301\u0301\u0300\u0302\u0308\u0323\u0327\u0328\u031b\u0334\u0345\u0344\u0340\u0343\u05b0\u05bc\u05c1\u064b\u0653\u0654\u093c\u094d" +
	"\u1100\u1161\u11a8\u11a7\u1112\u1175\u11c2\uac00\uac01\ud7a3\u09c7\u09be\u09d7\u0bc6\u0bbe\u0dd9\u0dca\u0dcf\u1025\u102e\u037e\u2329\uf900" +
	"\U0001d15e\U0001d165\U00011099\U000110ba\U0002f800 x.\n")

// On runs that the Stream-Safe Text Format leaves alone the norm package is right.
func TestComposeAgreesWithNormOnShortRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.SampledFrom(composing), 0, 20).Draw(t, "text"))
		if got, want := composeNFC(s), norm.NFC.String(s); got != want {
			t.Fatalf("%+q: got %+q, want %+q", s, got, want)
		}
	})
}

// Longer runs than norm takes obey the same laws, and gain and lose no character that composition does not.
func TestComposeLongRuns(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"31 equal marks", "a" + strings.Repeat("\u0301", 31), "á" + strings.Repeat("\u0301", 30)},
		{"100 equal marks", "x" + strings.Repeat("\u0301", 100) + "y", "x" + strings.Repeat("\u0301", 100) + "y"},
		{"marks without a base", strings.Repeat("\u0301", 40), strings.Repeat("\u0301", 40)},
		{"40 of class 230, then one of 220", "a" + strings.Repeat("\u0301", 40) + "\u0323", "ạ" + strings.Repeat("\u0301", 40)},
		{"lower class from far behind", "q" + strings.Repeat("\u0345", 35) + "\u0301\u0334", "q\u0334\u0301" + strings.Repeat("\u0345", 35)},
		{"a long run after Hangul", "\u1100\u1161" + strings.Repeat("\u3099", 33) + "\u11a8", "가" + strings.Repeat("\u3099", 33) + "\u11a8"},
		{"Hangul of three parts", "\u1112\u1161\u11ab\u1100\u1173\u11af", "한글"},
		{"normal already", "e" + strings.Repeat("\u0334", 64), "e" + strings.Repeat("\u0334", 64)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := composeNFC(c.in); got != c.want {
				t.Errorf("composeNFC(%+q) = %+q, want %+q", c.in, got, c.want)
			}
		})
	}
}

// A long run is composed as if the marks had come sorted, and composing twice changes nothing.
func TestComposeIsIdempotentAndOrderFree(t *testing.T) {
	marks := []rune("\u0334\u031b\u0327\u0323\u0301\u0308\u0345")
	rapid.Check(t, func(t *rapid.T) {
		run := rapid.SliceOfN(rapid.SampledFrom(marks), 31, 70).Draw(t, "marks")
		once := composeNFC("u" + string(run))
		if twice := composeNFC(once); twice != once {
			t.Fatalf("%+q composes to %+q", once, twice)
		}
		if strings.ContainsRune(once, '\u034f') {
			t.Fatalf("%+q holds U+034F", once)
		}
		class := func(r rune) int { return int(norm.NFC.PropertiesString(string(r)).CCC()) }
		sorted := slices.Clone(run)
		slices.SortStableFunc(sorted, func(a, b rune) int { return class(a) - class(b) })
		if got := composeNFC("u" + string(sorted)); got != once {
			t.Fatalf("sorted %+q composes to %+q, unsorted to %+q", string(sorted), got, once)
		}
	})
}
