package cpu

import (
	"math"

	"lector/engine/ops"
)

// headsPerItem is how many query heads of one key head an item of work attends with.
const headsPerItem = 4

// Attend: o = softmax(q k / sqrt(Hd) over visible) v * sigmoid(gate).
func (b *Backend) Attend(o, qg ops.Tensor, k, v ops.Cache, index ops.Index, pos, ratio int, d ops.AttentionDims) {
	fit(d.FitsAttend(o, qg, k, v, pos) && ratio > 0 && pos >= 0, "Attend", o, qg, k.Data, v.Data)
	a := attentionOf(o, qg, k, v, d)
	if b.fused() {
		b.attendTiles(&a, index, pos, ratio)
		return
	}
	group := d.Hq / d.Hkv
	cuts := (group + headsPerItem - 1) / headsPerItem // of the heads of one key head
	b.parallel(o.Rows*d.Hkv*cuts, 1, func(s *scratch, from, to int) {
		row := -1
		for i := from; i < to; i++ {
			if r := i / (d.Hkv * cuts); r != row {
				row = r
				s.tokens = appendVisible(s.tokens[:0], index.Blocks(r), pos+r, ratio)
			}
			kv, first := i/cuts%d.Hkv, i%cuts*headsPerItem
			a.heads(s, row, kv, kv*group+first, min(headsPerItem, group-first))
		}
	})
}

// appendVisible lists, ascending, the tokens of the blocks and of the incomplete block that ends with p.
func appendVisible(tokens, blocks []int32, p, ratio int) []int32 {
	for _, j := range blocks {
		for t := int(j) * ratio; t < (int(j)+1)*ratio; t++ {
			tokens = append(tokens, int32(t))
		}
	}
	for t := (p + 1) / ratio * ratio; t <= p; t++ {
		tokens = append(tokens, int32(t))
	}
	return tokens
}

type attention struct {
	ops.AttentionDims
	o, qg rows
	k, v  cachedRows
	scale float32
}

func attentionOf(o, qg ops.Tensor, k, v ops.Cache, d ops.AttentionDims) attention {
	return attention{d, all(o), all(qg), newCachedRows(k), newCachedRows(v), float32(1 / math.Sqrt(float64(d.Hd)))}
}

// heads attends with the n <= 4 query heads from `first` on, all of key head kv, for row r and the tokens in s.
func (a *attention) heads(s *scratch, r, kv, first, n int) {
	tokens, hd := s.tokens, a.Hd
	scores := floats(&s.values, n*len(tokens))
	var qs, outs [headsPerItem][]float32
	var sums [headsPerItem]float64
	for i := range n {
		qs[i], outs[i] = a.qg.at(r)[(first+i)*2*hd:][:hd], a.o.at(r)[(first+i)*hd:][:hd]
	}
	s.scoreRows(scores, qs[:n], &a.k, kv)
	for i := range scores {
		scores[i] *= a.scale
	}
	for i := range n {
		sums[i] = s.vector.softmax(scores[i*len(tokens):][:len(tokens)])
	}
	s.sumRows(outs[:n], scores, &a.v, kv)
	for i, out := range outs[:n] {
		gate := a.qg.at(r)[(2*(first+i)+1)*hd:][:hd]
		inverse := float32(1 / sums[i])
		gates := floats(&s.more, hd)
		copy(gates, gate)
		s.vector.sigmoid(gates, 1, 1)
		for c, v := range out {
			out[c] = float32(v*inverse) * gates[c]
		}
	}
}

// score: scores[i, t] = q_i . k_t, where k_t begins at keys[tokens[t]*stride].
func (v vector) score(scores []float32, qs [][]float32, keys []float32, tokens []int32, stride int) {
	done := v.scoreBlocks16(scores, qs, keys, tokens, stride)
	n := len(tokens)
	var c [8]float32
	var ks [4][]float32
	dim := len(qs[0])
	for t := done; t < n; t += 4 {
		have := min(4, n-t)
		for j := range ks {
			ks[j] = keys[int(tokens[t+min(j, have-1)])*stride:][:dim]
		}
		for i := 0; i < len(qs); i += 2 {
			second := min(i+1, len(qs)-1) // a query without a partner is its own
			dots2x4(&c, qs[i], qs[second], &ks)
			copy(scores[i*n+t:i*n+t+have], c[:4])
			copy(scores[second*n+t:second*n+t+have], c[4:])
		}
	}
}

// softmax turns x into e^(x - max) and returns their float64 sum, ascending.
func (v vector) softmax(x []float32) (sum float64) {
	top := x[0]
	for _, s := range x {
		top = max(top, s)
	}
	v.expBelow(x, top)
	for _, e := range x {
		sum += float64(e)
	}
	return sum
}

// sumValues: out = sum over tokens, ascending, of weight * the row of values at tokens[t]*stride.
func (v vector) sumValues(out, weights, values []float32, tokens []int32, stride int) {
	done := v.sumColumns(out, weights, values, tokens, stride)
	if out, values = out[done:], values[done:]; len(out) == 0 {
		return
	}
	value := func(t int) []float32 { return values[int(tokens[t])*stride:][:len(out)] }
	clear(out)
	t := 0
	for ; t+4 <= len(tokens); t += 4 {
		w0, w1, w2, w3 := weights[t], weights[t+1], weights[t+2], weights[t+3]
		v0, v1, v2, v3 := value(t), value(t+1), value(t+2), value(t+3)
		for c, sum := range out {
			sum += float32(w0 * v0[c])
			sum += float32(w1 * v1[c])
			sum += float32(w2 * v2[c])
			sum += float32(w3 * v3[c])
			out[c] = sum
		}
	}
	for ; t < len(tokens); t++ {
		v.addScaled(out, value(t), weights[t])
	}
}
