package cpu

import (
	"math"
	"unsafe"

	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

// cachedRows are the rows of a cache as this processor reads them.
type cachedRows struct {
	ops.Cache
	floats []float32 // RowsF32
	halves []uint16  // RowsF16
	codes  []int8    // RowsQ8
	scales []uint16  // RowsQ8
}

func newCachedRows(c ops.Cache) cachedRows {
	r := cachedRows{Cache: c}
	switch c.Format {
	case ops.RowsF16:
		r.halves = viewOf[uint16](c.Data)
	case ops.RowsQ8:
		r.codes, r.scales = viewOf[int8](c.Data), viewOf[uint16](c.Scales)
	default:
		r.floats = c.Data.Floats()
	}
	return r
}

// viewOf reads a tensor's memory as smaller values. Every host that lector runs on is little-endian.
func viewOf[T uint16 | int8](t ops.Tensor) []T {
	f := t.Floats()
	if len(f) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&f[0])), 4*len(f)/int(unsafe.Sizeof(one)))
}

// head reads one head of a row into dst [Dim]; every stored value is a float32.
func (c *cachedRows) head(v vector, dst []float32, row, head int) {
	at := (row*c.Heads + head) * c.Dim
	if c.Format == ops.RowsF16 {
		halves := c.halves[at : at+c.Dim]
		for i := v.widenHalves(dst[:c.Dim], halves); i < len(halves); i++ {
			dst[i] = fma.Widen(halves[i])
		}
		return
	}
	codes, scales := c.codes[at:at+c.Dim], c.scales[(row*c.Heads+head)*c.HeadGroups():]
	for i := v.widenCodes(dst[:c.Dim], codes, scales); i < len(codes); {
		scale := fma.Widen(scales[i/ops.RowGroup])
		for end := min(i+ops.RowGroup, len(codes)); i < end; i++ {
			dst[i] = float32(codes[i]) * scale
		}
	}
}

// StoreRows: rows [row, row+T) of the cache = x, rounded to its format.
func (b *Backend) StoreRows(c ops.Cache, row int, x ops.Tensor) {
	fit(c.Fits(row, x), "StoreRows", c.Data, x)
	in, r := all(x), newCachedRows(c)
	b.parallel(x.Rows, grain(8*x.Cols), func(_ *scratch, from, to int) {
		for i := from; i < to; i++ {
			r.store(row+i, in.at(i))
		}
	})
}

// store rounds one row.
func (c *cachedRows) store(row int, x []float32) {
	at := row * len(x)
	switch c.Format {
	case ops.RowsF16:
		for i, v := range x {
			c.halves[at+i] = toHalf(v)
		}
	case ops.RowsQ8:
		c.storeCodes(row, x)
	default:
		copy(c.floats[at:], x)
	}
}

// storeCodes rounds one row to codes and notes the loss: float64 sums, ascending, rounded once.
func (c *cachedRows) storeCodes(row int, x []float32) {
	codes, scales := c.codes[row*len(x):], c.scales[row*c.Groups():]
	lost, whole := 0.0, 0.0
	for head := range c.Heads {
		for g := range c.HeadGroups() {
			from, to := head*c.Dim+g*ops.RowGroup, head*c.Dim+min((g+1)*ops.RowGroup, c.Dim)
			h := encodeGroup(codes[from:to], x[from:to])
			scales[head*c.HeadGroups()+g] = h
			scale := fma.Widen(h)
			for i := from; i < to; i++ {
				d := float64(x[i]) - float64(float32(codes[i])*scale)
				lost += float64(d * d)
				whole += float64(float64(x[i]) * float64(x[i]))
			}
		}
	}
	loss := c.Loss.Row(row)
	loss[0], loss[1] = float32(lost), float32(whole)
}

// encodeGroup rounds values to codes and returns their scale. A value that is not finite makes the scale so, and what
// is read back is found by the check of logits.
func encodeGroup(codes []int8, x []float32) uint16 {
	top := float32(0)
	for _, v := range x {
		if v = abs32(v); v > top || v != v {
			top = v
		}
	}
	h := toHalf(top / 127)
	scale := fma.Widen(h)
	for i, v := range x {
		codes[i] = 0
		if q := math.RoundToEven(float64(v / scale)); q == q { // 0/0 has no code but 0
			codes[i] = int8(max(-127, min(127, q)))
		}
	}
	return h
}

