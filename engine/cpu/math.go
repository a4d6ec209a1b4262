package cpu

import "math"

// Our own elementary functions. Go's differ between targets (assembly on some, fused multiply-add on others); these are
// plain IEEE additions, multiplications and divisions in a written order, so that every target gives the same bits.

const (
	log2e  = 1.44269504088896340735992468100189214
	ln2Hi  = 0.693359375 // 9 bits: n*ln2Hi is exact for |n| < 2^14
	ln2Lo  = -2.12194440054690583e-4
	expMin = -87.3    // below it exp32 is 0: results under 1.22e-38 are flushed
	expMax = 88.72283 // above it exp32 is +Inf
	round  = 3 << 22  // adding and subtracting 1.5 * 2^23 rounds a small float32 to an integer, ties to even
)

// exp32 is e^x within 1 ulp (2 stated, tested) over [-87.3, 88.72283], 0 below, +Inf above, NaN for NaN.
func exp32(x float32) float32 {
	if !(x >= expMin) {
		if x < expMin {
			return 0
		}
		return x // NaN
	}
	if x > expMax {
		return float32(math.Inf(1))
	}
	n := float32(float32(x*log2e)+round) - round
	r := float32(x-float32(n*ln2Hi)) - float32(n*ln2Lo)
	// e^r = 1 + r + r² p(r), |r| <= ln2/2, p of degree 5
	p := float32(r*1.9875691500e-4) + 1.3981999507e-3
	p = float32(p*r) + 8.3334519073e-3
	p = float32(p*r) + 4.1665795894e-2
	p = float32(p*r) + 1.6666665459e-1
	p = float32(p*r) + 5.0000001201e-1
	p = float32(float32(p*float32(r*r))+r) + 1
	return math.Float32frombits(math.Float32bits(p) + uint32(int32(n))<<23)
}

// sigmoid is 1 / (1 + e^-x), or e^x / (1 + e^x) below zero: the exponential never overflows. The numerator is chosen by
// the sign's bit, not by a branch, which random signs would mispredict half of the time.
func sigmoid(x float32) float32 {
	bits := math.Float32bits(x)
	e := exp32(math.Float32frombits(bits | 1<<31))
	negative := uint32(int32(bits) >> 31)
	top := math.Float32bits(1)&^negative | math.Float32bits(e)&negative
	return math.Float32frombits(top) / (1 + e)
}

// silu is x sigmoid(x); NaN for -Inf.
func silu(x float32) float32 { return x * sigmoid(x) }

const (
	ln2Hi64 = 6.93147180369123816490e-01 // 33 bits
	ln2Lo64 = 1.90821492927058770002e-10
)

// exp64 is e^x within 4e-16 of itself for results that are normal, 0 below -708, +Inf above 709, NaN for NaN.
func exp64(x float64) float64 {
	switch {
	case x != x:
		return x
	case x < -708:
		return 0
	case x > 709:
		return math.Inf(1)
	}
	n := math.Floor(float64(x*log2e) + 0.5)
	r := float64(x-float64(n*ln2Hi64)) - float64(n*ln2Lo64)
	p := 1.0
	for i := 13; i >= 1; i-- { // Taylor: |r| <= 0.35, the first term left out is under 5e-18
		p = float64(float64(p*r)/float64(i)) + 1
	}
	return math.Float64frombits(math.Float64bits(p) + uint64(int64(n))<<52)
}

// log64 is the natural logarithm of a normal, positive x, within 4e-16 of itself.
func log64(x float64) float64 {
	bits := math.Float64bits(x)
	n := float64(int64(bits>>52) - 1023)
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52) // [1, 2)
	if m > math.Sqrt2 {
		m /= 2
		n++
	}
	// log m = 2 atanh(s), s = (m-1)/(m+1), |s| <= 0.172
	s := (m - 1) / (m + 1)
	z := float64(s * s)
	p := 0.0
	for i := 21; i >= 3; i -= 2 {
		p = float64(float64(p+1/float64(i)) * z)
	}
	return float64(n*ln2Hi64) + (float64(2*s) + (float64(float64(2*s)*p) + float64(n*ln2Lo64)))
}

// softplus is log(1 + e^x) in float64.
func softplus(x float64) float64 {
	if x > 0 {
		return x + log1p(exp64(-x))
	}
	return log1p(exp64(x))
}

// log1p is log(1 + y) for y in [0, 1]: what rounding 1 + y loses is put back as a factor.
func log1p(y float64) float64 {
	u := 1 + y
	if u == 1 {
		return y
	}
	return float64(log64(u)*y) / (u - 1)
}

const (
	pio2a = 1.57079632673412561417e+00 // the first 33 bits of pi/2
	pio2b = 6.07710050630396597660e-11 // the next 33
	pio2c = 2.02226624879595063154e-21 // the rest
)

// sincos returns sin and cos of a within 4e-16 for |a| <= 2^20: the multiple of pi/2 has at most 20 bits, so its
// products with the 33-bit parts are exact.
func sincos(a float64) (sin, cos float64) {
	n := math.Floor(float64(a*(2/math.Pi)) + 0.5)
	r := float64(float64(a-float64(n*pio2a))-float64(n*pio2b)) - float64(n*pio2c)
	z := float64(r * r)
	s, c := 1.0, 1.0
	for i := 16; i >= 2; i -= 2 { // Taylor: |r| <= 0.79, the first terms left out are under 1e-17
		s = 1 - float64(float64(s*z)/float64(i*(i+1)))
		c = 1 - float64(float64(c*z)/float64(i*(i-1)))
	}
	s = float64(s * r)
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}

// rsqrt is 1/sqrt(x), in float64; both steps are correctly rounded on every target.
func rsqrt(x float64) float64 { return 1 / math.Sqrt(x) }

// sqrt32 is the correctly rounded float32 square root: rounding the float64 root once more does not change it.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }
