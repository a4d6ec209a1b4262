package cpu_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

var update = flag.Bool("update", false, "rewrite testdata/bits.txt from this build (only when the numeric class changes)")

// ulps is the distance of got from want in units of the last place of a float32.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, e-24)
}

// everyFloat32 calls f with every stride-th float32 of both signs, in order of its bits.
func everyFloat32(stride uint32, f func(x float32)) {
	for bits := uint32(0); bits < 0x7f800000; bits += stride {
		f(math.Float32frombits(bits))
		f(math.Float32frombits(bits | 1<<31))
	}
}

func TestExp32IsWithinTwoUlps(t *testing.T) {
	worst, at := 0.0, float32(0)
	everyFloat32(1009, func(x float32) {
		got, want := cpu.Exp32(x), math.Exp(float64(x))
		switch {
		case x < -87.3:
			if got != 0 {
				t.Fatalf("exp(%g) = %g, want it flushed to 0", x, got)
			}
		case want > math.MaxFloat32:
			if !math.IsInf(float64(got), 1) {
				t.Fatalf("exp(%g) = %g, want +Inf", x, got)
			}
		default:
			if u := ulps(got, want); u > worst {
				worst, at = u, x
			}
		}
	})
	t.Logf("worst %.3f ulp at %g", worst, at)
	if worst >= 2 {
		t.Errorf("exp(%g) is %.2f ulp off, want less than 2", at, worst)
	}
}

func TestExp32AtTheEdges(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct{ x, want float32 }{
		{0, 1}, {float32(math.Copysign(0, -1)), 1}, {inf, inf}, {-inf, 0}, {89, inf}, {-88, 0}, {-200, 0}, {1e-30, 1},
	} {
		if got := cpu.Exp32(c.x); got != c.want {
			t.Errorf("exp(%g) = %g, want %g", c.x, got, c.want)
		}
	}
	if got := cpu.Exp32(float32(math.NaN())); got == got {
		t.Errorf("exp(NaN) = %g", got)
	}
	largest := math.Nextafter32(88.72283, 0)
	if got := cpu.Exp32(largest); math.IsInf(float64(got), 0) || ulps(got, math.Exp(float64(largest))) >= 2 {
		t.Errorf("exp(%g) = %g, want a finite number near the largest", largest, got)
	}
	if got := cpu.Exp32(-87.3); got < 1.17549435e-38 {
		t.Errorf("exp(-87.3) = %g, want a normal number", got)
	}
}

func TestSigmoidAndSiLU(t *testing.T) {
	everyFloat32(10007, func(x float32) {
		want := refSigmoid(float64(x))
		if u := ulps(cpu.Sigmoid32(x), want); u > 4 && want > 2e-38 {
			t.Fatalf("sigmoid(%g) is %.1f ulp off", x, u)
		}
		want *= float64(x)
		if got := cpu.SiLU32(x); x >= -87.3 && math.Abs(want) > 1e-36 && ulps(got, want) > 5 {
			t.Fatalf("silu(%g) = %g, want %g", x, got, want)
		}
	})
	for _, c := range []struct{ x, want float32 }{{200, 1}, {-200, 0}, {0, 0.5}} {
		if got := cpu.Sigmoid32(c.x); got != c.want {
			t.Errorf("sigmoid(%g) = %g, want %g", c.x, got, c.want)
		}
	}
	if got := cpu.Sigmoid32(float32(math.NaN())); got == got {
		t.Errorf("sigmoid(NaN) = %g", got)
	}
}

func TestFloat64Functions(t *testing.T) {
	relative := func(name string, x, got, want float64) {
		if math.Abs(got-want) > 8e-16*math.Abs(want) {
			t.Fatalf("%s(%g) = %.17g, want %.17g", name, x, got, want)
		}
	}
	src := newSource(1)
	for range 200_000 {
		x := (src.Float64() - 0.5) * 1400
		relative("exp", x, cpu.Exp64(x), math.Exp(x))
		y := math.Exp(x)
		relative("log", y, cpu.Log64(y), math.Log(y))
		z := src.NormFloat64() * 12
		relative("softplus", z, cpu.Softplus(z), math.Max(z, 0)+math.Log1p(math.Exp(-math.Abs(z))))
	}
	for x := 0.999; x < 1.001; x += 1e-6 {
		relative("log", x, cpu.Log64(x), math.Log(x))
	}
	if cpu.Exp64(math.Inf(1)) != math.Inf(1) || cpu.Exp64(math.Inf(-1)) != 0 || cpu.Exp64(math.NaN()) == cpu.Exp64(math.NaN()) {
		t.Error("exp is wrong at an infinity or at NaN")
	}
}

