package selfcheck

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"lector/engine/ops"
)

// source draws operands; the same name gives the same ones.
type source struct{ *rand.Rand }

func newSource(name string) *source {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &source{rand.New(rand.NewPCG(h.Sum64(), 1))}
}

// normal is n values of a nearly normal distribution times scale.
func (s *source) normal(n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32((s.Float64() + s.Float64() + s.Float64() + s.Float64() - 2) * scale * 1.75)
	}
	return v
}

// between is n values from low to high.
func (s *source) between(n int, low, high float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(low + (high-low)*s.Float64())
	}
	return v
}

// form is a way to store a matrix.
type form struct {
	format      ops.Format
	bits, group int
	side        ops.Format
}

func (f form) String() string {
	switch f.format {
	case ops.F32:
		return "f32"
	case ops.BF16:
		return "bf16"
	case ops.F16:
		return "f16"
	}
	return fmt.Sprintf("%d bits by %d", f.bits, f.group)
}

// forms are all of them, as far as a kernel tells them apart.
func forms() []form {
	list := []form{{format: ops.F32}, {format: ops.BF16}, {format: ops.F16}}
	for _, bits := range []int{2, 3, 4, 6, 8} {
		list = append(list, form{ops.Affine, bits, 64, ops.BF16})
	}
	return append(list, form{ops.Affine, 4, 32, ops.F16}, form{ops.Affine, 4, 128, ops.F32})
}

// number appends v in a plain format; halves are cut off, and v is within their normal range.
func number(dst []byte, f ops.Format, v float32) []byte {
	bits := math.Float32bits(v)
	switch f {
	case ops.F32:
		return binary.LittleEndian.AppendUint32(dst, bits)
	case ops.F16:
		return binary.LittleEndian.AppendUint16(dst, uint16(bits>>16&0x8000|(bits>>13&0x3ffff-112<<10)&0x7fff))
	}
	return binary.LittleEndian.AppendUint16(dst, uint16(bits>>16))
}

// matrix draws a stored matrix whose values lie near [-1, 1].
func (s *source) matrix(f form, out, in int) ops.Matrix {
	m := ops.Matrix{Name: f.String(), Out: out, In: in, Format: f.format, Bits: f.bits, Group: f.group, Side: f.side}
	if f.format != ops.Affine {
		for range out * in {
			v := s.Float64()*2 - 1
			if math.Abs(v) < 1e-3 {
				v = 1e-3
			}
			m.Data = number(m.Data, f.format, float32(v))
		}
		return m
	}
	unit := 1.5 / float64(int(1)<<f.bits)
	for range out * in / f.group {
		m.Scales = number(m.Scales, f.side, float32(unit*(0.7+0.3*s.Float64())))
		m.Biases = number(m.Biases, f.side, float32(-0.75+s.Float64()/8))
	}
	m.Data = make([]byte, out*in*f.bits/8)
	for i := range m.Data {
		m.Data[i] = byte(s.Uint32())
	}
	return m
}
