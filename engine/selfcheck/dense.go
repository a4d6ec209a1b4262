package selfcheck

import (
	"fmt"
	"math"

	"lector/engine/ops"
)

// checks lists every check.
func checks() []check {
	var all []check
	for _, part := range []func() []check{dense, linear, streams, reads, delta, blocks, attention, experts, ngrams} {
		all = append(all, part()...)
	}
	return all
}

// exact is for what only moves numbers, elementwise for what computes each by itself, summed for sums of a row.
const (
	exact       = 0
	elementwise = 1e-5
	summed      = 2e-5
)

func dense() []check {
	var list []check
	for _, f := range forms() {
		list = append(list, check{"Embed", "5 of 9 rows of 128, " + f.String(), 1e-6, 1e-6, func(r *run) {
			y := r.blank(5, 128)
			r.Embed(y, r.matrix(f, 9, 128), []int32{8, 0, 3, 3, 7})
			r.out(y)
		}})
	}
	for _, s := range []struct{ rows, cols, group int }{{1, 64, 64}, {5, 60, 20}, {3, 1200, 600}, {2, 10240, 2560}} {
		list = append(list, check{"RMSNorm", fmt.Sprintf("%d x %d by %d", s.rows, s.cols, s.group), elementwise, elementwise, func(r *run) {
			x, y := r.put(r.normal(s.rows*s.cols, 3), s.cols), r.blank(s.rows, s.cols)
			r.RMSNorm(y, x, r.normal(s.cols, 1), s.group, 1e-6)
			r.out(y)
		}})
	}
	for _, h := range []ops.Heads{{N: 1, Stride: 64, Dim: 64}, {From: 7, N: 2, Stride: 512, Dim: 256}, {From: 1, N: 4, Stride: 11, Dim: 10}} {
		cols := h.From + h.N*h.Stride + 3
		list = append(list,
			check{"RMSNormHeads", fmt.Sprintf("5 x %d x %d", h.N, h.Dim), elementwise, elementwise, func(r *run) {
				x := r.put(r.normal(5*cols, 2), cols)
				r.RMSNormHeads(x, h, r.normal(h.Dim, 1), 1e-6)
				r.out(x)
			}},
			check{"Rope", fmt.Sprintf("5 x %d x %d at 200000", h.N, h.Dim), 1e-6, 1e-6, func(r *run) {
				x := r.put(r.normal(5*cols, 2), cols)
				r.Rope(x, h, ops.Rope{Rot: h.Dim / 4 * 2, Theta: 1e7}, 200_000, 4)
				r.out(x)
			}})
	}
	for _, s := range [][2]int{{1, 1}, {7, 320}} {
		list = append(list, check{"SiLU, Sigmoid, SwiGLU, Add, AddGated", fmt.Sprintf("%d x %d", s[0], s[1]), elementwise, elementwise, func(r *run) { elements(r, s[0], s[1]) }})
	}
	for _, s := range []struct{ rows, c, taps, dilation int }{{1, 3, 4, 1}, {9, 7, 4, 3}, {33, 300, 4, 1}} {
		list = append(list, check{"Conv, ShiftTail", fmt.Sprintf("%d x %d, %d taps by %d", s.rows, s.c, s.taps, s.dilation), elementwise, elementwise, func(r *run) {
			tail, x, y := r.put(r.normal((s.taps-1)*s.dilation*s.c, 1), s.c), r.put(r.normal(s.rows*s.c, 1), s.c), r.blank(s.rows, s.c)
			r.Conv(y, x, tail, r.normal(s.c*s.taps, 1), s.dilation, true)
			r.ShiftTail(tail, x)
			r.out(y, tail)
		}})
	}
	list = append(list, check{"Pick", "3 of 2100 columns", exact, exact, pick})
	return append(list, check{"CopyRows", "7 x 13 of 40", exact, exact, func(r *run) {
		y := r.put(r.normal(9*13, 1), 13)
		r.CopyRows(y, 2, r.put(r.normal(7*40, 1), 40), 21)
		r.out(y)
	}})
}

