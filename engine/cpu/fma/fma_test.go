package fma_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"lector/engine/cpu/fma"
)

// exact is x*y + z without any rounding, rounded once.
func exact(x, y, z float32) float32 {
	f := func(v float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(v)) }
	sum := new(big.Float).SetPrec(2000)
	sum.Mul(f(x), f(y)).Add(sum, f(z))
	got, _ := sum.Float32()
	return got
}

// Bits that meet a rounding at the wrong place: products whose low bits lie just beside half of a unit of the sum.
func TestFMARoundsOnce(t *testing.T) {
	src := rand.New(rand.NewPCG(1, 2))
	odd := func() float32 {
		switch src.IntN(4) {
		case 0: // few bits, any exponent
			return float32(math.Ldexp(float64(src.IntN(8)-4), src.IntN(250)-140))
		case 1: // 1 + small
			return float32(1 + math.Ldexp(float64(src.IntN(5)-2), -src.IntN(24)))
		case 2: // near the smallest
			return math.Float32frombits(uint32(src.IntN(1<<24)) | uint32(src.IntN(2))<<31)
		}
		return math.Float32frombits(src.Uint32())
	}
	n := 400_000
	if testing.Short() {
		n = 20_000
	}
	for range n {
		check(t, odd(), odd(), odd())
	}
	// z and x*y differ by about 2^24 to 2^54, so that the product decides ties and what lies beside them.
	for range n {
		x := math.Float32frombits(src.Uint32()&0x7fffff | 127<<23)
		y := math.Float32frombits(src.Uint32()&0x7fffff&^(1<<src.IntN(23)-1) | 127<<23)
		z := float32(math.Ldexp(1+float64(src.IntN(1<<23))/(1<<23), src.IntN(60)-5))
		if src.IntN(2) == 0 {
			z = -z
		}
		check(t, x, y, z)
	}
}

func check(t *testing.T, x, y, z float32) {
	t.Helper()
	if bad := x - x + y - y + z - z; bad != bad { // an infinity or none
		want, got := float32(math.FMA(float64(x), float64(y), float64(z))), fma.FMA(x, y, z)
		if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
			t.Fatalf("FMA(%x, %x, %x) = %x, want %x", x, y, z, got, want)
		}
		return
	}
	got, want := fma.FMA(x, y, z), exact(x, y, z)
	if got == 0 && want == 0 {
		return // the sign of an exact zero is checked by the kernels' tests
	}
	if math.Float32bits(got) != math.Float32bits(want) {
		t.Fatalf("FMA(%x, %x, %x) = %x, want %x", x, y, z, got, want)
	}
}
