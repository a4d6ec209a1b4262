package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// scores is the products of some queries with a register of keys. Lanes are keys: a block of as many dims of them is
// transposed in registers, and then meets the queries dim after dim.
func (w width) scores(heads int) {
	name := fmt.Sprint(w.name("scores"), "x", heads)
	kernel(name, "func(c *float32, q **float32, keys *float32, tokens *int32, stride, dim int)")
	Doc(fmt.Sprintf("%s sets c[i*16+j] to the product of query q[i] and the key at keys + tokens[j]*stride floats, for %d keys.", name, w.floats()),
		"dim is a multiple of 16. "+w.needs())
	table := Load(Param("q"), GP64())
	qs := make([]GPVirtual, heads)
	for i := range qs {
		qs[i] = GP64()
		MOVQ(Mem{Base: table, Disp: 8 * i}, qs[i])
	}
	keys, tokens, stride := Load(Param("keys"), GP64()), Load(Param("tokens"), GP64()), Load(Param("stride"), GP64())
	left := Load(Param("dim"), GP64())
	SHLQ(Imm(2), stride)
	acc := w.zeros(heads)
	Label("loop")
	CMPQ(left, Imm(uint64(w.floats())))
	JL(LabelRef("done"))
	in := make([]VecVirtual, w.floats())
	for j := range in {
		at := GP64()
		MOVLQSX(Mem{Base: tokens, Disp: 4 * j}, at)
		IMULQ(stride, at)
		in[j] = w.register()
		VMOVUPS(Mem{Base: keys, Index: at, Scale: 1}, in[j])
	}
	for d, column := range w.transposed(in) {
		w.addProducts(acc, qs, Mem{Disp: 4 * d}, column)
	}
	for i := range qs {
		ADDQ(Imm(uint64(w)), qs[i])
	}
	ADDQ(Imm(uint64(w)), keys)
	SUBQ(Imm(uint64(w.floats())), left)
	JMP(LabelRef("loop"))
	Label("done")
	c := Load(Param("c"), GP64())
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: c, Disp: 64 * i})
	}
	VZEROUPPER()
	RET()
}

// columns is the columns that n registers of a row hold, and the name of a kernel for them: base512x4 has 64, as base256x8 has.
func (w width) columns(base string, n int) (columns int, name string) {
	return n * w.floats(), fmt.Sprint(w.name(base), "x", n)
}

// gatherSum is a weighted sum of rows that a list names, n registers of it.
func (w width) gatherSum(n int) {
	columns, name := w.columns("gatherSum", n)
	kernel(name, "func(out, weights, rows *float32, tokens *int32, n, stride int)")
	Doc(fmt.Sprintf("%s sets out[c] to the sum over t < n, ascending, of weights[t] * rows[tokens[t]*stride+c] for c < %d.", name, columns), w.needs())
	w.gatherRows(w.zeros(n))
}

// gatherAdd goes on with such a sum.
func (w width) gatherAdd(n int) {
	columns, name := w.columns("gatherAdd", n)
	kernel(name, "func(out, weights, rows *float32, tokens *int32, n, stride int)")
	Doc(fmt.Sprintf("%s adds to out[c], one after the other for t < n ascending, weights[t] * rows[tokens[t]*stride+c] for c < %d.", name, columns), w.needs())
	out, acc := Load(Param("out"), GP64()), w.registers(n)
	for i := range acc {
		VMOVUPS(Mem{Base: out, Disp: w.bytes(i)}, acc[i])
	}
	w.gatherRows(acc)
}

