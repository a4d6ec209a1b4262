package bfp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lector/engine/cpu/bfp"
	"lector/engine/cpu/fma"
	"lector/engine/ops"
	"lector/tests/generated"
)

// The assembly in the repository is what the generator writes.
func TestKernelsAreGenerated(t *testing.T) { generated.Kernels(t, "bfp", "engine/cpu/bfp") }

type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 24))} }

// rows are n rows of numbers, a few of them huge, tiny, subnormal or zero.
func (s source) rows(n, width int) fma.Rows {
	v := make([]float32, n*width)
	for i := range v {
		v[i] = s.Float32()*2 - 1
		if s.IntN(20) == 0 {
			v[i] *= []float32{0, 1e-42, 1e-38, 1e-30, 1e10, 1e30}[s.IntN(6)]
		}
	}
	return fma.Rows{Data: v, Step: width}
}

func (s source) matrix(out, in, bits, group int, side ops.Format) ops.Matrix {
	m := ops.Matrix{Name: "w", Out: out, In: in, Format: ops.Affine, Bits: bits, Group: group, Side: side, Data: make([]byte, out*in*bits/8)}
	for i := range m.Data {
		m.Data[i] = byte(s.Uint32())
	}
	m.Scales, m.Biases = s.sides(out*in/group, side), s.sides(out*in/group, side)
	return m
}

func (s source) sides(n int, f ops.Format) []byte {
	var b []byte
	for range n {
		v := math.Float32bits(s.Float32()*2 - 1)
		if f == ops.F32 {
			b = binary.LittleEndian.AppendUint32(b, v)
		} else {
			b = binary.LittleEndian.AppendUint16(b, uint16(v>>16))
		}
	}
	return b
}

// work is what a product takes.
type work struct {
	packed bfp.Packed
	panel  bfp.Panel
}

// product is x Wᵀ by set, for n rows.
func product(set bfp.Set, x fma.Rows, n int, m *ops.Matrix) []float32 {
	y := make([]float32, n*m.Out)
	new(work).multiply(set, y, x, n, m)
	return y
}

func (k *work) multiply(set bfp.Set, y []float32, x fma.Rows, n int, m *ops.Matrix) {
	set.Pack(&k.packed, n, rowsOf(x), m)
	for o := 0; o < m.Out; o += bfp.Outputs {
		outputs := min(bfp.Outputs, m.Out-o)
		set.Unpack(&k.panel, m, o, outputs)
		set.Multiply(fma.Rows{Data: y[o:], Step: m.Out}, &k.packed, &k.panel, outputs)
	}
}

func rowsOf(x fma.Rows) func(r int) []float32 {
	return func(r int) []float32 { return x.Data[r*x.Step:][:x.Step] }
}

// same fails at the first number whose bits differ. Any NaN is like any other.
func same(t *testing.T, what string, got, want []float32, out int) {
	t.Helper()
	for i, v := range want {
		if math.Float32bits(got[i]) != math.Float32bits(v) && (got[i] == got[i] || v == v) {
			t.Fatalf("%s: row %d, output %d is %g, want %g", what, i/out, i%out, got[i], v)
		}
	}
}

type shape struct{ out, in, bits, group, rows int }

func shapes() []shape {
	var list []shape
	for _, bits := range []int{2, 3, 4, 6, 8} {
		list = append(list, shape{64, 128, bits, 64, 3}, shape{33, 1088, bits, 64, 9}, shape{50, 256, bits, 32, 6}, shape{16, 768, bits, 128, 5},
			shape{7, 256, bits, 256, 1}, shape{128, 96, bits, 96, 4})
	}
	return list
}

// eachSet runs f on every set of kernels, and skips those that this processor lacks.
func eachSet(t *testing.T, f func(t *testing.T, set bfp.Set)) {
	for _, set := range []bfp.Set{bfp.AVX2, bfp.VNNI} {
		t.Run(set.String(), func(t *testing.T) {
			if !slices.Contains(bfp.Sets(), set) {
				t.Skip("no such device here: a processor with " + set.String())
			}
			f(t, set)
		})
	}
}

