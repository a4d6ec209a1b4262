package cpu

import (
	"encoding/binary"
	"math"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// decodeRow writes row `row` of m to dst [In] as float32.
func (v vector) decodeRow(dst []float32, m *ops.Matrix, row int) {
	n := m.In
	switch m.Format {
	case ops.F32:
		decodeF32(dst[:n], m.Data[4*n*row:4*n*(row+1)])
	case ops.BF16:
		data := m.Data[2*n*row : 2*n*(row+1)]
		done := v.widen(dst[:n], data)
		decodeBF16(dst[done:n], data[2*done:])
	case ops.F16:
		data := m.Data[2*n*row : 2*n*(row+1)]
		for i := range dst[:n] {
			dst[i] = fma.Widen(binary.LittleEndian.Uint16(data[2*i:]))
		}
	case ops.Affine:
		v.decodeAffine(dst[:n], m, row)
	}
}

func decodeF32(dst []float32, data []byte) {
	data = data[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
}

func decodeBF16(dst []float32, data []byte) {
	for len(dst) >= 4 && len(data) >= 8 {
		v := binary.LittleEndian.Uint64(data)
		dst[0] = math.Float32frombits(uint32(v) << 16)
		dst[1] = math.Float32frombits(uint32(v) & 0xffff0000)
		dst[2] = math.Float32frombits(uint32(v>>32) << 16)
		dst[3] = math.Float32frombits(uint32(v>>32) & 0xffff0000)
		dst, data = dst[4:], data[8:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
	}
}

// side reads scale or bias i.
func side(data []byte, f ops.Format, i int) float32 {
	switch f {
	case ops.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	case ops.F16:
		return fma.Widen(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
}

// decodeAffine decodes one row, group by group. A group holds a multiple of eight codes, so it starts on a byte.
func (v vector) decodeAffine(dst []float32, m *ops.Matrix, row int) {
	groups, width := m.In/m.Group, m.Group*m.Bits/8
	codes := m.Data[row*groups*width : (row+1)*groups*width]
	for g := range groups {
		scale, bias := side(m.Scales, m.Side, row*groups+g), side(m.Biases, m.Side, row*groups+g)
		out, packed := dst[g*m.Group:(g+1)*m.Group], codes[g*width:(g+1)*width]
		switch m.Bits {
		case 4:
			if done := v.unpack4(out, packed, scale, bias); done < len(out) {
				table := affineTable(scale, bias)
				unpack4(out[done:], packed[done/2:], &table)
			}
		case 8:
			for i, code := range packed {
				out[i] = affine(uint32(code), scale, bias)
			}
		default:
			unpackBits(out, packed, m.Bits, scale, bias)
		}
	}
}

// affine is the value of a code: product and sum are each rounded to float32.
func affine(code uint32, scale, bias float32) float32 {
	return float32(scale*float32(int32(code))) + bias
}

// affineTable lists the values of all 4-bit codes: a group has more codes than there are values.
func affineTable(scale, bias float32) (table [16]float32) {
	for c := range table {
		table[c] = affine(uint32(c), scale, bias)
	}
	return table
}

func unpack4(dst []float32, codes []byte, table *[16]float32) {
	for len(dst) >= 8 && len(codes) >= 4 {
		v := binary.LittleEndian.Uint32(codes)
		dst[0] = table[v&15]
		dst[1] = table[v>>4&15]
		dst[2] = table[v>>8&15]
		dst[3] = table[v>>12&15]
		dst[4] = table[v>>16&15]
		dst[5] = table[v>>20&15]
		dst[6] = table[v>>24&15]
		dst[7] = table[v>>28]
		dst, codes = dst[8:], codes[4:]
	}
}

// unpackBits decodes a little-endian bit stream of 2, 3 or 6-bit codes whose length is a multiple of eight codes.
func unpackBits(dst []float32, codes []byte, bits int, scale, bias float32) {
	shift, mask := uint(bits)&7, uint64(1)<<bits-1
	for len(dst) >= 8 && len(codes) >= bits {
		var window uint64 // eight codes are `bits` bytes
		switch bits {
		case 2:
			window = uint64(binary.LittleEndian.Uint16(codes))
		case 3:
			window = uint64(binary.LittleEndian.Uint16(codes)) | uint64(codes[2])<<16
		case 6:
			window = uint64(binary.LittleEndian.Uint32(codes)) | uint64(binary.LittleEndian.Uint16(codes[4:]))<<32
		}
		out := dst[:8]
		for i := range out {
			out[i] = affine(uint32(window&mask), scale, bias)
			window >>= shift
		}
		dst, codes = dst[8:], codes[bits:]
	}
}
