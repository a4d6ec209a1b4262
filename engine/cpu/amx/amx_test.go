package amx_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"lector/engine/cpu/amx"
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

type source struct{ *rand.Rand }

// rows are n rows of numbers, a few of them huge, tiny, subnormal or zero.
func (s source) rows(n, width int) fma.Rows {
	v := make([]float32, n*width)
	for i := range v {
		v[i] = s.Float32()*2 - 1
		if s.IntN(20) == 0 {
			v[i] *= []float32{0, 1e-42, 1e-38, 1e-30, 1e10}[s.IntN(5)]
		}
	}
	return fma.Rows{Data: v, Step: width}
}

// plainRows are rows of numbers of one size.
func (s source) plainRows(n, width int) fma.Rows {
	v := make([]float32, n*width)
	for i := range v {
		v[i] = s.Float32()*2 - 1
	}
	return fma.Rows{Data: v, Step: width}
}

func (s source) matrix(f ops.Format, out, in, bits, group int) ops.Matrix {
	m := ops.Matrix{Name: "w", Out: out, In: in, Format: f, Bits: bits, Group: group, Side: ops.BF16}
	if f == ops.BF16 {
		m.Data = s.bf16(out * in)
		return m
	}
	m.Data = make([]byte, out*in*bits/8)
	for i := range m.Data {
		m.Data[i] = byte(s.Uint32())
	}
	m.Scales, m.Biases = s.bf16(out*in/group), s.bf16(out*in/group)
	return m
}

func (s source) bf16(n int) []byte {
	var b []byte
	for range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(s.Float32()*2-1)>>16))
	}
	return b
}

// work is what a product takes.
type work struct {
	packed amx.Packed
	panel  amx.Panel
	temp   amx.Temp
}

// product is x Wᵀ by set.
func product(set amx.Set, x fma.Rows, n int, m *ops.Matrix) []float32 {
	y := make([]float32, n*m.Out)
	new(work).multiply(set, y, x, n, m)
	return y
}

func (k *work) multiply(set amx.Set, y []float32, x fma.Rows, n int, m *ops.Matrix) {
	set.Pack(&k.packed, n, rowsOf(x), m)
	for o := 0; o < m.Out; o += amx.Outputs {
		outputs := min(amx.Outputs, m.Out-o)
		set.Unpack(&k.panel, m, o, outputs)
		set.Multiply(&k.packed, &k.panel, &k.temp, func(r int, products *[amx.Outputs]float32) {
			copy(y[r*m.Out+o:], products[:outputs])
		})
	}
}

func rowsOf(x fma.Rows) func(r int) []float32 {
	return func(r int) []float32 { return x.Data[r*x.Step:][:x.Step] }
}

type shape struct {
	format            ops.Format
	out, in           int
	bits, group, rows int
}

func shapes() []shape {
	list := []shape{{ops.BF16, 64, 128, 0, 0, 5}, {ops.BF16, 40, 640, 0, 0, 33}, {ops.BF16, 7, 64, 0, 0, 1}}
	for _, bits := range []int{2, 3, 4, 6, 8} {
		list = append(list, shape{ops.Affine, 64, 128, bits, 64, 3}, shape{ops.Affine, 33, 1088, bits, 64, 17}, shape{ops.Affine, 50, 256, bits, 32, 70},
			shape{ops.Affine, 16, 768, bits, 128, 32})
	}
	return list
}

// TestSame holds the tile registers to the bits of plain Go.
func TestSame(t *testing.T) {
	if !amx.Here() {
		t.Skip("no such device here: a processor with the tile registers of AMX, and a system that lends them")
	}
	for i, c := range shapes() {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := source{rand.New(rand.NewPCG(uint64(i), 1))}
			m, x := s.matrix(c.format, c.out, c.in, c.bits, c.group), s.rows(c.rows, c.in)
			want, got := product(amx.Plain, x, c.rows, &m), product(amx.Tiles, x, c.rows, &m)
			for i := range want {
				if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
					t.Fatalf("row %d, output %d: tiles give %g, plain Go %g", i/c.out, i%c.out, got[i], want[i])
				}
			}
		})
	}
}

// TestNear holds the products to those of float64.
func TestNear(t *testing.T) {
	for i, c := range shapes() {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := source{rand.New(rand.NewPCG(uint64(i), 2))}
			m, x := s.matrix(c.format, c.out, c.in, c.bits, c.group), s.rows(c.rows, c.in)
			if !amx.Suits(&m) {
				t.Fatal("Suits refuses it")
			}
			got, row := product(amx.Plain, x, c.rows, &m), make([]float32, c.in)
			for o := range c.out {
				fma.Decode(row, &m, o)
				for r := range c.rows {
					var sum, size float64
					for k, w := range row {
						v := float64(x.Data[r*x.Step+k])
						sum, size = sum+v*float64(w), size+math.Abs(v)*largest(&m)
					}
					if v := float64(got[r*c.out+o]); math.Abs(v-sum) > 2e-6*size {
						t.Fatalf("row %d, output %d: %g, in float64 %g of %g", r, o, v, sum, size)
					}
				}
			}
		})
	}
}

