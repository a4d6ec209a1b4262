package fma_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 3))} }

// floats are n numbers between -1 and 1, a few of them huge, tiny or zero.
func (s source) floats(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = s.Float32()*2 - 1
		if s.IntN(50) == 0 {
			v[i] *= []float32{0, 1e-42, 1e-30, 1e30}[s.IntN(4)]
		}
	}
	return v
}

// matrix is a random stored matrix.
func (s source) matrix(f ops.Format, out, in, bits, group int, side ops.Format) ops.Matrix {
	m := ops.Matrix{Name: "w", Out: out, In: in, Format: f, Bits: bits, Group: group, Side: side}
	switch f {
	case ops.Affine:
		m.Data = make([]byte, out*in*bits/8)
		for i := range m.Data {
			m.Data[i] = byte(s.Uint32())
		}
		m.Scales, m.Biases = s.stored(side, out*in/group), s.stored(side, out*in/group)
	default:
		m.Data = s.stored(f, out*in)
	}
	return m
}

func (s source) stored(f ops.Format, n int) []byte {
	var b []byte
	for range n {
		v := math.Float32bits(s.Float32()*2 - 1)
		switch f {
		case ops.F32:
			b = binary.LittleEndian.AppendUint32(b, v)
		case ops.BF16:
			b = binary.LittleEndian.AppendUint16(b, uint16(v>>16))
		default: // a half between 2^-10 and 1
			b = binary.LittleEndian.AppendUint16(b, uint16(s.IntN(0x3c00-0x1400)+0x1400)|uint16(s.IntN(2))<<15)
		}
	}
	return b
}

func differs(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return i
		}
	}
	return -1
}

// inputs are sizes to test: fewer in a short test.
func inputs(all ...int) []int {
	if testing.Short() {
		return all[:len(all)-1]
	}
	return all
}

// Every set goes on with a chain as plain Go does, for every number of rows and columns.
func TestDotsAgree(t *testing.T) {
	src := newSource(1)
	most := 19
	if testing.Short() {
		most = 8
	}
	for _, columns := range []int{16, 32, 48, 64, 96, 128, 160, 224} {
		for rows := 1; rows <= most; rows++ {
			for _, inputs := range []int{0, 1, 2, 7, 33} {
				step := fma.Lanes + src.IntN(2)*5
				ldc, ldx, next := columns+src.IntN(5), inputs+src.IntN(5), inputs*step+src.IntN(3)*16
				c, x := src.floats(rows*ldc), src.floats(rows*ldx+1)
				panel := src.floats((columns+31)/32*next + inputs*step + 1)
				tile := fma.Tile{Rows: rows, Columns: columns, Inputs: inputs, Next: next, Step: step, First: src.IntN(2) == 0}
				want := append([]float32(nil), c...)
				fma.Plain.Dots(fma.Rows{Data: want, Step: ldc}, fma.Rows{Data: x, Step: ldx}, panel, tile)
				for _, set := range fma.Sets() {
					got := append([]float32(nil), c...)
					set.Dots(fma.Rows{Data: got, Step: ldc}, fma.Rows{Data: x, Step: ldx}, panel, tile)
					if i := differs(got, want); i >= 0 {
						t.Fatalf("%s, %+v: element %d is %x, plain %x", set, tile, i, math.Float32bits(got[i]), math.Float32bits(want[i]))
					}
				}
			}
		}
	}
}

