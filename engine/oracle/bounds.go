package oracle

import "strings"

// Bounds are the relative L2 that a run may be off, by what makes it inexact.
type Bounds struct {
	// Free is for a run that makes its own choices, of experts and blocks, against the fixture. 0: every number
	// within Tolerance.
	Free float64
	// Forced is for a run that is held to the choices of an exact one: rounding is all that is left.
	Forced float64
}

// HalfBound is the relative L2 that a half-staged class may be off, flipped choices included.
const HalfBound = 2e-2

// BoundsOf says how far off the reference a class with a codec may be: the wider of its two parts. A choice that flips at
// a small margin costs up to 2e-2 and says nothing of the arithmetic, so where choices do flip that is what Free is.
//
//	float32, exact rows   Tolerance of every number; the choices are the reference's
//	half staging (-h1)    0.4 to 1.4e-3 in the logits while choices stay; some flip
//	rows in f16           a half is off by 2e-4 of itself (11 bits), which is all that a row may be; the logits, whose sums
//	                      average it out, are off by 4e-5. None of the fixtures' choices flips
//	rows in q8            a code is off by up to half of 1/127 of its group's largest: 5.5e-3 of a row of normal numbers,
//	                      and twice that with groups of very unequal numbers. 2.6e-3 in the logits, 9e-3 with flips
func BoundsOf(class, codec string) Bounds {
	var b Bounds
	widen := func(on bool, free, forced float64) {
		if on {
			b.Free, b.Forced = max(b.Free, free), max(b.Forced, forced)
		}
	}
	widen(strings.HasSuffix(class, "-h1"), HalfBound, 3e-3)
	widen(strings.Contains(codec, "kv-f16"), 1e-3, 1e-3)
	widen(strings.Contains(codec, "kv-q8"), 2e-2, 1e-2)
	widen(strings.Contains(codec, "state-bf16"), 2e-2, 5e-3)
	return b
}
