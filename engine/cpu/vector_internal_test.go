package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// vectorCase are inputs of one length, and what an operation may write to; odd numbers are among the floats.
type vectorCase struct {
	n       int
	x, y, z []float32 // [4, n + 3]: rows of n floats, n + 3 apart
	words   []uint16  // [n]: halves, bf16
	codes   []int8    // [n]
	tokens  []int32   // of the four rows, in another order
}

func newVectorCase(n int) *vectorCase {
	src := rand.New(rand.NewPCG(uint64(n), 5))
	odd := []float32{0, float32(math.Copysign(0, -1)), 88.7, -87.29, -87.31, -120, 1e-30, -1e-42, 3e38, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	floats := func() []float32 {
		v := make([]float32, 4*(n+3))
		for i := range v {
			if v[i] = float32(src.NormFloat64() * 20); src.IntN(40) == 0 {
				v[i] = odd[src.IntN(len(odd))]
			}
		}
		return v
	}
	c := &vectorCase{n: n, x: floats(), y: floats(), z: floats(), words: make([]uint16, n), codes: make([]int8, n), tokens: []int32{2, 0, 3, 1, 2}}
	for i := range c.words {
		c.words[i], c.codes[i] = uint16(src.Uint32()), int8(src.Uint32())
	}
	return c
}

// rows are the four of v.
func (c *vectorCase) rows(v []float32) fma.Rows { return fma.Rows{Data: v, Step: c.n + 3} }

func (c *vectorCase) bytes() []byte {
	b := make([]byte, 0, 2*c.n)
	for _, w := range c.words {
		b = append(b, byte(w), byte(w>>8))
	}
	return b
}

// vectorOps are operations with kernels. Each writes to y, and returns what else it computed.
func vectorOps() map[string]func(v vector, c *vectorCase) float64 {
	return map[string]func(v vector, c *vectorCase) float64{
		"sigmoid":    func(v vector, c *vectorCase) float64 { v.sigmoid(c.y[:c.n], 0.25, 2); return 0 },
		"silu":       func(v vector, c *vectorCase) float64 { v.silu(c.y[:c.n], 0.5); return 0 },
		"swiGLU":     func(v vector, c *vectorCase) float64 { v.swiGLU(c.y[:c.n], c.x, c.z); return 0 },
		"addScaled":  func(v vector, c *vectorCase) float64 { v.addScaled(c.y[:c.n], c.x, 0.7); return 0 },
		"addProduct": func(v vector, c *vectorCase) float64 { v.addProduct(c.y[:c.n], c.x, c.z); return 0 },
		"normScale":  func(v vector, c *vectorCase) float64 { v.normScale(c.y[:c.n], c.x, c.z, 0.3); return 0 },
		"sumLanes":   func(v vector, c *vectorCase) float64 { return v.sumLanes(c.x[:c.n], c.z[:c.n]) },
		"expBelow":   func(v vector, c *vectorCase) float64 { v.expBelow(below(c.y[:c.n]), 40); return 0 },
		"softmax":    func(v vector, c *vectorCase) float64 { return v.softmaxLanes(below(c.y[:c.n]), 1.5) },
		"positives":  func(v vector, c *vectorCase) float64 { v.sumPositives(c.y[:c.n], c.rows(c.x), 3, 0.2); return 0 },
		"mix": func(v vector, c *vectorCase) float64 {
			v.mixStreams(c.y[:c.n], c.rows(c.x), c.rows(c.z), 4)
			clear(c.x) // what it held is lost
			return 0
		},
		"bf16": func(v vector, c *vectorCase) float64 {
			v.decodeRow(c.y[:c.n], &ops.Matrix{Format: ops.BF16, Out: 1, In: c.n, Data: c.bytes()}, 0)
			return 0
		},
		"halves": func(v vector, c *vectorCase) float64 {
			for i := v.widenHalves(c.y[:c.n], c.words); i < c.n; i++ {
				c.y[i] = fma.Widen(c.words[i])
			}
			return 0
		},
		"codes": func(v vector, c *vectorCase) float64 {
			for i := v.widenCodes(c.y[:c.n], c.codes, c.words); i < c.n; i++ {
				c.y[i] = float32(c.codes[i]) * fma.Widen(c.words[i/ops.RowGroup])
			}
			return 0
		},
		"codes of 4 bits": func(v vector, c *vectorCase) float64 {
			b := c.bytes()
			for i := v.unpack4(c.y[:c.n], b, 0.3, -2); i < c.n; i++ {
				c.y[i] = affine(uint32(b[i/2]>>(i%2*4)&15), 0.3, -2)
			}
			return 0
		},
		"score of 1": scoring(1),
		"score of 2": scoring(2),
		"score of 3": scoring(3),
		"sumValues": func(v vector, c *vectorCase) float64 {
			v.sumValues(c.y[:c.n], c.z, c.x, c.tokens, c.n+3)
			return 0
		},
		"addColumns": func(v vector, c *vectorCase) float64 {
			done := v.addColumns(c.y[:c.n], c.z, c.x, c.tokens, c.n+3)
			for i, t := range c.tokens {
				v.addScaled(c.y[done:c.n], c.x[int(t)*(c.n+3)+done:], c.z[i])
			}
			return 0
		},
		"decay": func(v vector, c *vectorCase) float64 {
			v.decayAndRead(c.y[:4*c.n], c.y[:4*c.n], c.x[:c.n], c.z[:4], 0.9)
			return float64(c.x[c.n/2])
		},
		"decay from elsewhere": func(v vector, c *vectorCase) float64 {
			t := make([]float32, c.n)
			v.decayAndRead(c.y[:4*c.n], c.x[:4*c.n], t, c.z[:4], 0.9)
			return float64(t[c.n/2])
		},
		"update": func(v vector, c *vectorCase) float64 {
			v.updateAndRead(c.y[:4*c.n], c.x[:c.n], c.z[4:4+c.n], c.z[:4], c.z[c.n:c.n+4])
			return float64(c.x[c.n-1])
		},
	}
}

// scoring is an operation that scores n keys of 16 dimensions with some queries.
func scoring(queries int) func(v vector, c *vectorCase) float64 {
	return func(v vector, c *vectorCase) float64 {
		qs, tokens := make([][]float32, queries), make([]int32, c.n)
		for i := range qs {
			qs[i] = c.z[i:][:16]
		}
		for i := range tokens {
			tokens[i] = int32(5 * i % (len(c.x)/2 - 8))
		}
		v.score(c.y[:queries*c.n], qs, c.x, tokens, 2)
		return 0
	}
}

// below makes none of x larger than 40, and none no number: so are the inputs of what has that done.
func below(x []float32) []float32 {
	for i, v := range x {
		if !(v <= 40) {
			x[i] = 40
		}
	}
	return x
}

// Every set of kernels that this processor has gives the bits of plain Go, for lengths with and without a ragged end and with
// numbers that are none, and writes nothing beside what it is given.
func TestVectorsAgree(t *testing.T) {
	for name, run := range vectorOps() {
		for _, n := range []int{4, 15, 16, 17, 31, 32, 33, 47, 48, 64, 83, 96, 128, 147} {
			want := newVectorCase(n)
			sum := run(plain, want)
			for v := plain + 1; v <= widest(); v++ {
				got := newVectorCase(n)
				if s := run(v, got); math.Float64bits(s) != math.Float64bits(sum) && (s == s || sum == sum) {
					t.Errorf("%s of %d, set %v: %x, plain Go %x", name, n, v, s, sum)
				}
				for what, pair := range map[string][2][]float32{"x": {got.x, want.x}, "y": {got.y, want.y}, "z": {got.z, want.z}} {
					if i := unlike(pair[0], pair[1]); i >= 0 {
						t.Errorf("%s of %d, set %v: element %d of %s is %x, plain Go %x", name, n, v, i, what, math.Float32bits(pair[0][i]), math.Float32bits(pair[1][i]))
					}
				}
			}
		}
	}
}

// unlike is the first element whose bits differ, all that are no numbers being alike, or -1.
func unlike(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return i
		}
	}
	return -1
}

