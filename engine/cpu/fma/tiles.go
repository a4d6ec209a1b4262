package fma

import (
	"encoding/binary"
	"math"
	"unsafe"

	"lector/engine/ops"
)

// Tiled weights (ops.Matrix.Tiled) hold the same numbers in the same bytes, in the order in which kernels read them. For
// every 16 or 64 outputs: their codes word by word, [words, 16], where a word is 32 bits of an output's stream of codes; and
// their scales, and their biases, group by group, [groups, 16]. Few rows' kernels take 64 outputs through memory as one
// stream, which the processor reads ahead by itself: with four of 16 each it begins anew at every one.

// SuitsTiles says that Arrange knows weights of this kind.
func (s Set) SuitsTiles(m *ops.Matrix) bool {
	return s != Plain && m.Format == ops.Affine && m.Group*m.Bits%32 == 0 && whole(m) && m.Out%half == 0
}

// Across is how many outputs tiles of m, which SuitsTiles, have best side by side.
func (s Set) Across(m *ops.Matrix) int {
	if s.SuitsFew(m) && m.Side == ops.BF16 && m.Out > 0 && padded(m.Out)%FewOutputs == 0 {
		return FewOutputs
	}
	return half
}

// Arrange brings the bytes of m, which SuitsTiles, into tiles of `across` outputs, where they are.
func (s Set) Arrange(m *ops.Matrix, across int, t *Temp) {
	row, groups := m.In*m.Bits/8, m.In/m.Group
	words := Grow(&t.words, (row/4+16)*across)
	for o := 0; o < m.Out; o += across {
		block := m.Data[o*row : (o+across)*row]
		for h := 0; h < across; h += half {
			s.transpose32(Rows{words[h:], across}, stored{block[h*row:], row, row / 4})
		}
		copy(block, bytesOf(words[:row/4*across]))
	}
	for _, sides := range [][]byte{m.Scales, m.Biases} {
		size := sideBytes(m.Side)
		each := across * groups * size
		for o := range m.Out / across {
			arrangeSides(sides[o*each:(o+1)*each], Grow(&t.raw, each), groups, size)
		}
	}
	m.Tiled = across
}

// arrangeSides turns numbers of `size` bytes [across, groups] into [groups, across], through memory of the same length.
func arrangeSides(block, through []byte, groups, size int) {
	copy(through, block)
	across := len(block) / (groups * size)
	for j := range across {
		for g := range groups {
			copy(block[(g*across+j)*size:][:size], through[(j*groups+g)*size:])
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

// Tile copies m, all of which but the number of outputs SuitsTiles or which SuitsUpper, into memory of TileBytes, in tiles, of
// `across` outputs if it is affine. A ragged end is filled up with outputs that are zero.
func (s Set) Tile(m *ops.Matrix, across int, memory []byte) *ops.Matrix {
	own := *m
	own.Out, own.Panels = padded(m.Out), nil
	if m.Format == ops.BF16 {
		own.Data, own.Tiled = memory[:2*own.Out*m.In:2*own.Out*m.In], half
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
	s.Arrange(&own, across, &Temp{})
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

// tiledWords are the words of 16 outputs, from that of input `from` on. row is a multiple of 16. Every host that lector runs
// on is little-endian.
func tiledWords(m *ops.Matrix, row, from int) Rows {
	a := m.Tiled
	return Rows{floatsOf(m.Data[row/a*a*m.In*m.Bits/8+(from*m.Bits/32*a+row%a)*4:]), a}
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
	dst := Rows{Grow(&t.scales, fewHalves*groups*2*half), groups * 2 * half}
	for h := range tiles {
		p := Part{Row: row + h*half, N: half, K: m.In}
		s.tiledSides(Rows{dst.Data[h*dst.Step:], 2 * half}, m.Scales, m, p)
		s.tiledSides(Rows{dst.Data[h*dst.Step+half:], 2 * half}, m.Biases, m, p)
	}
	return dst
}

// tiledSides sets dst [groups, 16] to the scales or biases of the groups that inputs from..from+k of a tile have.
func (s Set) tiledSides(dst Rows, data []byte, m *ops.Matrix, p Part) {
	size, groups, a := sideBytes(m.Side), p.K/m.Group, m.Tiled
	data = data[((p.Row/a*(m.In/m.Group)+p.From/m.Group)*a+p.Row%a)*size:]
	if m.Side == ops.BF16 && s.widenRows(dst, data, a, groups) {
		return
	}
	for g := range groups {
		to := dst.Data[g*dst.Step:][:half]
		switch m.Side {
		case ops.BF16:
			for j := range to {
				to[j] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*(g*a+j):])) << 16)
			}
		default:
			for j := range to {
				to[j] = side(data, m.Side, g*a+j)
			}
		}
	}
}

// tiledCode is code i of an output.
func tiledCode(m *ops.Matrix, row, i int) int32 {
	a := m.Tiled
	tile := m.Data[row/a*a*m.In*m.Bits/8:]
	word := func(k int) uint64 { return uint64(binary.LittleEndian.Uint32(tile[4*(k*a+row%a):])) }
	bit := i * m.Bits
	v := word(bit / 32)
	if bit%32+m.Bits > 32 {
		v |= word(bit/32+1) << 32
	}
	return int32(v >> (bit % 32) & (1<<m.Bits - 1))
}
