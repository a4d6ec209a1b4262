package cpu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// miniature is what a program of a few layers computes with.
type miniature struct {
	rows                  int
	down, up, gate        matrix
	qkv, z, a, b, out     matrix
	router, score         matrix
	sGate, sUp, sDown, qg matrix
	keys, values, blocks  []float32
	records               []ops.Expert
	wide, state, tail     []float32
	norm, conv, dn, gates []float32
}

const (
	miniHidden, miniLow, miniInner, miniExperts, miniSlots = 64, 32, 32, 40, 4

	miniStreams = 2
	miniTaps    = 3
	miniPos     = 36 // of the first row, which looks back
)

var miniAttention = ops.AttentionDims{Hq: 4, Hkv: 2, Hd: 16}

var miniDelta = ops.DeltaDims{Hk: 1, Hv: 2, Dk: 16, Dv: 16}

func newMiniature(src source, rows int) *miniature {
	const h, wide, c, v = miniHidden, miniStreams * miniHidden, 64, 32
	of := func(out, in int) matrix { return affineMatrix(src, out, in, 4, 32, ops.BF16) }
	_, records, _ := newExpertCase(src, expertShape{rows, h, miniInner, miniExperts, miniSlots, miniExperts}, true)
	return &miniature{
		rows: rows, down: of(miniLow, wide), up: of(wide, miniLow), gate: plainMatrix(src, miniStreams, wide, ops.F32),
		qkv: of(c, h), z: of(v, h), a: of(2, h), b: of(2, h), out: of(h, v), router: plainMatrix(src, miniExperts, h, ops.F32), score: of(1, h),
		sGate: of(32, h), sUp: of(32, h), sDown: of(h, 32), records: records, wide: src.normal(rows*wide, 1), state: src.normal(2*16*16, 0.3), tail: src.normal((miniTaps-1)*c, 1),
		qg: of(128, h), keys: src.normal(40*32, 1), values: src.normal(40*32, 1), blocks: src.normal(10*16, 1),
		norm: src.normal(wide, 1), conv: src.normal(c*miniTaps, 1), dn: src.normal(16, 1), gates: src.normal(2, 1),
	}
}

// tensors are what a run of the program works in.
type miniTensors struct {
	wide, x, inj, y, raw, mixed, zg, a, b, o, s, oldS, tail, oldTail, logits, score, gate, up ops.Tensor
	qg, keys, values, blocks                                                                  ops.Tensor
	picked                                                                                    string
}

func (m *miniature) tensors(b *cpu.Backend) *miniTensors {
	blank := func(cols int) ops.Tensor { return put(b, garbage(m.rows*cols), cols) }
	return &miniTensors{
		wide: put(b, m.wide, miniStreams*miniHidden), x: blank(miniHidden), inj: blank(miniStreams), y: blank(miniHidden), raw: blank(64), mixed: blank(64), zg: blank(32), a: blank(2), b: blank(2), o: blank(32),
		s: put(b, m.state, 256), oldS: put(b, garbage(512), 256), tail: put(b, m.tail, 64), oldTail: put(b, garbage(len(m.tail)), 64), logits: blank(miniExperts), score: blank(1), gate: blank(32), up: blank(32),
		qg: blank(128), keys: put(b, m.keys, 32), values: put(b, m.values, 32), blocks: put(b, m.blocks, 16),
	}
}

// run computes some layers on be. Between two operations it may do one that is not put off and needs or changes what the one
// before made, as the seed says.
func (m *miniature) run(be ops.Backend, t *miniTensors, seed uint64, e ops.Experts) {
	few, src := be.(ops.FewRows), rand.New(rand.NewPCG(seed, 7))
	between := func(x ops.Tensor) {
		switch src.IntN(12) {
		case 0:
			be.SiLU(x, 0.5)
		case 1:
			be.RMSNorm(x, x, []float32{0.75}, x.Cols, 1e-6)
		}
	}
	pending := ops.Tensor{}
	read := func() {
		be.(ops.StreamReader).ReadStreams(ops.StreamRead{X: t.x, Wide: t.wide, Y: pending, Inj: t.inj, Norm: m.norm, Eps: 1e-6, Down: m.down.Matrix, Up: m.up.Matrix, Inject: m.gate.Matrix})
		between(t.x)
		pending = t.y
	}
	for range 7 {
		read()
		few.LinearAll(t.x, []ops.Tensor{t.raw, t.zg, t.a, t.b}, []*ops.Matrix{&m.qkv.Matrix, &m.z.Matrix, &m.a.Matrix, &m.b.Matrix})
		between(t.raw)
		exchanged := few.StepDelta(ops.DeltaStep{O: t.o, QKV: t.mixed, Raw: t.raw, Tail: t.tail, Z: t.zg, A: t.a, B: t.b, S: t.s, OldS: t.oldS, OldTail: t.oldTail, Dims: miniDelta,
			Conv: m.conv, ALog: m.gates, DtBias: m.gates, Norm: m.dn, QueryScale: 0.25, Eps: 1e-6})
		if exchanged {
			t.s, t.oldS, t.tail, t.oldTail = t.oldS, t.s, t.oldTail, t.tail
		}
		between(t.o)
		be.Linear(t.y, t.o, m.out.Matrix)
		between(t.y)
		read()
		be.Linear(t.qg, t.x, m.qg.Matrix)
		between(t.qg)
		index := be.SelectBlocks(t.o, ops.Heads{N: 2, Stride: 16, Dim: 16}, t.blocks, miniPos, 4, []int{3, 100}[src.IntN(2)])
		be.Attend(t.y, t.qg, ops.CacheOf(t.keys, 2), ops.CacheOf(t.values, 2), index, miniPos, 4, miniAttention)
		read()
		few.LinearAll(t.x, []ops.Tensor{t.logits, t.score, t.gate, t.up}, []*ops.Matrix{&m.router.Matrix, &m.score.Matrix, &m.sGate.Matrix, &m.sUp.Matrix})
		between(t.logits)
		route := be.Route(t.logits, miniSlots, true)
		between(t.gate)
		few.RunShared(t.y, t.x, e, route, ops.SharedExpert{Score: t.score, Gate: t.gate, Up: t.up, Down: m.sDown.Matrix})
		between(t.y)
	}
	picks := be.(ops.Picker).Pick(t.y, 60)
	_ = be.Wait(context.Background()) // which cannot fail without its context
	for r := range m.rows {
		column, finite := picks.Row(r)
		t.picked += fmt.Sprint(column, finite, " ")
	}
}