// Every set decodes every format as plain Go does, also a ragged end and a part.
func TestUnpackAgrees(t *testing.T) {
	src := newSource(2)
	for _, in := range inputs(64, 96, 320, 1152) {
		for _, m := range []ops.Matrix{
			src.matrix(ops.F32, 70, in, 0, 0, 0), src.matrix(ops.BF16, 70, in, 0, 0, 0), src.matrix(ops.F16, 70, in, 0, 0, 0),
			src.matrix(ops.Affine, 70, in, 2, 32, ops.BF16), src.matrix(ops.Affine, 70, in, 3, 32, ops.F32), src.matrix(ops.Affine, 70, in, 4, 32, ops.F16),
			src.matrix(ops.Affine, 70, in, 6, 32, ops.BF16), src.matrix(ops.Affine, 70, in, 8, 32, ops.BF16),
			src.matrix(ops.Affine, 70, in, 4, 8, ops.BF16), src.matrix(ops.Affine, 70, in, 3, 8, ops.BF16), src.matrix(ops.Affine, 70, in, 2, in, ops.BF16),
		} {
			for _, n := range []int{1, 5, 16, 17, 32} {
				k := fma.Inputs(&m, 256)
				for from := 0; from < in; from += k {
					p := fma.Part{Row: src.IntN(70 - n + 1), N: n, From: from, K: min(k, in-from)}
					unpacked(t, m, p)
				}
			}
		}
	}
}

func unpacked(t *testing.T, m ops.Matrix, p fma.Part) {
	t.Helper()
	row := make([]float32, m.In)
	for _, set := range fma.Sets() {
		panel := make([]float32, fma.PanelFloats)
		set.Unpack(panel, &m, p, &fma.Temp{})
		for j := range p.N {
			fma.Decode(row, &m, p.Row+j)
			for i := range p.K {
				if got, want := panel[i*fma.Lanes+j], row[p.From+i]; math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%s, format %d, %d bits in groups of %d, %+v: output %d, input %d is %v, want %v", set, m.Format, m.Bits, m.Group, p, j, i, got, want)
				}
			}
		}
	}
}

// Decode agrees with the definition, written down once more.
func TestDecode(t *testing.T) {
	src := newSource(3)
	for _, bits := range []int{2, 3, 4, 6, 8} {
		m := src.matrix(ops.Affine, 3, 96, bits, 32, ops.F32)
		row := make([]float32, 96)
		for r := range 3 {
			fma.Decode(row, &m, r)
			for i, got := range row {
				code := 0
				for b := range bits {
					at := (r*96+i)*bits + b
					code |= int(m.Data[at/8]) >> (at % 8) & 1 << b
				}
				g := (r*96 + i) / 32
				scale := math.Float32frombits(binary.LittleEndian.Uint32(m.Scales[4*g:]))
				bias := math.Float32frombits(binary.LittleEndian.Uint32(m.Biases[4*g:]))
				if want := exact(scale, float32(code), bias); got != want {
					t.Fatalf("%d bits: row %d, input %d is %v, want %v", bits, r, i, got, want)
				}
			}
		}
	}
}

// best runs f for some milliseconds in short turns and returns the seconds of the fastest: a loaded machine interrupts
// few of them.
func best(b *testing.B, f func()) float64 {
	least := math.Inf(1)
	for b.Loop() {
		start := time.Now()
		f()
		least = min(least, time.Since(start).Seconds())
	}
	return least
}

func plain(src source, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = src.Float32()
	}
	return v
}

func BenchmarkDots(b *testing.B) {
	src := newSource(4)
	for _, set := range fma.Sets() {
		for _, tile := range []fma.Tile{
			{Rows: 128, Columns: 32, Inputs: 256}, {Rows: 4, Columns: 32, Inputs: 128, Next: 128 * 32}, {Rows: 2, Columns: 64, Inputs: 128, Next: 128 * 32}, {Rows: 1, Columns: 128, Inputs: 64, Next: 64 * 32},
		} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", set, tile.Rows, tile.Columns, tile.Inputs), func(b *testing.B) {
				c, x, panel := make([]float32, tile.Rows*tile.Columns), plain(src, tile.Rows*tile.Inputs), plain(src, fma.PanelFloats)
				seconds := best(b, func() {
					set.Dots(fma.Rows{Data: c, Step: tile.Columns}, fma.Rows{Data: x, Step: tile.Inputs}, panel, tile)
				})
				b.ReportMetric(2e-9*float64(tile.Rows*tile.Columns*tile.Inputs)/seconds, "GFLOP/s")
			})
		}
	}
}