// pick finds the largest of the first columns: one of equals, one past the first piece, and none in a row with an infinity.
func pick(r *run) {
	const cols, choices = 2100, 2090
	v := r.normal(3*cols, 1)
	v[700], v[1900], v[cols-1] = 9, 9, 20
	v[cols+2080] = 9
	v[2*cols+5] = float32(math.Inf(1))
	y := r.put(v, cols)
	p, ok := r.Backend.(ops.Picker)
	if !ok {
		r.chosen(func() [][]int32 { return [][]int32{{700, 1}, {2080, 1}, {0, 0}} })
		return
	}
	found := p.Pick(y, choices)
	r.chosen(func() (rows [][]int32) {
		for row := range 3 {
			if column, finite := found.Row(row); finite {
				rows = append(rows, []int32{int32(column), 1})
			} else {
				rows = append(rows, []int32{0, 0})
			}
		}
		return rows
	})
}

func elements(r *run, rows, cols int) {
	x, y, gate := r.normal(rows*cols, 4), r.put(r.normal(rows*cols, 2), cols), r.put(r.normal(rows, 3), 1)
	x[0] = -200 // e^200 overflows
	silu, sigmoid, glu, add, gated := r.put(x, cols), r.put(x, cols), r.blank(rows, cols), r.put(x, cols), r.put(x, cols)
	r.SiLU(silu, 0.25)
	r.Sigmoid(sigmoid, 0.25, 2)
	r.SwiGLU(glu, silu, y)
	r.Add(add, y)
	r.AddGated(gated, y, gate)
	r.out(silu, sigmoid, glu, add, gated)
}

// linear has shapes on both sides of where products go through tiles.
func linear() []check {
	var list []check
	add := func(rows, out, in int, f form, precise bool) {
		shape := fmt.Sprintf("%d x %d to %d, %s", rows, in, out, f)
		half := 5e-3
		if precise {
			shape, half = shape+", precise", summed
		}
		list = append(list, check{"Linear", shape, half, summed, func(r *run) {
			m := r.matrix(f, out, in)
			m.Precise = precise
			y := r.blank(rows, out)
			r.Linear(y, r.put(r.normal(rows*in, 1), in), m)
			r.out(y)
		}})
	}
	for _, f := range forms() {
		add(3, 37, 256, f, false)
		add(45, 37, 256, f, false)
	}
	for _, s := range [][3]int{{1, 1, 1}, {16, 5, 66}, {17, 130, 33}, {33, 300, 7}} {
		add(s[0], s[1], s[2], form{format: ops.BF16}, false)
		add(s[0], s[1], s[2], form{format: ops.BF16}, true)
	}
	return list
}

func streams() []check {
	var list []check
	for _, s := range [][3]int{{1, 2, 3}, {33, 4, 320}} {
		rows, n, h := s[0], s[1], s[2]
		list = append(list, check{"Replicate, AddToStreams, Inject, MixStreams", fmt.Sprintf("%d x %d x %d", rows, n, h), 1e-6, 1e-6, func(r *run) {
			x, gain, u, z := r.put(r.normal(rows*h, 1), h), r.put(r.normal(rows*n, 1), n), r.put(r.normal(rows*n*h, 1), n*h), r.normal(rows*n*h, 1)
			copied, added, injected, mixed := r.blank(rows, n*h), r.put(z, n*h), r.put(z, n*h), r.blank(rows, h)
			r.Replicate(copied, x)
			r.AddToStreams(added, x)
			r.Inject(injected, x, gain)
			r.MixStreams(mixed, u, r.put(z, n*h))
			r.out(copied, added, injected, mixed)
		}})
	}
	return list
}

