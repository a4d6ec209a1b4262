package selfcheck

import (
	"context"
	"fmt"

	"lector/engine/ops"
)

func experts() []check {
	var list []check
	for _, s := range []struct {
		rows, experts, k int
		renorm           bool
	}{{1, 8, 2, true}, {5, 12, 3, false}, {3, 512, 10, true}} {
		list = append(list, check{"Route", fmt.Sprintf("%d rows, %d of %d", s.rows, s.k, s.experts), 1e-6, 1e-6, func(r *run) {
			logits := r.normal(s.rows*s.experts, 3)
			for i := range logits { // many are equal
				logits[i] = float32(int(logits[i]))
			}
			route(r, r.Route(r.put(logits, s.experts), s.k, s.renorm), s.rows)
		}})
	}
	for _, s := range []expertShape{
		{1, 64, 32, form{format: ops.BF16}}, {70, 72, 40, form{format: ops.BF16}}, {45, 192, 128, form{ops.Affine, 4, 64, ops.BF16}},
		{9, 128, 64, form{ops.Affine, 3, 64, ops.F16}},
	} {
		for _, stored := range []bool{false, true} {
			shape := fmt.Sprintf("%d rows, 20 of %d x %d, %s", s.rows, s.h, s.inner, s.f)
			if stored {
				shape += ", from storage"
			}
			list = append(list, check{"RunExperts", shape, 1e-2, summed, func(r *run) { mixture(r, s, stored) }})
		}
	}
	shape := expertShape{4, 128, 64, form{ops.Affine, 4, 64, ops.BF16}}
	return append(list, check{"RunExperts", "4 rows, all 4 records at hand", 1e-2, summed, func(r *run) { atHand(r, shape) }})
}

// route compares a choice, its weights within the bound.
func route(r *run, chosen ops.Route, rows int) {
	r.chosen(func() (all [][]int32) {
		for row := range rows {
			ids, _ := chosen.Row(row)
			all = append(all, append([]int32(nil), ids...))
		}
		return all
	})
	r.outputs = append(r.outputs, func() (all []float32) {
		for row := range rows {
			_, weights := chosen.Row(row)
			all = append(all, weights...)
		}
		return all
	})
}

// expertShape is rows of h, and experts of h x inner.
type expertShape struct {
	rows, h, inner int
	f              form
}

// mixture has twenty experts, of which the last three get no rows and the second most.
func mixture(r *run, shape expertShape, stored bool) {
	const n, k = 20, 3
	rows, h, inner, f := shape.rows, shape.h, shape.inner, shape.f
	logits := r.normal(rows*n, 1)
	for i := range logits {
		switch e := i % n; {
		case e >= n-3:
			logits[i] -= 100
		case e == 1 && i/n%3 > 0:
			logits[i] += 5
		}
	}
	s := &shelf{r: r}
	for range n {
		s.records = append(s.records, ops.Expert{Gate: r.matrix(f, inner, h), Up: r.matrix(f, inner, h), Down: r.matrix(f, h, inner)})
	}
	e := ops.Experts{N: n, Inner: inner, At: func(e int) ops.Expert { return s.records[e] }}
	if stored {
		if s.slots, r.err = r.AllocSlots(shelfSlots, s.records[0].Bytes()); r.err != nil {
			return
		}
		r.slots = append(r.slots, s.slots)
		e.Records = s
	}
	y := r.blank(rows, h)
	r.RunExperts(y, r.put(r.normal(rows*h, 1), h), e, r.Route(r.put(logits, n), k, true))
	r.out(y)
}

// atHand runs experts twice: what the first time brought is there the second time, so that nothing is swept.
func atHand(r *run, shape expertShape) {
	const n, k = 4, 2
	rows, h, inner, f := shape.rows, shape.h, shape.inner, shape.f
	logits := make([]float32, rows*n)
	for row := range rows {
		logits[row*n+row%n], logits[row*n+(row+1)%n] = 5, 4 // all have rows
	}
	s := &kept{shelf: shelf{r: r}}
	for range n {
		s.records = append(s.records, ops.Expert{Gate: r.matrix(f, inner, h), Up: r.matrix(f, inner, h), Down: r.matrix(f, h, inner)})
	}
	if s.slots, r.err = r.AllocSlots(shelfSlots, s.records[0].Bytes()); r.err != nil {
		return
	}
	r.slots = append(r.slots, s.slots)
	e := ops.Experts{N: n, Inner: inner, Records: s}
	x := r.put(r.normal(rows*h, 1), h)
	for range 2 {
		y := r.blank(rows, h)
		r.RunExperts(y, x, e, r.Route(r.put(logits, n), k, true))
		if r.err = r.Wait(context.Background()); r.err != nil {
			return
		}
		r.out(y)
	}
}

