package cpu

import "lector/engine/ops"

// route holds k experts and weights for every row, in slot order.
type route struct {
	*Backend
	k       int
	experts []int32
	weights []float32
	logits  rows
	renorm  bool
	then    *expertRun // that is put off until the choice is made; nil where none is
}

// Row returns the experts of row r in slot order and their weights.
func (t *route) Row(r int) (experts []int32, weights []float32) {
	return t.experts[r*t.k : (r+1)*t.k], t.weights[r*t.k : (r+1)*t.k]
}

// Route: softmax over the logits of a row, then the k best by (probability descending, index ascending).
func (b *Backend) Route(logits ops.Tensor, k int, renorm bool) ops.Route {
	t := b.routeOf(logits, k, renorm)
	b.inPhases((*routeRows)(t), phase{logits.Rows, grain(logits.Cols * (8 + k))})
	return t
}

// routeOf is a choice that is not made yet.
func (b *Backend) routeOf(logits ops.Tensor, k int, renorm bool) *route {
	fit(k > 0 && k <= logits.Cols, "Route", logits)
	return &route{b, k, make([]int32, logits.Rows*k), make([]float32, logits.Rows*k), all(logits), renorm, nil}
}

// routeRows chooses for rows of a route, an item each.
type routeRows route

func (t *routeRows) do(s *scratch, _, from, to int) { (*route)(t).choose(s, from, to) }

func (t *routeRows) name(int) string { return "Route" }

// do chooses for all rows, and lists the experts for what is put off until then.
func (t *route) do(s *scratch, _, _, _ int) {
	t.choose(s, 0, t.logits.n)
	if t.then != nil {
		t.then.chosen(t)
	}
}

func (t *route) name(int) string { return "Route" }

// choose chooses for rows [from, to).
func (t *route) choose(s *scratch, from, to int) {
	prob := floats(&s.values, t.logits.width)
	for r := from; r < to; r++ {
		copy(prob, t.logits.at(r))
		sum := t.softmax(prob)
		for e, v := range prob {
			prob[e] = float32(float64(v) / sum)
		}
		experts, weights := t.Row(r)
		best(experts, weights, prob)
		if t.renorm {
			normalise(weights)
		}
	}
}

// best fills the slots with the highest probabilities, the lower index first where they are equal.
func best(experts []int32, weights, prob []float32) {
	k := len(experts)
	for e, p := range prob {
		if e >= k && !(p > weights[k-1]) {
			continue
		}
		i := min(e, k-1)
		for ; i > 0 && p > weights[i-1]; i-- {
			weights[i], experts[i] = weights[i-1], experts[i-1]
		}
		weights[i], experts[i] = p, int32(e)
	}
}

// normalise divides by the float32 sum in slot order.
func normalise(weights []float32) {
	var sum float32
	for _, w := range weights {
		sum += w
	}
	for i, w := range weights {
		weights[i] = w / sum
	}
}