// reads are gated reads of few and of more rows, with and without what is deferred and what is asked for.
func reads() []check {
	var list []check
	for _, s := range []struct {
		rows   int
		inject bool
	}{{1, true}, {3, false}, {40, true}} {
		shape := fmt.Sprintf("%d x 4 x 64, 32 between", s.rows)
		list = append(list, check{"ReadStreams", shape, 5e-3, summed, func(r *run) { read(r, s.rows, s.inject) }})
	}
	return list
}

// read carries a gated read out in one operation where the backend does, else in single ones.
func read(r *run, rows int, inject bool) {
	const n, h, low, eps = 4, 64, 32, 1e-6
	f := form{ops.Affine, 4, 32, ops.BF16}
	wide, y, gain := r.put(r.normal(rows*n*h, 1), n*h), r.put(r.normal(rows*h, 1), h), r.put(r.normal(rows*n, 1), n)
	norm, down, up := r.normal(n*h, 1), r.matrix(f, low, n*h), r.matrix(f, n*h, low)
	in := ops.StreamRead{X: r.blank(rows, h), Wide: wide, Norm: norm, Eps: eps, Down: down, Up: up}
	if inject {
		in.Y, in.Inj, in.Inject = y, gain, r.matrix(f, n, n*h)
	}
	if s, ok := r.Backend.(ops.StreamReader); ok && s.ReadsStreams(rows, low) {
		s.ReadStreams(in)
	} else {
		singly(r, in, n, h)
	}
	r.out(in.X, wide, gain)
}

// singly is a gated read in single operations.
func singly(r *run, in ops.StreamRead, n, h int) {
	if !in.Y.Empty() {
		r.Inject(in.Wide, in.Y, in.Inj)
	}
	rows := in.X.Rows
	z, low, u := r.blank(rows, n*h), r.blank(rows, in.Down.Out), r.blank(rows, n*h)
	r.RMSNorm(z, in.Wide, in.Norm, h, in.Eps)
	r.Linear(low, z, in.Down)
	r.SiLU(low, 1/float32(n))
	r.Linear(u, low, in.Up)
	r.Sigmoid(u, 1, 1)
	r.MixStreams(in.X, u, z)
	if in.Inject.Data != nil {
		r.Linear(in.Inj, z, in.Inject)
		r.Sigmoid(in.Inj, 1/float32(n), 2)
	}
}

func delta() []check {
	list := []check{
		{"UnitHeads", "5 x 3 x 128", elementwise, elementwise, func(r *run) {
			x := r.put(r.normal(5*400, 1), 400)
			r.UnitHeads(x, ops.Heads{From: 5, N: 3, Stride: 130, Dim: 128}, 0.25)
			r.out(x)
		}},
		{"DeltaGates", "9 x 48", elementwise, elementwise, func(r *run) {
			a, b, g, beta := r.put(r.normal(9*48, 8), 48), r.put(r.normal(9*48, 2), 48), r.blank(9, 48), r.blank(9, 48)
			r.DeltaGates(g, beta, a, b, r.normal(48, 1), r.normal(48, 1))
			r.out(g, beta)
		}},
		{"RoundState", "3 x 100", exact, exact, func(r *run) {
			s, loss := r.put(r.normal(300, 3), 100), r.blank(3, 2)
			r.RoundState(s, loss)
			r.out(s)
		}},
		{"GatedNorm", "6 x 3 x 128", elementwise, elementwise, func(r *run) {
			o, p, z := r.put(r.normal(6*384, 1), 384), r.put(r.normal(6*384, 1), 384), r.put(r.normal(6*384, 3), 384)
			w := r.normal(128, 1)
			r.GatedNorm(o, z, w, 1e-6, false)
			r.GatedNorm(p, z, w, 1e-6, true)
			r.out(o, p)
		}},
	}
	for _, s := range []struct {
		ops.DeltaDims
		rows int
	}{
		{ops.DeltaDims{Hk: 1, Hv: 1, Dk: 32, Dv: 32}, 1}, {ops.DeltaDims{Hk: 2, Hv: 4, Dk: 48, Dv: 40}, 13},
		{ops.DeltaDims{Hk: 1, Hv: 3, Dk: 128, Dv: 128}, 70}, {ops.DeltaDims{Hk: 1, Hv: 1, Dk: 200, Dv: 5}, 9},
	} {
		list = append(list, check{"DeltaScan", fmt.Sprintf("%d rows, %d of %d x %d", s.rows, s.Hv, s.Dk, s.Dv), summed, summed, func(r *run) { scan(r, s.DeltaDims, s.rows) }})
	}
	for _, s := range []struct {
		ops.DeltaDims
		rows int
	}{
		{ops.DeltaDims{Hk: 1, Hv: 1, Dk: 32, Dv: 32}, 1}, {ops.DeltaDims{Hk: 2, Hv: 4, Dk: 48, Dv: 40}, 13}, {ops.DeltaDims{Hk: 2, Hv: 6, Dk: 128, Dv: 128}, 3},
	} {
		list = append(list, check{"StepDelta", fmt.Sprintf("%d rows, %d of %d x %d", s.rows, s.Hv, s.Dk, s.Dv), summed, summed, func(r *run) { step(r, s.DeltaDims, s.rows) }})
	}
	return list
}