// largest is the most that a scaled code or a bias of m is: what cancels in a weight is rounded before it does.
func largest(m *ops.Matrix) float64 {
	if m.Format == ops.BF16 {
		return 1
	}
	return float64(int(1) << (m.Bits - 1))
}

// TestAlone holds that a row's result does not depend on the rows beside it.
func TestAlone(t *testing.T) {
	set := amx.Plain
	if amx.Here() {
		set = amx.Tiles
	}
	s := source{rand.New(rand.NewPCG(1, 3))}
	for _, m := range []ops.Matrix{s.matrix(ops.Affine, 48, 640, 4, 64), s.matrix(ops.BF16, 48, 640, 0, 0)} {
		const n = 45
		x := s.rows(n, m.In)
		whole := product(set, x, n, &m)
		for r := range n {
			one := product(set, fma.Rows{Data: x.Data[r*x.Step:], Step: x.Step}, 1, &m)
			for o, v := range one {
				if math.Float32bits(v) != math.Float32bits(whole[r*m.Out+o]) {
					t.Fatalf("row %d, output %d: %g alone, %g among others", r, o, v, whole[r*m.Out+o])
				}
			}
		}
	}
}

func BenchmarkMultiply(b *testing.B) {
	if !amx.Here() {
		b.Skip("no tiles")
	}
	for _, c := range []shape{{ops.Affine, 512, 1024, 4, 64, 256}, {ops.Affine, 256, 1024, 4, 64, 32}, {ops.Affine, 256, 1024, 4, 64, 1}, {ops.BF16, 256, 1024, 0, 0, 256}} {
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			s := source{rand.New(rand.NewPCG(1, 4))}
			m, x := s.matrix(c.format, c.out, c.in, c.bits, c.group), s.plainRows(c.rows, c.in)
			y, k := make([]float32, c.rows*c.out), new(work)
			for b.Loop() {
				k.multiply(amx.Tiles, y, x, c.rows, &m)
			}
			b.ReportMetric(2*float64(b.N)*float64(c.rows*c.in*c.out)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

// TestFew holds the kernels for few rows to those for many.
func TestFew(t *testing.T) {
	if !amx.Here() {
		t.Skip("no such device here: a processor with the tile registers of AMX, and a system that lends them")
	}
	s := source{rand.New(rand.NewPCG(1, 5))}
	for _, out := range []int{16, 64, 208} {
		m := s.matrix(ops.Affine, out, 640, 4, 64)
		fma.Widest().Arrange(&m, 16, new(fma.Temp))
		for n := 1; n <= amx.FewRows; n++ {
			x := s.rows(n, m.In)
			want := product(amx.Tiles, x, n, &m)
			var f amx.Few
			f.Pack(n, rowsOf(x), &m)
			f.Outputs(&m, 0, out, func(r, o int, products []float32) {
				for j, v := range products {
					if w := want[r*out+o+j]; math.Float32bits(v) != math.Float32bits(w) {
						t.Fatalf("%d rows, row %d, output %d of %d: %g, among many %g", n, r, o+j, out, v, w)
					}
				}
			})
		}
	}
}

func BenchmarkFew(b *testing.B) {
	if !amx.Here() {
		b.Skip("no tiles")
	}
	s := source{rand.New(rand.NewPCG(1, 6))}
	m := s.matrix(ops.Affine, 8192, 1024, 4, 64)
	fma.Widest().Arrange(&m, 16, new(fma.Temp))
	for _, n := range []int{1, 4} {
		x, y := s.plainRows(n, m.In), make([]float32, n*m.Out)
		b.Run(fmt.Sprint("amx", n), func(b *testing.B) {
			var f amx.Few
			b.SetBytes(int64(len(m.Data)))
			for b.Loop() {
				f.Pack(n, rowsOf(x), &m)
				f.Outputs(&m, 0, m.Out, func(r, o int, products []float32) { copy(y[r*m.Out+o:], products) })
			}
		})
		b.Run(fmt.Sprint("chains", n), func(b *testing.B) {
			var t fma.Temp
			b.SetBytes(int64(len(m.Data)))
			for b.Loop() {
				for o := 0; o < m.Out; o += fma.FewOutputs {
					fma.Widest().Few(fma.Rows{Data: y[o:], Step: m.Out}, x, n, fma.Outputs{Matrix: &m, Row: o, N: fma.FewOutputs}, &t)
				}
			}
		})
	}
}