func (t *miniTensors) same(tb *testing.T, what string, want *miniTensors) {
	tb.Helper()
	if t.picked != want.picked {
		tb.Errorf("%s: picked %s, want %s", what, t.picked, want.picked)
	}
	for i, pair := range [][2]ops.Tensor{{t.wide, want.wide}, {t.x, want.x}, {t.y, want.y}, {t.o, want.o}, {t.s, want.s}, {t.oldS, want.oldS}, {t.tail, want.tail}, {t.oldTail, want.oldTail}, {t.inj, want.inj}} {
		same(tb, fmt.Sprint(what, ", tensor ", i), pair[0], pair[1])
	}
}

// Operations that are put off give the bits of those that are not, wherever others come between, and whether experts are at hand.
func TestBatchIsTheOperationsAtOnce(t *testing.T) {
	src := newSource(105)
	for _, rows := range []int{1, 3} {
		m := newMiniature(src, rows)
		few(func(b *cpu.Backend) {
			for seed := range uint64(4) {
				stored := shuffled{records: m.records, order: rand.New(rand.NewPCG(1, seed))}
				want := m.tensors(b)
				m.run(b, want, seed, ops.Experts{N: miniExperts, Inner: miniInner, Records: &atHand{stored}})
				for what, e := range map[string]ops.Experts{
					"at hand": {N: miniExperts, Inner: miniInner, Records: &atHand{stored}}, "stored": {N: miniExperts, Inner: miniInner, Records: &stored},
					"in memory": {N: miniExperts, Inner: miniInner, At: func(e int) ops.Expert { return m.records[e] }},
				} {
					late, got := b.Batch(), m.tensors(b)
					m.run(late, got, seed, e)
					got.same(t, fmt.Sprint(rows, " rows, seed ", seed, ", experts ", what), want)
				}
			}
		})
	}
}

// Nothing that was put off is lost or run twice where what runs panics: the panic comes to who waits, and what follows is sound.
func TestBatchReturnsPanics(t *testing.T) {
	src := newSource(106)
	m := newMiniature(src, 1)
	for _, workers := range []int{1, 3} {
		b := cpu.New(cpu.Options{Class: cpu.Blocked, Workers: workers})
		broken := make([]ops.Expert, miniExperts)
		for i, e := range m.records {
			e.Down.Out--
			broken[i] = e
		}
		late, x := b.Batch(), m.tensors(b)
		said := panicOf(func() {
			m.run(late, x, 1, ops.Experts{N: miniExperts, Inner: miniInner, Records: &atHand{shuffled{records: broken}}})
			_ = late.Wait(context.Background())
		})
		if said == nil {
			t.Fatal("experts that do not fit were run")
		}
		sound := ops.Experts{N: miniExperts, Inner: miniInner, Records: &atHand{shuffled{records: m.records}}}
		got, want := m.tensors(b), m.tensors(b)
		m.run(late, got, 2, sound)
		wait(t, late)
		m.run(b, want, 2, sound)
		got.same(t, "behind a panic", want)
	}
}

// Time is counted as the part that an operation was asked for in, though it runs later.
func TestBatchCountsParts(t *testing.T) {
	src := newSource(107)
	m := newMiniature(src, 1)
	b := cpu.New(cpu.Options{Class: cpu.Blocked, Workers: 2})
	late, x := b.Batch(), m.tensors(b)
	clock := late.(ops.Late)
	clock.Mark(ops.PartDelta)
	late.Linear(x.y, x.o, m.out.Matrix)
	clock.Mark(ops.PartExperts)
	before := clock.Spent()
	late.Linear(x.y, x.o, m.out.Matrix)
	clock.Mark(ops.PartOther)
	wait(t, late)
	after := clock.Spent()
	if before[ops.PartExperts] != 0 || after[ops.PartDelta] <= before[ops.PartDelta] || after[ops.PartExperts] <= 0 || after[ops.PartAttention] != 0 {
		t.Errorf("spent %v before they ran, %v after", before, after)
	}
	late.(ops.Clocked).Waited(time.Hour)
	if waited := clock.Spent(); waited[ops.PartOther] > after[ops.PartOther]-time.Hour/2 {
		t.Errorf("of an hour's wait %v are counted", waited[ops.PartOther])
	}
}

func panicOf(f func()) (said any) {
	defer func() { said = recover() }()
	f()
	return nil
}