// step moves state and tail on by some rows, together where the backend does it.
func step(r *run, d ops.DeltaDims, rows int) {
	const taps = 4
	c, v := 2*d.Hk*d.Dk+d.Hv*d.Dv, d.Hv*d.Dv
	s := ops.DeltaStep{
		O: r.blank(rows, v), QKV: r.blank(rows, c), Raw: r.put(r.normal(rows*c, 1), c), Tail: r.put(r.normal((taps-1)*c, 1), c), Z: r.put(r.normal(rows*v, 1), v),
		A: r.put(r.normal(rows*d.Hv, 1), d.Hv), B: r.put(r.normal(rows*d.Hv, 1), d.Hv), S: r.put(r.normal(d.Hv*d.Dk*d.Dv, 0.1), d.Dk*d.Dv),
		OldS: r.blank(d.Hv, d.Dk*d.Dv), OldTail: r.blank(taps-1, c), Dims: d, Conv: r.normal(c*taps, 1), ALog: r.normal(d.Hv, 1), DtBias: r.normal(d.Hv, 1),
		Norm: r.normal(d.Dv, 1), QueryScale: 0.25, Eps: 1e-6,
	}
	if few, ok := r.Backend.(ops.FewRows); !ok || !few.TakesFew(rows) {
		s.Singly(r.Backend)
	} else if few.StepDelta(s) {
		s.S, s.OldS, s.Tail, s.OldTail = s.OldS, s.S, s.OldTail, s.Tail
	}
	r.out(s.O, s.S, s.Tail, s.OldS, s.OldTail)
}

// scan has keys that are nearly equal in half of its rows, as where a text repeats itself.
func scan(r *run, d ops.DeltaDims, rows int) {
	width := 2*d.Hk*d.Dk + d.Hv*d.Dv
	v := r.normal(rows*width, 1)
	for row := rows / 2; row < rows; row++ {
		copy(v[row*width+d.Hk*d.Dk:][:d.Hk*d.Dk], v[d.Hk*d.Dk:][:d.Hk*d.Dk])
	}
	qkv := r.put(v, width)
	r.UnitHeads(qkv, ops.Heads{N: 2 * d.Hk, Stride: d.Dk, Dim: d.Dk}, 1)
	o, s := r.blank(rows, d.Hv*d.Dv), r.put(r.normal(d.Hv*d.Dk*d.Dv, 0.1), d.Dk*d.Dv)
	r.DeltaScan(o, qkv, r.put(r.between(rows*d.Hv, 0.9, 1), d.Hv), r.put(r.between(rows*d.Hv, 0.5, 1), d.Hv), s, d)
	r.out(o, s)
}