// Every half is widened as plain Go does it.
func TestWidenHalvesOfAllSets(t *testing.T) {
	halves, got := make([]uint16, 1<<16), make([]float32, 1<<16)
	for i := range halves {
		halves[i] = uint16(i)
	}
	for v := avx2; v <= widest(); v++ {
		if n := v.widenHalves(got, halves); n != len(halves) {
			t.Fatalf("set %v widened %d", v, n)
		}
		for i, h := range halves {
			if want := fma.Widen(h); math.Float32bits(got[i]) != math.Float32bits(want) && (got[i] == got[i] || want == want) {
				t.Fatalf("set %v: half %04x is %x, want %x", v, h, math.Float32bits(got[i]), math.Float32bits(want))
			}
		}
	}
}

// TestWidestSet says which set a process chose, for the test that starts one.
func TestWidestSet(t *testing.T) { t.Log("set: " + fmt.Sprint(widest())) }

// A processor that lacks what the widest set needs gets a narrower one, with the same bits.
func TestMissingFeatures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("this is not amd64: other features")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]vector{
		"cpu.avx512f=off":                          avx2,
		"cpu.avx512f=off,cpu.fma=off":              avx,
		"cpu.avx512f=off,cpu.f16c=off":             avx,
		"cpu.avx512f=off,cpu.avx2=off":             avx,
		"cpu.avx512f=off,cpu.avx2=off,cpu.avx=off": plain,
		"cpu.all=off":                              plain,
	} {
		run := exec.Command(self, "-test.run=^(TestVectorsAgree|TestWidestSet|TestBitsAreThoseOfTheClass)$", "-test.short", "-test.v")
		run.Env = append(os.Environ(), "GODEBUG="+flags)
		out, err := run.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "set: "+min(want, widest()).String()+"\n") {
			t.Errorf("%s: %v, want %s\n%s", flags, err, want, out)
		}
	}
}