// gatherRows adds the rows to acc, which goes to out.
func (w width) gatherRows(acc []VecVirtual) {
	weights, rows, tokens := Load(Param("weights"), GP64()), Load(Param("rows"), GP64()), Load(Param("tokens"), GP64())
	n, stride := Load(Param("n"), GP64()), Load(Param("stride"), GP64())
	SHLQ(Imm(2), stride)
	Label("loop")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	at, weight := GP64(), w.register()
	MOVLQSX(Mem{Base: tokens}, at)
	IMULQ(stride, at)
	VBROADCASTSS(Mem{Base: weights}, weight)
	for i := range acc {
		t := w.register()
		VMULPS(Mem{Base: rows, Index: at, Scale: 1, Disp: w.bytes(i)}, weight, t)
		VADDPS(t, acc[i], acc[i])
	}
	ADDQ(Imm(4), tokens)
	ADDQ(Imm(4), weights)
	DECQ(n)
	JMP(LabelRef("loop"))
	Label("done")
	w.store(Load(Param("out"), GP64()), acc)
}

// decay is the first half of a step of the delta rule for n registers of columns of the state.
func (w width) decay(n int) {
	columns, name := w.columns("decay", n)
	kernel(name, "func(s, from, t, k *float32, rows, stride int, decay float32)")
	Doc(fmt.Sprintf("%s: S = g from, t = Sᵀ k for %d columns of S, which may be from; their rows are stride floats apart.", name, columns), w.needs())
	decay := w.broadcast("decay")
	s, from, k := Load(Param("s"), GP64()), Load(Param("from"), GP64()), Load(Param("k"), GP64())
	rows, stride := Load(Param("rows"), GP64()), Load(Param("stride"), GP64())
	SHLQ(Imm(2), stride)
	acc := w.zeros(n)
	Label("loop")
	TESTQ(rows, rows)
	JZ(LabelRef("done"))
	key := w.factor(Mem{Base: k})
	for i := range acc {
		v, t := w.register(), w.register()
		VMULPS(Mem{Base: from, Disp: w.bytes(i)}, decay, v)
		VMOVUPS(v, Mem{Base: s, Disp: w.bytes(i)})
		key.times(v, t)
		VADDPS(t, acc[i], acc[i])
	}
	ADDQ(stride, s)
	ADDQ(stride, from)
	ADDQ(Imm(4), k)
	DECQ(rows)
	JMP(LabelRef("loop"))
	Label("done")
	w.store(Load(Param("t"), GP64()), acc)
}

// update is the second half.
func (w width) update(n int) {
	columns, name := w.columns("update", n)
	kernel(name, "func(s, o, delta, k, q *float32, rows, stride int)")
	Doc(fmt.Sprintf("%s: S += k deltaᵀ, o = Sᵀ q for %d columns of S, whose rows are stride floats apart.", name, columns), w.needs())
	s, k, q := Load(Param("s"), GP64()), Load(Param("k"), GP64()), Load(Param("q"), GP64())
	rows, stride := Load(Param("rows"), GP64()), Load(Param("stride"), GP64())
	SHLQ(Imm(2), stride)
	delta := w.rowAt(Load(Param("delta"), GP64()), n)
	acc := w.zeros(n)
	Label("loop")
	TESTQ(rows, rows)
	JZ(LabelRef("done"))
	key, query := w.factor(Mem{Base: k}), w.factor(Mem{Base: q})
	for i := range acc {
		v, t := w.register(), w.register()
		key.times(delta[i], v)
		VADDPS(Mem{Base: s, Disp: w.bytes(i)}, v, v)
		VMOVUPS(v, Mem{Base: s, Disp: w.bytes(i)})
		query.times(v, t)
		VADDPS(t, acc[i], acc[i])
	}
	ADDQ(stride, s)
	ADDQ(Imm(4), k)
	ADDQ(Imm(4), q)
	DECQ(rows)
	JMP(LabelRef("loop"))
	Label("done")
	w.store(Load(Param("o"), GP64()), acc)
}

// rowAt is n registers of a row that is used again and again; the 16 narrow registers have no room for it, and it is read from where it is.
func (w width) rowAt(from Register, n int) []Op {
	row := make([]Op, n)
	for i := range row {
		at := Mem{Base: from, Disp: w.bytes(i)}
		row[i] = at
		if w == zmm {
			r := ZMM()
			VMOVUPS(at, r)
			row[i] = r
		}
	}
	return row
}
