package cpu_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// shuffled are stored records that come in an order of their own, each valid only between Wait and Done.
type shuffled struct {
	records []ops.Expert
	order   *rand.Rand
	failAt  int // item whose Wait fails; 0: none does
	open    int // sweeps that have not ended
	given   []int
}

var errStored = errors.New("stored record failed")

func (s *shuffled) Sweep(wants []ops.Want) ops.Sweep {
	w := &shuffledSweep{from: s}
	for _, i := range s.order.Perm(len(wants)) {
		want := wants[i]
		w.items = append(w.items, ops.Item{Want: want, Record: blank(s.records[want.Expert])})
		s.given = append(s.given, want.Expert)
	}
	s.open++
	return w
}

type shuffledSweep struct {
	from  *shuffled
	items []ops.Item
	ready int
	ended bool
	err   error
}

func (w *shuffledSweep) Items() []ops.Item { return w.items }

func (w *shuffledSweep) Wait(i int) error {
	for ; w.ready <= i; w.ready++ {
		if w.from.failAt > 0 && w.ready >= w.from.failAt {
			w.err = errStored
			return w.err
		}
		item := &w.items[w.ready]
		fill(item.Record, w.from.records[item.Expert])
	}
	return nil
}

// Done makes the slots unusable: who reads them later gets other numbers.
func (w *shuffledSweep) Done(i int) {
	for ; i >= 0; i-- {
		fill(w.items[i].Record, blank(w.items[i].Record))
	}
}

func (w *shuffledSweep) End() error {
	if !w.ended {
		w.ended = true
		w.from.open--
	}
	return w.err
}

// blank is a record of the same form that holds other numbers.
func blank(e ops.Expert) ops.Expert {
	for _, m := range []*ops.Matrix{&e.Gate, &e.Up, &e.Down} {
		m.Data, m.Scales, m.Biases = slices.Repeat([]byte{0x41}, len(m.Data)), slices.Repeat([]byte{0x42}, len(m.Scales)), slices.Repeat([]byte{0x43}, len(m.Biases))
	}
	return e
}

func fill(to, from ops.Expert) {
	for _, m := range [][2]*ops.Matrix{{&to.Gate, &from.Gate}, {&to.Up, &from.Up}, {&to.Down, &from.Down}} {
		copy(m[0].Data, m[1].Data)
		copy(m[0].Scales, m[1].Scales)
		copy(m[0].Biases, m[1].Biases)
	}
}

// Stored records give the bits of the same records in memory, in whatever order they come, each once.
func TestStoredExpertsGiveTheSameBits(t *testing.T) {
	src := newSource(42)
	for _, s := range []expertShape{
		{1, 64, 32, 8, 3, 8}, {9, 64, 32, 40, 4, 40}, {300, 32, 32, 20, 10, 20}, {1500, 32, 32, 9, 7, 8}, // more pairs than one tile
	} {
		for _, quantised := range []bool{false, true} {
			t.Run(fmt.Sprint(s, quantised), func(t *testing.T) {
				_, records, logits := newExpertCase(src, s, quantised)
				x := src.normal(s.rows*s.h, 1)
				stored := &shuffled{records: records, order: rand.New(rand.NewPCG(1, 2))}
				run := func(workers int, e ops.Experts) []float32 {
					b := cpu.New(cpu.Options{Workers: workers})
					in, l, out := put(b, x, s.h), put(b, logits, s.n), put(b, garbage(s.rows*s.h), s.h)
					b.RunExperts(out, in, e, b.Route(l, s.k, true))
					wait(t, b)
					return out.Floats()
				}
				want := run(1, ops.Experts{N: s.n, Inner: s.inner, At: func(e int) ops.Expert { return records[e] }})
				for _, workers := range []int{1, 3} {
					stored.given = nil
					got := run(workers, ops.Experts{N: s.n, Inner: s.inner, Records: stored})
					if i := differs(want, got); i >= 0 {
						t.Fatalf("%d workers: element %d differs", workers, i)
					}
					slices.Sort(stored.given)
					if len(slices.Compact(slices.Clone(stored.given))) != len(stored.given) || stored.open != 0 {
						t.Errorf("records %v were read, %d sweeps are open", stored.given, stored.open)
					}
				}
			})
		}
	}
}