// TestSame holds the kernels to the bits of plain Go, with weights as stored and in tiles.
func TestSame(t *testing.T) { eachSet(t, isPlain) }

func isPlain(t *testing.T, set bfp.Set) {
	for i, c := range shapes() {
		for _, side := range []ops.Format{ops.BF16, ops.F32} {
			t.Run(fmt.Sprint(c, side), func(t *testing.T) {
				s := newSource(uint64(i))
				m, x := s.matrix(c.out, c.in, c.bits, c.group, side), s.rows(c.rows, c.in)
				want := product(bfp.Plain, x, c.rows, &m)
				same(t, "as stored", product(set, x, c.rows, &m), want, c.out)
				for _, across := range []int{16, 64} {
					if c.out%across == 0 {
						tiled := tiles(m, across)
						same(t, fmt.Sprint("in tiles of ", across), product(set, x, c.rows, &tiled), want, c.out)
					}
				}
			})
		}
	}
}

// tiles is a copy of m in tiles.
func tiles(m ops.Matrix, across int) ops.Matrix {
	m.Data, m.Scales, m.Biases = append([]byte(nil), m.Data...), append([]byte(nil), m.Scales...), append([]byte(nil), m.Biases...)
	fma.Widest().Arrange(&m, across, new(fma.Temp))
	return m
}

// TestFew holds the kernels for few rows to those for many.
func TestFew(t *testing.T) { eachSet(t, isMany) }

func isMany(t *testing.T, set bfp.Set) {
	for _, bits := range []int{4, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			s := newSource(uint64(bits + group))
			m := s.matrix(192, 384, bits, group, ops.BF16)
			tiled := tiles(m, set.Tile())
			if !set.SuitsFew(&tiled) {
				t.Fatalf("SuitsFew refuses %d bits", bits)
			}
			for n := 1; n <= bfp.FewRows; n++ {
				x := s.rows(n, m.In)
				var p bfp.Packed
				set.Pack(&p, n, rowsOf(x), &m)
				got := make([]float32, n*m.Out)
				set.Few(fma.Rows{Data: got, Step: m.Out}, &p, n, fma.Outputs{Matrix: &tiled, N: m.Out})
				same(t, fmt.Sprintf("%d rows, %d bits, groups of %d", n, bits, group), got, product(set, x, n, &m), m.Out)
			}
		}
	}
}

// TestNear holds the products to those of float64: a group's inputs are within 2^-22 of its largest.
func TestNear(t *testing.T) {
	for i, c := range shapes() {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := newSource(uint64(i))
			m, x := s.matrix(c.out, c.in, c.bits, c.group, ops.BF16), s.rows(c.rows, c.in)
			if !bfp.Suits(&m) {
				t.Fatal("Suits refuses it")
			}
			got, row := product(bfp.Widest(), x, c.rows, &m), make([]float32, c.in)
			for o := range c.out {
				fma.Decode(row, &m, o)
				for r := range c.rows {
					sum, size := exactly(x.Data[r*x.Step:][:c.in], row, c.group)
					if v := float64(got[r*c.out+o]); math.Abs(v-sum) > 4e-7*size*float64(int(1)<<c.bits) {
						t.Fatalf("row %d, output %d: %g, in float64 %g of %g", r, o, v, sum, size)
					}
				}
			}
		})
	}
}

// exactly is a product, and what its error is to be seen beside: each group's inputs as large as its largest.
func exactly(x, w []float32, group int) (sum, size float64) {
	for g := 0; g < len(x); g += group {
		largest := 0.0
		for i, v := range x[g : g+group] {
			sum += float64(v) * float64(w[g+i])
			largest = max(largest, math.Abs(float64(v)))
		}
		size += largest * math.Sqrt(float64(group))
	}
	return sum, size
}

