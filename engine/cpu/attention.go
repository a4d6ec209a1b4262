package cpu

import (
	"math"

	"lector/engine/ops"
)

// headsPerItem is how many query heads of one key head an item of work attends with.
const headsPerItem = 4

// Attend: o = softmax(q k / sqrt(Hd) over visible) v * sigmoid(gate).
func (b *Backend) Attend(o, qg, k, v ops.Tensor, index ops.Index, pos, ratio int, d ops.AttentionDims) {
	fit(d.Hkv > 0 && d.Hq%d.Hkv == 0 && o.Rows == qg.Rows && qg.Cols == 2*d.Hq*d.Hd && o.Cols == d.Hq*d.Hd && ratio > 0 && pos >= 0 &&
		k.Cols == d.Hkv*d.Hd && v.Cols == k.Cols && k.Rows >= pos+o.Rows && v.Rows >= pos+o.Rows, "Attend", o, qg, k, v)
	a := attention{d, all(o), all(qg), k.Floats(), v.Floats(), float32(1 / math.Sqrt(float64(d.Hd)))}
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
	k, v  []float32 // [*, Hkv*Hd]
	scale float32
}

// heads attends with the n <= 4 query heads from `first` on, all of key head kv, for row r and the tokens in s.
func (a *attention) heads(s *scratch, r, kv, first, n int) {
	tokens, hd := s.tokens, a.Hd
	scores := floats(&s.values, n*len(tokens))
	var qs [headsPerItem][]float32
	for i := range n {
		qs[i] = a.qg.at(r)[(first+i)*2*hd:][:hd]
	}
	a.score(scores, qs[:n], kv, tokens)
	for i := range n {
		head := scores[i*len(tokens):][:len(tokens)]
		sum := softmax(head)
		out := a.o.at(r)[(first+i)*hd:][:hd]
		a.sumValues(out, head, kv, tokens)
		gate := a.qg.at(r)[(2*(first+i)+1)*hd:][:hd]
		inverse := float32(1 / sum)
		for c, v := range out {
			out[c] = float32(v*inverse) * sigmoid(gate[c])
		}
	}
}

// score: scores[i, t] = q_i . k_t / sqrt(Hd) two heads and four tokens at a time.
func (a *attention) score(scores []float32, qs [][]float32, kv int, tokens []int32) {
	var c [8]float32
	var ks [4][]float32
	stride, n := a.Hkv*a.Hd, len(tokens)
	for t := 0; t < n; t += 4 {
		have := min(4, n-t)
		for j := range ks {
			ks[j] = a.k[int(tokens[t+min(j, have-1)])*stride+kv*a.Hd:][:a.Hd]
		}
		for i := 0; i < len(qs); i += 2 {
			second := min(i+1, len(qs)-1) // a head without a partner is its own
			dots2x4(&c, qs[i], qs[second], &ks)
			for j := range have {
				scores[i*n+t+j] = float32(c[j] * a.scale)
				scores[second*n+t+j] = float32(c[4+j] * a.scale)
			}
		}
	}
}

// softmax turns x into e^(x - max) and returns their float64 sum, ascending.
func softmax(x []float32) (sum float64) {
	top := x[0]
	for _, v := range x {
		top = max(top, v)
	}
	for i, v := range x {
		e := exp32(v - top)
		x[i] = e
		sum += float64(e)
	}
	return sum
}

// sumValues: out = sum over tokens, ascending, of weight * v_t. Four tokens at a time, added one after another.
func (a *attention) sumValues(out, weights []float32, kv int, tokens []int32) {
	stride, t := a.Hkv*a.Hd, 0
	value := func(t int) []float32 { return a.v[int(tokens[t])*stride+kv*a.Hd:][:len(out)] }
	clear(out)
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
		addScaled(out, value(t), weights[t])
	}
}
