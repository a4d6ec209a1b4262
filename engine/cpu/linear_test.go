package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// matrix is a stored matrix and what it means.
type matrix struct {
	ops.Matrix
	values []float64 // [Out, In]
}

func encodeSide(dst []byte, f ops.Format, v float32) ([]byte, float64) {
	bits := math.Float32bits(v)
	switch f {
	case ops.F32:
		return binary.LittleEndian.AppendUint32(dst, bits), float64(v)
	case ops.F16: // truncated, within the normal range of a half
		h := uint16(bits>>16&0x8000 | (bits>>13&0x3ffff-112<<10)&0x7fff)
		return binary.LittleEndian.AppendUint16(dst, h), float64(cpu.HalfWiden(h))
	}
	return binary.LittleEndian.AppendUint16(dst, uint16(bits>>16)), float64(math.Float32frombits(bits &^ 0xffff))
}

// plainMatrix stores normal values as F32, BF16 or F16.
func plainMatrix(src source, out, in int, f ops.Format) matrix {
	m := matrix{Matrix: ops.Matrix{Name: "w", Out: out, In: in, Format: f}}
	for range out * in {
		v := (src.Float64() - 0.5) * 2
		if math.Abs(v) < 1e-3 {
			v = 1e-3
		}
		var value float64
		m.Data, value = encodeSide(m.Data, f, float32(v))
		m.values = append(m.values, value)
	}
	return m
}

// affineMatrix stores random codes.
func affineMatrix(src source, out, in, bits, group int, side ops.Format) matrix {
	m := matrix{Matrix: ops.Matrix{Name: "q", Out: out, In: in, Format: ops.Affine, Bits: bits, Group: group, Side: side}}
	for range out * in / group {
		var scale, bias float64
		m.Scales, scale = encodeSide(m.Scales, side, float32(0.1+src.Float64()/8))
		m.Biases, bias = encodeSide(m.Biases, side, float32(src.Float64()/2-0.6))
		packed := make([]byte, group*bits/8)
		for i := range group {
			code := src.IntN(1 << bits)
			for bit := range bits { // one bit at a time: nothing shared with the code under test
				if code>>bit&1 == 1 {
					packed[(i*bits+bit)/8] |= 1 << ((i*bits + bit) % 8)
				}
			}
			m.values = append(m.values, scale*float64(code)+bias)
		}
		m.Data = append(m.Data, packed...)
	}
	return m
}

func linearCase(name string, src source, m matrix, rows int) opCase {
	x := src.normal(rows*m.In, 1)
	want := make([]float64, rows*m.Out)
	for r := range rows {
		for o := range m.Out {
			for i := range m.In {
				want[r*m.Out+o] += float64(x[r*m.In+i]) * m.values[o*m.In+i]
			}
		}
	}
	return opCase{name, rows, func(b *cpu.Backend, cuts []int) []float32 {
		in, out := put(b, x, m.In), put(b, garbage(rows*m.Out), m.Out)
		chunks(cuts, func(from, to int) { b.Linear(out.Slice(from, to), in.Slice(from, to), m.Matrix) })
		return out.Floats()
	}, want, 2e-5}
}

func TestLinear(t *testing.T) {
	src := newSource(3)
	for _, f := range []ops.Format{ops.F32, ops.BF16, ops.F16} {
		for _, s := range [][3]int{{1, 1, 1}, {1, 5, 7}, {3, 3, 66}, {7, 33, 130}, {9, 40, 256}} {
			check(t, linearCase(fmt.Sprint("format", f, s), src, plainMatrix(src, s[1], s[2], f), s[0]))
		}
	}
	for _, bits := range []int{2, 3, 4, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			for _, side := range []ops.Format{ops.F32, ops.BF16, ops.F16} {
				name := fmt.Sprint("affine", bits, "-", group, "-", side)
				check(t, linearCase(name, src, affineMatrix(src, 11, 256, bits, group, side), 5))
			}
		}
	}
	check(t, linearCase("affine over several items of work", src, affineMatrix(src, 70, 160, 4, 32, ops.BF16), 9))
	for _, rows := range []int{2, 3, 4} { // decoded in registers
		check(t, linearCase(fmt.Sprint("few rows ", rows), src, affineMatrix(src, 43, 192, 4, 64, ops.BF16), rows))
	}
}