// TestWhole: whole numbers that fit are multiplied without any error.
func TestWhole(t *testing.T) {
	s := newSource(7)
	m := s.matrix(40, 128, 4, 64, ops.F32)
	for i := range len(m.Scales) / 4 {
		binary.LittleEndian.PutUint32(m.Scales[4*i:], math.Float32bits(1))
		binary.LittleEndian.PutUint32(m.Biases[4*i:], math.Float32bits(-8))
	}
	x, row := s.rows(5, m.In), make([]float32, m.In)
	for i := range x.Data {
		x.Data[i] = float32(s.IntN(2001) - 1000)
	}
	got := product(bfp.Widest(), x, 5, &m)
	for o := range m.Out {
		fma.Decode(row, &m, o)
		for r := range 5 {
			want := 0
			for k, w := range row {
				want += int(w) * int(x.Data[r*x.Step+k])
			}
			if got[r*m.Out+o] != float32(want) {
				t.Fatalf("row %d, output %d: %g, want %d", r, o, got[r*m.Out+o], want)
			}
		}
	}
}

// TestNotFinite: an infinity or a NaN makes its row NaN, and no other.
func TestNotFinite(t *testing.T) {
	for _, set := range []bfp.Set{bfp.Plain, bfp.Widest()} {
		s := newSource(8)
		m := s.matrix(32, 128, 4, 64, ops.BF16)
		for i, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
			x := s.rows(4, m.In)
			want := product(set, x, 4, &m)
			x.Data[2*x.Step+40*i] = float32(v)
			got := product(set, x, 4, &m)
			for at, y := range got {
				if at/m.Out == 2 && y == y {
					t.Fatalf("output %d of a row with %g is %g", at%m.Out, v, y)
				}
			}
			copy(got[2*m.Out:3*m.Out], want[2*m.Out:])
			same(t, "the rows beside it", got, want, m.Out)
		}
	}
}

// TestAlone holds that a row's result does not depend on the rows beside it.
func TestAlone(t *testing.T) {
	s := newSource(1)
	m := s.matrix(48, 640, 4, 64, ops.BF16)
	const n = 11
	x := s.rows(n, m.In)
	whole := product(bfp.Widest(), x, n, &m)
	for r := range n {
		same(t, fmt.Sprint("row ", r), product(bfp.Widest(), fma.Rows{Data: x.Data[r*x.Step:], Step: x.Step}, 1, &m), whole[r*m.Out:(r+1)*m.Out], m.Out)
	}
}

func BenchmarkMultiply(b *testing.B) {
	for _, c := range []shape{{512, 1024, 4, 64, 16}, {512, 1024, 4, 64, 256}, {1024, 1024, 4, 64, 160}, {1024, 4096, 4, 64, 160}, {1024, 512, 4, 64, 160}, {1024, 256, 4, 64, 160}, {1024, 128, 4, 64, 160}, {1024, 64, 4, 64, 160}} {
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			s := newSource(2)
			m, x := s.matrix(c.out, c.in, c.bits, c.group, ops.BF16), s.rows(c.rows, c.in)
			y, k := make([]float32, c.rows*c.out), new(work)
			for b.Loop() {
				k.multiply(bfp.Widest(), y, x, c.rows, &m)
			}
			b.ReportMetric(2*float64(b.N)*float64(c.rows*c.in*c.out)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func BenchmarkFew(b *testing.B) {
	s := newSource(3)
	m := s.matrix(8192, 1024, 4, 64, ops.BF16)
	m = tiles(m, bfp.Widest().Tile())
	for _, n := range []int{1, 2, 4} {
		x, y := s.rows(n, m.In), fma.Rows{Data: make([]float32, n*m.Out), Step: m.Out}
		bytes := int64(len(m.Data) + len(m.Scales) + len(m.Biases))
		b.Run(fmt.Sprint("bfp", n), func(b *testing.B) {
			var p bfp.Packed
			b.SetBytes(bytes)
			for b.Loop() {
				bfp.Widest().Pack(&p, n, rowsOf(x), &m)
				bfp.Widest().Few(y, &p, n, fma.Outputs{Matrix: &m, N: m.Out})
			}
		})
		b.Run(fmt.Sprint("chains", n), func(b *testing.B) {
			if !fma.Widest().SuitsFew(&m) {
				b.Skip("no such device here: a processor with AVX-512")
			}
			b.SetBytes(bytes)
			for b.Loop() {
				fma.Widest().FewTiles(y, x, n, fma.Outputs{Matrix: &m, N: m.Out})
			}
		})
	}
}