func abs32(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// toHalf rounds to the nearest half, ties to even; past the largest it is infinite.
func toHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, bits := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case bits > 0x7f800000: // NaN
		return sign | 0x7e00
	case bits >= 0x477ff000: // 65520 and above
		return sign | 0x7c00
	case bits >= 0x38800000: // normal: 13 bits go, the exponent's bias falls by 112
		bits += 0xfff + bits>>13&1
		return sign | uint16((bits-112<<23)>>13)
	}
	// denormal: adding 1/2 leaves the number in units of 2^-24 in the low bits, rounded by the sum
	sum := math.Float32frombits(bits) + 0.5
	return sign | uint16(math.Float32bits(sum)-0x3f000000)
}

// keyTile is how many keys are read as floats at a time.
const keyTile = 32

// scoreRows: scores[i, t] = q_i . k of row tokens[t], one head of it.
func (s *scratch) scoreRows(scores []float32, qs [][]float32, k *cachedRows, head int) {
	if k.Format == ops.RowsF32 {
		s.vector.score(scores, qs, k.floats[head*k.Dim:], s.tokens, k.Heads*k.Dim)
		return
	}
	var c [headsPerItem * keyTile]float32
	inOrder := ascending()
	n := len(s.tokens)
	for t := 0; t < n; t += keyTile {
		have := min(keyTile, n-t)
		tile := s.tile(k, head, s.tokens[t:t+have])
		s.vector.score(c[:len(qs)*have], qs, tile, inOrder[:have], k.Dim)
		for i := range qs {
			copy(scores[i*n+t:i*n+t+have], c[i*have:])
		}
	}
}

// sumRows: out_i = sum over tokens, ascending, of weights[i, t] * v of row tokens[t], one head of it.
func (s *scratch) sumRows(outs [][]float32, weights []float32, v *cachedRows, head int) {
	n := len(s.tokens)
	if v.Format == ops.RowsF32 {
		for i, out := range outs {
			s.vector.sumValues(out, weights[i*n:(i+1)*n], v.floats[head*v.Dim:], s.tokens, v.Heads*v.Dim)
		}
		return
	}
	for _, out := range outs {
		clear(out)
	}
	inOrder := ascending()
	for t := 0; t < n; t += keyTile {
		have := min(keyTile, n-t)
		tile := s.tile(v, head, s.tokens[t:t+have])
		for i, out := range outs {
			w := weights[i*n+t:][:have]
			done := s.vector.addColumns(out, w, tile, inOrder[:have], v.Dim)
			for j := range have {
				s.vector.addScaled(out[done:], tile[j*v.Dim+done:(j+1)*v.Dim], w[j])
			}
		}
	}
}

// tile reads one head of some rows as floats.
func (s *scratch) tile(c *cachedRows, head int, tokens []int32) []float32 {
	tile := floats(&s.panel, keyTile*c.Dim)
	for j, token := range tokens {
		c.head(s.vector, tile[j*c.Dim:(j+1)*c.Dim], int(token), head)
	}
	return tile
}

// ascending are the places of a tile's rows.
func ascending() (places [keyTile]int32) {
	for i := range places {
		places[i] = int32(i)
	}
	return places
}

// RoundState: s = the nearest bfloat16 of each number, in place; loss gets what that took from each row, float64 sums,
// ascending, rounded once.
func (b *Backend) RoundState(s, loss ops.Tensor) {
	fit(loss.Rows == s.Rows && loss.Cols == 2, "RoundState", s, loss)
	rows := all(s)
	b.parallel(s.Rows, 1, func(_ *scratch, from, to int) {
		for r := from; r < to; r++ {
			lost, whole := 0.0, 0.0
			values := rows.at(r)
			for i, v := range values {
				values[i] = roundBF16(v)
				d := float64(v) - float64(values[i])
				lost += float64(d * d)
				whole += float64(float64(v) * float64(v))
			}
			l := loss.Row(r)
			l[0], l[1] = float32(lost), float32(whole)
		}
	})
}

// roundBF16 is the nearest bfloat16, ties to even; what is not finite stays as it is.
func roundBF16(v float32) float32 {
	bits := math.Float32bits(v)
	if bits&0x7f800000 == 0x7f800000 {
		return v
	}
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}