func BenchmarkUnpack(b *testing.B) {
	src := newSource(5)
	for _, set := range fma.Sets() {
		for _, bits := range []int{2, 3, 4, 6, 8, 16} {
			m := src.matrix(ops.Affine, 32, 1024, bits&15, 64, ops.BF16)
			if bits == 16 {
				m = src.matrix(ops.BF16, 32, 1024, 0, 0, 0)
			}
			b.Run(fmt.Sprintf("%s/%d", set, bits), func(b *testing.B) {
				var temp fma.Temp
				panel := make([]float32, fma.PanelFloats)
				seconds := best(b, func() { set.Unpack(panel, &m, fma.Part{N: 32, K: 256}, &temp) })
				b.ReportMetric(1e9*seconds/(32*256/16), "ns/16weights")
			})
		}
	}
}

// Few agrees with chains in plain Go.
func TestFewAgrees(t *testing.T) {
	for _, set := range fma.Sets() {
		fewAgree(t, set)
	}
}

func fewAgree(t *testing.T, set fma.Set) {
	t.Helper()
	src := newSource(6)
	for _, in := range inputs(32, 96, 320, 1280) {
		for _, kind := range [][2]int{{4, 32}, {6, 32}, {8, 32}, {4, 64}, {8, 64}, {4, in}, {6, 16}} {
			m := src.matrix(ops.Affine, 70, in, kind[0], kind[1], ops.BF16)
			if in%kind[1] != 0 || !set.SuitsFew(&m) {
				continue
			}
			for _, n := range []int{1, 16, 23, 64} {
				for rows := 1; rows <= fma.FewRows; rows++ {
					fewOnce(t, src, set, m, fma.Part{Row: src.IntN(70 - n + 1), N: n, K: in}, rows)
				}
			}
		}
	}
}

func fewOnce(t *testing.T, src source, set fma.Set, m ops.Matrix, p fma.Part, rows int) {
	t.Helper()
	x, c := src.floats(rows*m.In), make([]float32, rows*fma.FewOutputs)
	set.Few(fma.Rows{Data: c, Step: fma.FewOutputs}, fma.Rows{Data: x, Step: m.In}, rows, fma.Outputs{Matrix: &m, Row: p.Row, N: p.N}, &fma.Temp{})
	w := make([]float32, m.In)
	for j := range p.N {
		fma.Decode(w, &m, p.Row+j)
		for r := range rows {
			want := float32(0)
			for i, v := range x[r*m.In : (r+1)*m.In] {
				want = fma.FMA(v, w[i], want)
			}
			if got := c[r*fma.FewOutputs+j]; math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("%s, %d bits in groups of %d, %d rows, %+v: row %d, output %d is %v, want %v", set, m.Bits, m.Group, rows, p, r, j, got, want)
			}
		}
	}
}

func BenchmarkFew(b *testing.B) {
	src := newSource(7)
	for _, bits := range []int{4, 6, 8} {
		for _, rows := range []int{1, 2, 4} {
			m := src.matrix(ops.Affine, 1024, 1024, bits, 64, ops.BF16)
			if !fma.Widest().SuitsFew(&m) {
				continue
			}
			b.Run(fmt.Sprintf("bits=%d/rows=%d", bits, rows), func(b *testing.B) {
				var temp fma.Temp
				x, c := plain(src, rows*m.In), make([]float32, rows*fma.FewOutputs)
				seconds := best(b, func() {
					for o := 0; o < m.Out; o += fma.FewOutputs {
						fma.Widest().Few(fma.Rows{Data: c, Step: fma.FewOutputs}, fma.Rows{Data: x, Step: m.In}, rows, fma.Outputs{Matrix: &m, Row: o, N: fma.FewOutputs}, &temp)
					}
				})
				b.ReportMetric(1e9*seconds/float64(m.Out*m.In/16), "ns/16weights")
				b.ReportMetric(1e-9*float64(m.Bytes())/seconds, "GB/s")
			})
		}
	}
}