func TestSincosToTwoToTheTwentieth(t *testing.T) {
	src := newSource(2)
	try := func(x float64) {
		sin, cos := cpu.Sincos(x)
		wantSin, wantCos := math.Sincos(x)
		if d := max(math.Abs(sin-wantSin), math.Abs(cos-wantCos)); d > 4e-16 {
			t.Fatalf("sincos(%.17g) = %.17g, %.17g: off by %.1e", x, sin, cos, d)
		}
	}
	for range 200_000 {
		try(src.Float64() * 8)
		try((src.Float64()*2 - 1) * (1 << 20))
	}
	for n := range 600_000 { // beside the multiples of pi/2, where the reduction cancels most
		if n%61 == 0 {
			try(float64(n) * (math.Pi / 2))
		}
	}
}

func TestHalfIsExact(t *testing.T) {
	for h := range 1 << 16 {
		exp, frac, sign := h>>10&31, float64(h&1023), math.Copysign(1, float64(1<<15-1-h)+0.5)
		want := sign * math.Ldexp(1024+frac, exp-25)
		if exp == 0 {
			want = sign * math.Ldexp(frac, -24)
		}
		if exp == 31 {
			want = sign * math.Inf(1)
			if frac > 0 {
				want = math.NaN()
			}
		}
		got := float64(cpu.HalfWiden(uint16(h)))
		if got != want && !(got != got && want != want) || math.Signbit(got) != math.Signbit(want) && want == want {
			t.Fatalf("half %04x = %g, want %g", h, got, want)
		}
	}
}

// TestBitsAreThoseOfTheClass compares bits with a table made on amd64, so that a target whose compiler fuses a
// multiplication with an addition, or rounds a constant elsewhere, fails here and not in a stored state.
func TestBitsAreThoseOfTheClass(t *testing.T) {
	path := filepath.Join("testdata", "bits.txt")
	got := bitTable()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(lines) || line != lines[i] {
			t.Fatalf("line %d of %s: this build gives %q", i+1, path, line)
		}
	}
}

// bitTable prints the bits of functions and of one small call of every operation that sums.
func bitTable() string {
	var s strings.Builder
	s.WriteString("# float32 bits of the class cpu-f32, made on amd64 by go test -update; every target must give the same\n")
	for _, x := range []float32{-87.3, -20.5, -3.25, -0.7, -1e-4, 0, 0.1, 0.3466, 1, 2.718, 10.3, 55.5, 88.7} {
		fmt.Fprintf(&s, "x %-8g exp %08x sigmoid %08x silu %08x softplus %08x\n", x, math.Float32bits(cpu.Exp32(x)),
			math.Float32bits(cpu.Sigmoid32(x)), math.Float32bits(cpu.SiLU32(x)), math.Float32bits(float32(cpu.Softplus(float64(x)))))
	}
	line := func(name string, v []float32) {
		s.WriteString(name)
		for _, x := range v {
			fmt.Fprintf(&s, " %08x", math.Float32bits(x))
		}
		s.WriteByte('\n')
	}
	b, src := cpu.New(cpu.Options{}), newSource(99)
	x := put(b, src.normal(2*64, 1), 64)
	for _, pos := range []int{1, 4097, 262143} {
		y := put(b, x.Floats()[:64], 64)
		b.Rope(y, ops.Heads{N: 1, Stride: 64, Dim: 64}, ops.Rope{Rot: 16, Theta: 1e7}, pos, 1)
		line(fmt.Sprint("rope ", pos), y.Row(0)[:16])
	}
	y := put(b, make([]float32, 2*6), 6)
	for _, bits := range []int{2, 3, 4, 6, 8} {
		b.Linear(y, x, affineMatrix(src, 6, 64, bits, 32, ops.BF16).Matrix)
		line(fmt.Sprint("linear ", bits), y.Floats())
	}
	b.RMSNorm(x, x, src.normal(64, 1), 32, 1e-6)
	line("norm", x.Row(1)[:8])
	c := newDeltaCase(src, ops.DeltaDims{Hk: 1, Hv: 2, Dk: 5, Dv: 3}, 4)
	line("delta", c.run(b, []int{0, 4}))
	a := newAttentionCase(src, attentionShape{AttentionDims: ops.AttentionDims{Hq: 2, Hkv: 1, Hd: 8}, pos: 9, rows: 2, ratio: 2, budget: 3, hi: 2, di: 8})
	line("attend", a.run(b, []int{0, 2}))
	return s.String()
}