// Records that were brought into the order of the class give the bits that they give as they are stored.
func TestArrangedExpertsGiveTheSameBits(t *testing.T) {
	src := newSource(45)
	for _, s := range []expertShape{{1, 64, 64, 8, 3, 8}, {4, 64, 32, 40, 4, 40}, {300, 32, 64, 20, 10, 20}} {
		_, records, logits := newExpertCase(src, s, true)
		x := src.normal(s.rows*s.h, 1)
		run := func(workers, narrow int, arranged bool) []float32 {
			b := cpu.Narrow(cpu.New(cpu.Options{Class: cpu.Blocked, Workers: workers}), narrow)
			own := make([]ops.Expert, len(records))
			for i := range own {
				own[i] = blank(records[i])
				fill(own[i], records[i])
				for _, m := range []*ops.Matrix{&own[i].Gate, &own[i].Up, &own[i].Down} {
					if arranged && b.Arranges(m) > 0 {
						b.Arrange(m)
					} else if arranged && narrow > 0 {
						t.Fatalf("kernels %d do not arrange a matrix of 4 bits", narrow)
					}
				}
			}
			in, l, out := put(b, x, s.h), put(b, logits, s.n), put(b, garbage(s.rows*s.h), s.h)
			b.RunExperts(out, in, ops.Experts{N: s.n, Inner: s.inner, At: func(e int) ops.Expert { return own[e] }}, b.Route(l, s.k, true))
			wait(t, b)
			return out.Floats()
		}
		want := run(1, 0, false)
		for narrow := range cpu.Widest() + 1 {
			for _, workers := range []int{1, 3} {
				if i := differs(want, run(workers, narrow, true)); i >= 0 {
					t.Errorf("%v, kernels %d, %d workers: element %d differs", s, narrow, workers, i)
				}
			}
		}
	}
}

// A record that fails is the next Wait's error, once, and the sweep ends.
func TestStoredExpertsFail(t *testing.T) {
	src := newSource(43)
	s := expertShape{20, 32, 32, 30, 4, 30}
	_, records, logits := newExpertCase(src, s, true)
	for _, at := range []int{1, 8, 17, 24} {
		stored := &shuffled{records: records, order: rand.New(rand.NewPCG(1, 2)), failAt: at}
		b := cpu.New(cpu.Options{Workers: 2})
		x, l, y := put(b, src.normal(s.rows*s.h, 1), s.h), put(b, logits, s.n), put(b, garbage(s.rows*s.h), s.h)
		b.RunExperts(y, x, ops.Experts{N: s.n, Inner: s.inner, Records: stored}, b.Route(l, s.k, true))
		if err := b.Wait(context.Background()); !errors.Is(err, errStored) || stored.open != 0 {
			t.Errorf("record %d: %v with %d sweeps open", at, err, stored.open)
		}
		wait(t, b)
	}
}

// A record that does not fit is a fault of the network, and leaves no sweep open.
func TestStoredExpertsEndTheirSweepOnAFault(t *testing.T) {
	src := newSource(44)
	s := expertShape{5, 32, 32, 6, 2, 6}
	_, records, logits := newExpertCase(src, s, true)
	for i := range records {
		records[i].Down.Out++
	}
	stored := &shuffled{records: records, order: rand.New(rand.NewPCG(1, 2))}
	b := cpu.New(cpu.Options{Workers: 2})
	x, l, y := put(b, src.normal(s.rows*s.h, 1), s.h), put(b, logits, s.n), put(b, garbage(s.rows*s.h), s.h)
	defer func() {
		if recover() == nil || stored.open != 0 {
			t.Errorf("no panic, or %d sweeps are open", stored.open)
		}
	}()
	b.RunExperts(y, x, ops.Experts{N: s.n, Inner: s.inner, Records: stored}, b.Route(l, s.k, true))
}

func TestLargeTensorsAreZeroedAndFreed(t *testing.T) {
	b := cpu.New(cpu.Options{MemoryBytes: 8 << 20})
	for range 3 {
		x, err := b.Alloc(1024, 1024)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range x.Floats() {
			if v != 0 {
				t.Fatalf("element %d is %g", i, v)
			}
			x.Floats()[i] = 1
		}
		b.Free(x)
		b.Free(x)
	}
}
