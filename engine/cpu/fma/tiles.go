package fma

import (
	"encoding/binary"
	"math"
	"unsafe"

	"lector/engine/ops"
)

// Tiled weights (ops.Matrix.Tiled) hold the same numbers in the same bytes, in the order in which kernels read them. For
// every 16 outputs: their codes word by word, [words, 16], where a word is 32 bits of an output's stream of codes; and
// their scales, and their biases, group by group, [groups, 16].

// SuitsTiles says that Arrange knows weights of this kind.
func (s Set) SuitsTiles(m *ops.Matrix) bool {
	return s != Plain && m.Format == ops.Affine && m.Group*m.Bits%32 == 0 && whole(m) && m.Out%half == 0
}

// Arrange brings the bytes of m, which SuitsTiles, into tiles, where they are.
func (s Set) Arrange(m *ops.Matrix, t *Temp) {
	row, groups := m.In*m.Bits/8, m.In/m.Group
	words := grow(&t.words, (row/4+16)*half)
	for o := 0; o < m.Out; o += half {
		block := m.Data[o*row : (o+half)*row]
		s.transpose32(Rows{words, half}, stored{block, row, row / 4})
		copy(block, bytesOf(words[:row/4*half]))
	}
	for _, sides := range [][]byte{m.Scales, m.Biases} {
		size := sideBytes(m.Side)
		each := half * groups * size
		for o := range m.Out / half {
			arrangeSides(sides[o*each:(o+1)*each], grow(&t.raw, each), groups, size)
		}
	}
	m.Tiled = true
}

// arrangeSides turns numbers of `size` bytes [16, groups] into [groups, 16], through memory of the same length.
func arrangeSides(block, through []byte, groups, size int) {
	copy(through, block)
	for j := range half {
		for g := range groups {
			copy(block[(g*half+j)*size:][:size], through[(j*groups+g)*size:])
		}
	}
}

// TileBytes is the memory that Tile takes for m.
func TileBytes(m *ops.Matrix) int {
	out := padded(m.Out)
	if m.Format == ops.BF16 {
		return aligned(2 * out * m.In)
	}
	return aligned(out*m.In*m.Bits/8) + 2*aligned(out*m.In/m.Group*sideBytes(m.Side))
}

// Tile copies m, all of which but the number of outputs SuitsTiles or which SuitsUpper, into memory of TileBytes, in tiles. A
// ragged end is filled up with outputs that are zero.
func (s Set) Tile(m *ops.Matrix, memory []byte) *ops.Matrix {
	own := *m
	own.Out, own.Panels = padded(m.Out), nil
	if m.Format == ops.BF16 {
		own.Data, own.Tiled = memory[:2*own.Out*m.In:2*own.Out*m.In], true
		clear(own.Data)
		for i := range m.Out * m.In {
			copy(own.Data[2*upperAt(m, i/m.In, i%m.In):], m.Data[2*i:2*i+2])
		}
		return &own
	}
	for _, part := range []struct {
		to   *[]byte
		from []byte
		row  int
	}{
		{&own.Data, m.Data, m.In * m.Bits / 8},
		{&own.Scales, m.Scales, m.In / m.Group * sideBytes(m.Side)},
		{&own.Biases, m.Biases, m.In / m.Group * sideBytes(m.Side)},
	} {
		n := own.Out * part.row
		*part.to, memory = memory[:n:n], memory[aligned(n):]
		copy(*part.to, part.from)
	}
	s.Arrange(&own, &Temp{})
	return &own
}

// upperAt is where input i of an output is in tiles of bf16: for every 16 outputs [In, 16].
func upperAt(m *ops.Matrix, row, i int) int { return (row/half*m.In+i)*half + row%half }

func padded(out int) int { return (out + half - 1) / half * half }

// aligned rounds up to whole registers.
func aligned(bytes int) int { return (bytes + 63) &^ 63 }

func sideBytes(f ops.Format) int {
	if f == ops.F32 {
		return 4
	}
	return 2
}

// tiledWords are the words of the outputs of a tile, from that of input `from` on. Every host that lector runs on is
// little-endian.
func tiledWords(m *ops.Matrix, row, from int) []float32 {
	return floatsOf(m.Data[row*m.In*m.Bits/8+from*m.Bits/32*4*half:])
}

// floatsOf reads bytes as floats.
func floatsOf(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func bytesOf(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// tileSides are the scales and biases of the n outputs from row on, [tiles, groups, 2, 16].
func (s Set) tileSides(m *ops.Matrix, row, n int, t *Temp) Rows {
	groups, tiles := m.In/m.Group, (n+half-1)/half
	dst := Rows{grow(&t.scales, fewHalves*groups*2*half), groups * 2 * half}
	for h := range tiles {
		p := Part{Row: row + h*half, N: half, K: m.In}
		s.tiledSides(Rows{dst.Data[h*dst.Step:], 2 * half}, m.Scales, m, p)
		s.tiledSides(Rows{dst.Data[h*dst.Step+half:], 2 * half}, m.Biases, m, p)
	}
	return dst
}

// tiledSides sets dst [groups, 16] to the scales or biases of the groups that inputs from..from+k of a tile have.
func (s Set) tiledSides(dst Rows, data []byte, m *ops.Matrix, p Part) {
	size, groups := sideBytes(m.Side), p.K/m.Group
	data = data[(p.Row*(m.In/m.Group)+p.From/m.Group*half)*size:][:groups*half*size]
	if m.Side == ops.BF16 && s.widenRows(dst, data, groups) {
		return
	}
	for g := range groups {
		to := dst.Data[g*dst.Step:][:half]
		switch m.Side {
		case ops.BF16:
			for j := range to {
				to[j] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*(g*half+j):])) << 16)
			}
		default:
			for j := range to {
				to[j] = side(data, m.Side, g*half+j)
			}
		}
	}
}

// tiledCode is code i of an output.
func tiledCode(m *ops.Matrix, row, i int) int32 {
	tile := m.Data[row/half*half*m.In*m.Bits/8:]
	word := func(k int) uint64 { return uint64(binary.LittleEndian.Uint32(tile[4*(k*half+row%half):])) }
	bit := i * m.Bits
	v := word(bit / 32)
	if bit%32+m.Bits > 32 {
		v |= word(bit/32+1) << 32
	}
	return int32(v >> (bit % 32) & (1<<m.Bits - 1))
}