// kept is a shelf that keeps what its first sweep brought.
type kept struct {
	shelf
	all []ops.Expert
}

// Sweep implements ops.Records.
func (s *kept) Sweep(wants []ops.Want) ops.Sweep {
	w := s.shelf.Sweep(wants)
	s.all = make([]ops.Expert, len(s.records))
	for _, item := range w.Items() {
		s.all[item.Expert] = item.Record
	}
	return w
}

// Resident implements ops.Resident.
func (s *kept) Resident(int) []ops.Expert { return s.all }

// shelfSlots are two groups of records: one is read while the other is used.
const shelfSlots = 16

// shelf implements ops.Records over records in memory, last first, each read as late as may be into a slot that the
// backend is done with.
type shelf struct {
	r       *run
	records []ops.Expert
	slots   ops.Slots
}

// Sweep implements ops.Records. There is one a check.
func (s *shelf) Sweep(wants []ops.Want) ops.Sweep {
	w := &shelfSweep{s: s}
	for i := len(wants) - 1; i >= 0; i-- {
		n := len(w.items)
		w.items = append(w.items, ops.Item{
			Want: wants[i], Slot: n % shelfSlots, Ticket: uint64(n) + 1, Record: s.view(wants[i].Expert, s.slots.Mem[n%shelfSlots]),
		})
	}
	return w
}

// view is an expert's matrices as they lie in a slot.
func (s *shelf) view(e int, slot []byte) ops.Expert {
	record := s.records[e]
	for _, m := range []*ops.Matrix{&record.Gate, &record.Up, &record.Down} {
		for _, data := range []*[]byte{&m.Data, &m.Scales, &m.Biases} {
			n := len(*data)
			*data, slot = slot[:n:n], slot[n:]
		}
	}
	return record
}

type shelfSweep struct {
	s     *shelf
	items []ops.Item
	read  int
	done  int // items that a backend on the host is done with
}

// Items implements ops.Sweep.
func (w *shelfSweep) Items() []ops.Item { return w.items }

// Wait implements ops.Sweep.
func (w *shelfSweep) Wait(i int) error {
	for ; w.read <= i; w.read++ {
		item := w.items[w.read]
		if over := w.read - shelfSlots; over >= 0 && w.s.slots.Done != nil {
			if err := w.s.slots.Done.Wait(context.Background(), w.items[over].Ticket); err != nil {
				return err
			}
		} else if over >= w.done && over >= 0 {
			return fmt.Errorf("record %d is wanted before record %d is done with", w.read, over)
		}
		from, to := w.s.records[item.Expert], item.Record
		for _, pair := range [][2]ops.Matrix{{from.Gate, to.Gate}, {from.Up, to.Up}, {from.Down, to.Down}} {
			copy(pair[1].Data, pair[0].Data)
			copy(pair[1].Scales, pair[0].Scales)
			copy(pair[1].Biases, pair[0].Biases)
		}
		if w.s.slots.Fetched != nil {
			w.s.slots.Fetched.Signal(item.Ticket)
		}
	}
	return nil
}

// Done implements ops.Sweep.
func (w *shelfSweep) Done(i int) { w.done = i + 1 }

// End implements ops.Sweep.
func (w *shelfSweep) End() error { return nil }

func ngrams() []check {
	var list []check
	for _, f := range []form{{format: ops.BF16}, {ops.Affine, 4, 32, ops.BF16}, {ops.Affine, 6, 64, ops.F16}} {
		list = append(list, check{"Gather", "75 x 4 of 14 rows of 128, " + f.String(), 1e-6, 1e-6, func(r *run) {
			table := ops.Table{Shards: []ops.Matrix{r.matrix(f, 7, 128), r.matrix(f, 7, 128)}, Rows: 14, Dim: 128}
			ids := make([]int64, 75*4)
			for i := range ids {
				ids[i] = int64(i * 5 % 14)
			}
			e := r.blank(75, 4*128)
			r.Gather(e, table, ids)
			r.out(e)
		}})
	}
	return append(list, check{"PLEGate", "5 x 4 x 72", elementwise, elementwise, func(r *run) {
		key := r.normal(5*4*72, 1)
		clear(key[:72]) // a score of 0 has no sign
		v := r.blank(5, 4*72)
		r.PLEGate(v, r.put(key, 4*72), r.put(r.normal(5*4*72, 1), 4*72), r.put(r.normal(5*72, 1), 72))
		r.out(v)
	}})
}