// A tall and narrow product is cut over rows, a short and wide one over outputs.
func TestLinearCutsBothWays(t *testing.T) {
	src := newSource(4)
	check(t, linearCase("narrow", src, plainMatrix(src, 4, 300, ops.F32), 130))
	check(t, linearCase("wide", src, plainMatrix(src, 600, 64, ops.BF16), 2))
}

func TestLinearPropagatesNaNAndKeepsZero(t *testing.T) {
	b, src := cpu.New(cpu.Options{}), newSource(5)
	m := plainMatrix(src, 4, 8, ops.F32)
	x := put(b, make([]float32, 16), 8)
	x.Row(1)[3] = float32(math.NaN())
	y := put(b, src.normal(8, 1), 4)
	b.Linear(y, x, m.Matrix)
	wait(t, b)
	for o := range 4 {
		if math.Float32bits(y.Row(0)[o]) != 0 || y.Row(1)[o] == y.Row(1)[o] {
			t.Errorf("output %d: %g for zeros, %g for NaN", o, y.Row(0)[o], y.Row(1)[o])
		}
	}
}

func TestEmbedAndGather(t *testing.T) {
	src := newSource(6)
	for _, m := range []matrix{plainMatrix(src, 9, 64, ops.BF16), affineMatrix(src, 9, 64, 4, 64, ops.BF16)} {
		ids := []int32{8, 0, 3, 3, 7}
		want := make([]float64, 0, 5*64)
		for _, id := range ids {
			want = append(want, m.values[int(id)*64:int(id+1)*64]...)
		}
		check(t, opCase{fmt.Sprint("embed", m.Format), 5, func(b *cpu.Backend, cuts []int) []float32 {
			y := put(b, make([]float32, 5*64), 64)
			chunks(cuts, func(from, to int) { b.Embed(y.Slice(from, to), m.Matrix, ids[from:to]) })
			return y.Floats()
		}, want, 1e-6})
	}
	for _, f := range []ops.Format{ops.F32, ops.BF16, ops.Affine} {
		table := ops.Table{Rows: 12, Dim: 32}
		var values []float64
		for range 3 {
			m := plainMatrix(src, 4, 32, f%3)
			if f == ops.Affine {
				m = affineMatrix(src, 4, 32, 4, 32, ops.BF16)
			}
			table.Shards = append(table.Shards, m.Matrix)
			values = append(values, m.values...)
		}
		ids := []int64{0, 11, 3, 4, 7, 8, 5, 5}
		var want []float64
		for _, id := range ids {
			want = append(want, values[id*32:(id+1)*32]...)
		}
		check(t, opCase{fmt.Sprint("gather", f), 4, func(b *cpu.Backend, cuts []int) []float32 {
			e := put(b, make([]float32, 4*64), 64)
			chunks(cuts, func(from, to int) { b.Gather(e.Slice(from, to), table, ids[2*from:2*to]) })
			return e.Floats()
		}, want, 1e-6})
	}
}

// A matrix with a place for a copy gives the bits of one without, for few rows and for many.
func TestLinearWithCopies(t *testing.T) {
	src := newSource(8)
	for _, m := range []matrix{affineMatrix(src, 150, 192, 4, 64, ops.BF16), affineMatrix(src, 37, 96, 8, 32, ops.F16), affineMatrix(src, 64, 320, 6, 64, ops.F32), affineMatrix(src, 20, 64, 3, 32, ops.BF16)} {
		for _, rows := range []int{1, 2, 3, 4, 5, 12} {
			for _, workers := range []int{1, 3} {
				b := cpu.New(cpu.Options{Class: cpu.Blocked, Workers: workers})
				x := put(b, src.normal(rows*m.In, 1), m.In)
				want, got := put(b, garbage(rows*m.Out), m.Out), put(b, garbage(rows*m.Out), m.Out)
				b.Linear(want, x, m.Matrix)
				own := m.Matrix
				if b.PanelBytes(own) > 0 {
					own.Panels = new(ops.Panels)
				}
				for range 2 {
					b.Linear(got, x, own)
					if i := differs(got.Floats(), want.Floats()); i >= 0 {
						t.Errorf("%d bits, %d rows, %d workers: element %d is %g, want %g", m.Bits, rows, workers, i, got.Floats()[i], want.Floats()[i])
					}
				}
			}
		}
	}
}
