package cpu

import (
	"math"

	"lector/engine/cpu/fma"
)

// chooser is what choosing the highest of many scores works in.
type chooser struct {
	histogram [2048]int32
	sample    []float32
	near      []float32 // the scores that may be among the highest
	at        []int32   // and where they stand
}

const (
	// sampleStep is of how many scores one is in the sample.
	sampleStep = 16
	// sampledScores is from how many times the wanted number on a sample narrows the scores.
	sampledScores = 4
	// sampleLeast is how many of the wanted are in the sample at least, or it says too little.
	sampleLeast = 8
)

// choose appends to dst, ascending, the k < len(scores) highest scores, the lower index first where they are equal.
// Scores are not negative, so their bits order as they do.
func (b *chooser) choose(dst []int32, scores []float32, k int) []int32 {
	if k == 0 {
		return dst
	}
	if k >= sampleLeast*sampleStep && len(scores) >= sampledScores*k && b.narrow(scores, k) {
		from := len(dst)
		dst = b.highest(dst, b.near, k)
		for i, j := range dst[from:] {
			dst[from+i] = b.at[j]
		}
		return dst
	}
	return b.highest(dst, scores, k)
}

// narrow sets near to some scores of which the k highest are the k highest of all, and says whether it could. The sample
// gives a bound that is most likely, not surely, low enough.
func (b *chooser) narrow(scores []float32, k int) bool {
	b.sample = b.sample[:0]
	for i := sampleStep / 2; i < len(scores); i += sampleStep {
		b.sample = append(b.sample, scores[i])
	}
	share := k / sampleStep
	bound, _ := b.rank(b.sample, share+3*int(math.Sqrt(float64(share))))
	near, at, n := floats(&b.near, len(scores)), fma.Grow(&b.at, len(scores)), 0
	for i, v := range scores {
		if math.Float32bits(v) >= bound {
			near[n], at[n] = v, int32(i)
			n++
		}
	}
	b.near = near[:n]
	return n >= k
}

// highest appends the places of the k highest of scores.
func (b *chooser) highest(dst []int32, scores []float32, k int) []int32 {
	last, want := b.rank(scores, k)
	for j, v := range scores {
		bits := math.Float32bits(v)
		if bits > last || bits == last && want > 0 {
			dst = append(dst, int32(j))
			if bits == last {
				want--
			}
		}
	}
	return dst
}

// rank is the bits of the k-th highest score, and its rank among the scores that are equal to it: three counting passes.
func (b *chooser) rank(scores []float32, k int) (known uint32, want int32) {
	var mask uint32 // leading bits of the k-th highest score that are known
	want = int32(k) // its rank among the scores that share them
	for _, shift := range [...]uint{21, 10, 0} {
		digit := uint32(2047)
		if shift == 0 {
			digit = 1023
		}
		clear(b.histogram[:])
		for _, v := range scores {
			if bits := math.Float32bits(v); bits&mask == known {
				b.histogram[bits>>shift&digit]++
			}
		}
		d := digit
		for ; b.histogram[d] < want; d-- {
			want -= b.histogram[d]
		}
		known |= d << shift
		mask |= digit << shift
	}
	return known, want
}
