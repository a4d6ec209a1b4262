package cpu

// scoreBlocks16 scores as many tokens as make whole blocks of 16, and says how many.
func (v vector) scoreBlocks16(scores []float32, qs [][]float32, keys []float32, tokens []int32, stride int) int {
	n, dim := v.wide(len(tokens)), len(qs[0])
	if n == 0 || dim%16 != 0 {
		return 0
	}
	var c [headsPerItem * 16]float32
	var q [headsPerItem]*float32
	for i := range q {
		q[i] = &qs[min(i, len(qs)-1)][0]
	}
	for t := 0; t < n; t += 16 {
		v.score16(&c, &q, len(qs), scored{keys, tokens[t:], stride, dim})
		for i := range qs {
			copy(scores[i*len(tokens)+t:][:16], c[16*i:])
		}
	}
	return n
}

// scored are keys of dim floats, stride floats apart, the first 16 of a list.
type scored struct {
	keys        []float32
	tokens      []int32
	stride, dim int
}

// score16 sets c[16*i+j] to the product of query i of 1, 2 or 3 to 4 and key j.
func (v vector) score16(c *[headsPerItem * 16]float32, q *[headsPerItem]*float32, queries int, k scored) {
	if v == avx512 {
		switch queries {
		case 1:
			scores512x1(&c[0], &q[0], &k.keys[0], &k.tokens[0], k.stride, k.dim)
		case 2:
			scores512x2(&c[0], &q[0], &k.keys[0], &k.tokens[0], k.stride, k.dim)
		default:
			scores512x4(&c[0], &q[0], &k.keys[0], &k.tokens[0], k.stride, k.dim)
		}
		return
	}
	for _, half := range []int{0, 8} {
		switch queries {
		case 1:
			scores256x1(&c[half], &q[0], &k.keys[0], &k.tokens[half], k.stride, k.dim)
		case 2:
			scores256x2(&c[half], &q[0], &k.keys[0], &k.tokens[half], k.stride, k.dim)
		default:
			scores256x4(&c[half], &q[0], &k.keys[0], &k.tokens[half], k.stride, k.dim)
		}
	}
}

// kernelColumns is how many of the columns that are left, a multiple of 16, a kernel takes.
func kernelColumns(left int) int {
	switch {
	case left >= 64:
		return 64
	case left >= 32:
		return 32
	}
	return 16
}

// gathered are rows of values, stride floats apart, that a list names, and their weights.
type gathered struct {
	weights, values []float32
	tokens          []int32
	stride          int
}

// addColumns adds to the columns that make whole registers, and says how many.
func (v vector) addColumns(out, weights, values []float32, tokens []int32, stride int) int {
	n := v.wide(len(out))
	if len(tokens) == 0 {
		return 0
	}
	for at := 0; at < n; {
		columns := kernelColumns(n - at)
		v.gatherAdd(out[at:], columns, gathered{weights, values[at:], tokens, stride})
		at += columns
	}
	return n
}

// gatherAdd adds weighted rows to 64, 32 or 16 columns.
func (v vector) gatherAdd(out []float32, columns int, g gathered) {
	o, w, x, t, n := &out[0], &g.weights[0], &g.values[0], &g.tokens[0], len(g.tokens)
	switch {
	case v == avx512 && columns == 64:
		gatherAdd512x4(o, w, x, t, n, g.stride)
	case v == avx512 && columns == 32:
		gatherAdd512x2(o, w, x, t, n, g.stride)
	case v == avx512 && columns == 16:
		gatherAdd512x1(o, w, x, t, n, g.stride)
	case columns == 64:
		gatherAdd256x8(o, w, x, t, n, g.stride)
	case columns == 32:
		gatherAdd256x4(o, w, x, t, n, g.stride)
	default:
		gatherAdd256x2(o, w, x, t, n, g.stride)
	}
}

// sumColumns sums the columns that make whole registers, and says how many.
func (v vector) sumColumns(out, weights, values []float32, tokens []int32, stride int) int {
	n := v.wide(len(out))
	if len(tokens) == 0 {
		return 0
	}
	for at := 0; at < n; {
		columns := kernelColumns(n - at)
		v.gatherSum(out[at:], columns, gathered{weights, values[at:], tokens, stride})
		at += columns
	}
	return n
}

// gatherSum sums weighted rows of 64, 32 or 16 columns.
func (v vector) gatherSum(out []float32, columns int, g gathered) {
	o, w, x, t, n := &out[0], &g.weights[0], &g.values[0], &g.tokens[0], len(g.tokens)
	switch {
	case v == avx512 && columns == 64:
		gatherSum512x4(o, w, x, t, n, g.stride)
	case v == avx512 && columns == 32:
		gatherSum512x2(o, w, x, t, n, g.stride)
	case v == avx512 && columns == 16:
		gatherSum512x1(o, w, x, t, n, g.stride)
	case columns == 64:
		gatherSum256x8(o, w, x, t, n, g.stride)
	case columns == 32:
		gatherSum256x4(o, w, x, t, n, g.stride)
	default:
		gatherSum256x2(o, w, x, t, n, g.stride)
	}
}

// decayColumns is decayAndRead where the columns make one kernel's registers.
func (v vector) decayColumns(s, from, t, k []float32, g float32) bool {
	n := len(t)
	switch {
	case v < avx2 || len(k) == 0:
		return false
	case v == avx512 && n == 64:
		decay512x4(&s[0], &from[0], &t[0], &k[0], len(k), n, g)
	case v == avx512 && n == 32:
		decay512x2(&s[0], &from[0], &t[0], &k[0], len(k), n, g)
	case v == avx512 && n == 16:
		decay512x1(&s[0], &from[0], &t[0], &k[0], len(k), n, g)
	case n == 64:
		decay256x8(&s[0], &from[0], &t[0], &k[0], len(k), n, g)
	case n == 32:
		decay256x4(&s[0], &from[0], &t[0], &k[0], len(k), n, g)
	case n == 16:
		decay256x2(&s[0], &from[0], &t[0], &k[0], len(k), n, g)
	default:
		return false
	}
	return true
}

// updateColumns is updateAndRead where the columns make one kernel's registers.
func (v vector) updateColumns(s, o, delta, k, q []float32) bool {
	n := len(o)
	switch {
	case v < avx2 || len(k) == 0:
		return false
	case v == avx512 && n == 64:
		update512x4(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	case v == avx512 && n == 32:
		update512x2(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	case v == avx512 && n == 16:
		update512x1(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	case n == 64:
		update256x8(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	case n == 32:
		update256x4(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	case n == 16:
		update256x2(&s[0], &o[0], &delta[0], &k[0], &q[0], len(k), n)
	default:
		return false
	}
	return true
}
