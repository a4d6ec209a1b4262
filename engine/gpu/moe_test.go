package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
)

func TestRoute(t *testing.T) {
	b := open(t, gpu.Options{})
	src := newSource(8)
	for _, c := range []struct {
		rows, experts, k int
		renorm           bool
	}{{1, 8, 2, true}, {5, 12, 3, false}, {3, 512, 10, true}, {2, 1000, 32, true}, {2, 5, 5, true}} {
		logits := src.normal(c.rows*c.experts, 3)
		for i := range logits { // many are equal
			logits[i] = float32(int(logits[i]))
		}
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			choose := func(b ops.Backend) ops.Route {
				r := b.Route(put(t, b, logits, c.experts), c.k, c.renorm)
				wait(t, b)
				return r
			}
			want, got := choose(cpu.New(cpu.Options{})), choose(b)
			for r := range c.rows {
				ids, weights := want.Row(r)
				gotIDs, gotWeights := got.Row(r)
				if !slices.Equal(ids, gotIDs) {
					t.Errorf("row %d goes to %v, want %v", r, gotIDs, ids)
				}
				if err := worst(gotWeights, weights); err > 1e-6 {
					t.Errorf("row %d: weights %v, want %v", r, gotWeights, weights)
				}
			}
		})
	}
}

// expertCase is rows, their logits, and experts of one form.
type expertCase struct {
	name              string
	rows, h, inner, k int
	records           []ops.Expert
	x, logits         []float32
}

// newExpertCase leaves every expert from `live` on without rows, and gives most rows to expert 1.
func newExpertCase(name string, rows, h, inner, n, k, live int, form func(src source, out, in int) ops.Matrix) expertCase {
	src := newSource(uint64(rows))
	c := expertCase{name: name, rows: rows, h: h, inner: inner, k: k, x: src.normal(rows*h, 1), logits: src.normal(rows*n, 1)}
	for i := range c.logits {
		switch e := i % n; {
		case e >= live:
			c.logits[i] -= 100
		case e == 1 && i/n%3 > 0:
			c.logits[i] += 5
		}
	}
	for range n {
		c.records = append(c.records, ops.Expert{Gate: form(src, inner, h), Up: form(src, inner, h), Down: form(src, h, inner)})
	}
	return c
}

func (c expertCase) experts() ops.Experts {
	return ops.Experts{N: len(c.records), Inner: c.inner, At: func(e int) ops.Expert { return c.records[e] }}
}

func (c expertCase) run(t *testing.T, b ops.Backend, experts ops.Experts, cuts []int) []ops.Tensor {
	x, logits, y := put(t, b, c.x, c.h), put(t, b, c.logits, len(c.records)), blank(t, b, c.rows, c.h)
	for i := range len(cuts) - 1 {
		from, to := cuts[i], cuts[i+1]
		b.RunExperts(y.Slice(from, to), x.Slice(from, to), experts, b.Route(logits.Slice(from, to), c.k, true))
	}
	return []ops.Tensor{y}
}

func bf16(src source, out, in int) ops.Matrix { return plain(src, out, in, ops.BF16) }

func quantised(bits int) func(src source, out, in int) ops.Matrix {
	return func(src source, out, in int) ops.Matrix { return affine(src, out, in, bits, 32, ops.BF16) }
}

func expertCases() []expertCase {
	mixed := 0
	return []expertCase{
		newExpertCase("1 row", 1, 64, 32, 4, 2, 4, bf16),
		newExpertCase("ragged, bf16", 70, 72, 40, 6, 3, 4, bf16), // no width is a multiple of the tile
		newExpertCase("4 bits", 45, 160, 96, 8, 2, 3, quantised(4)),
		newExpertCase("3 bits", 9, 64, 64, 5, 5, 5, quantised(3)),
		newExpertCase("a released record", 2, 2560, 640, 4, 3, 4, quantised(4)),
		newExpertCase("experts of several forms", 33, 64, 64, 6, 2, 6, func(src source, out, in int) ops.Matrix {
			mixed++
			return quantised([]int{2, 4, 6, 8}[mixed/3%4])(src, out, in)
		}),
	}
}

func TestRunExperts(t *testing.T) {
	for _, class := range []struct {
		o   gpu.Options
		tol float64
	}{{gpu.Options{}, 5e-3}, {gpu.Options{Float32: true}, 1e-5}} {
		b := open(t, class.o)
		for _, c := range expertCases() {
			t.Run(b.Class()+" "+c.name, func(t *testing.T) {
				compare(t, b, class.tol, func(b ops.Backend) []ops.Tensor { return c.run(t, b, c.experts(), []int{0, c.rows}) })
			})
		}
	}
}

func TestRunExpertsRowsAlone(t *testing.T) {
	b := open(t, gpu.Options{})
	c := expertCases()[2]
	sameBitsCut(t, b, [][]int{{0, 45}, {0, 17, 45}, {0, 22, 45}}, func(b ops.Backend, cuts []int) []ops.Tensor { return c.run(t, b, c.experts(), cuts) })
	c = expertCases()[3]
	sameBits(t, b, c.rows, func(b ops.Backend, cuts []int) []ops.Tensor { return c.run(t, b, c.experts(), cuts) })
}

func TestRunExpertsCounts(t *testing.T) {
	b := open(t, gpu.Options{})
	c := newExpertCase("counts", 20, 64, 32, 8, 2, 2, bf16)
	used := b.RunExperts(blank(t, b, c.rows, c.h), put(t, b, c.x, c.h), c.experts(), b.Route(put(t, b, c.logits, 8), c.k, true))
	wait(t, b)
	if want := (ops.Usage{Records: 2, Bytes: int64(2 * c.records[0].Bytes())}); used != want {
		t.Errorf("used %+v, want %+v", used, want)
	}
}

// Experts in mapped memory are read in place, all of a layer through one buffer a part.
func TestRunExpertsMapped(t *testing.T) {
	c := newExpertCase("mapped", 40, 64, 64, 6, 2, 5, quantised(4))
	b := open(t, gpu.Options{Mapped: [][]byte{mapRecords(t, &c)}})
	compare(t, b, 5e-3, func(b ops.Backend) []ops.Tensor { return c.run(t, b, c.experts(), []int{0, c.rows}) })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// shelf is experts in storage: a reader that hands out the wanted ones last first, through a ring of slots, and reads
// a record as late as it may.
type shelf struct {
	c      *expertCase
	slots  ops.Slots
	base   uint64 // ticket before the first
	freed  uint64 // tickets that nobody uses any more
	failAt int    // item whose reading fails; 0: none
	sweep  *shelfSweep
	reads  int
}

type shelfSweep struct {
	s     *shelf
	items []ops.Item
	read  int
	ended bool
}

var errShelf = errors.New("shelf: a read fails")

func (s *shelf) Sweep(wants []ops.Want) ops.Sweep {
	w := &shelfSweep{s: s}
	for i := len(wants) - 1; i >= 0; i-- {
		n := len(w.items)
		slot := (int(s.base) + n) % len(s.slots.Mem)
		w.items = append(w.items, ops.Item{
			Want: wants[i], Slot: slot, Ticket: s.base + uint64(n) + 1, Record: s.view(wants[i].Expert, s.slots.Mem[slot]),
		})
	}
	s.sweep = w
	return w
}

// view is an expert's matrices as they would lie in mem.
func (s *shelf) view(e int, mem []byte) ops.Expert {
	record := s.c.records[e]
	for _, m := range []*ops.Matrix{&record.Gate, &record.Up, &record.Down} {
		for _, data := range []*[]byte{&m.Data, &m.Scales, &m.Biases} {
			n := len(*data)
			*data, mem = mem[:n:n], mem[n:]
		}
	}
	return record
}

func (w *shelfSweep) Items() []ops.Item { return w.items }

func (w *shelfSweep) Wait(i int) error {
	for ; w.read <= i; w.read++ {
		if w.s.failAt > 0 && w.read >= w.s.failAt {
			return errShelf
		}
		item := w.items[w.read]
		if n := uint64(len(w.s.slots.Mem)); item.Ticket > w.s.freed+n { // the slot's last user
			if err := w.s.slots.Done.Wait(context.Background(), item.Ticket-n); err != nil {
				return err
			}
		}
		from, to := w.s.c.records[item.Expert], item.Record
		for j, m := range []ops.Matrix{from.Gate, from.Up, from.Down} {
			d := []ops.Matrix{to.Gate, to.Up, to.Down}[j]
			copy(d.Data, m.Data)
			copy(d.Scales, m.Scales)
			copy(d.Biases, m.Biases)
		}
		w.s.slots.Fetched.Signal(item.Ticket)
		w.s.reads++
	}
	return nil
}

func (w *shelfSweep) Done(int) { panic("the device says it") }

func (w *shelfSweep) End() error {
	w.ended = true
	w.s.base += uint64(len(w.items))
	w.s.freed = w.s.base
	if w.read < len(w.items) {
		return errShelf
	}
	return nil
}

func newShelf(t *testing.T, b *gpu.Backend, c *expertCase) *shelf {
	t.Helper()
	slots, err := b.AllocSlots(16, c.records[0].Bytes()+100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slots.Free)
	return &shelf{c: c, slots: slots}
}

// Records that stream through fewer slots than there are records give the bits of records in memory.
func TestRunExpertsStored(t *testing.T) {
	b := open(t, gpu.Options{})
	c := newExpertCase("stored", 60, 64, 32, 40, 3, 37, quantised(4))
	s := newShelf(t, b, &c)
	want := c.run(t, b, c.experts(), []int{0, c.rows})
	wait(t, b)
	for range 2 {
		s.reads = 0
		got := c.run(t, b, ops.Experts{N: len(c.records), Inner: c.inner, Records: s}, []int{0, c.rows})
		wait(t, b)
		if at := differs(want[0].Floats(), got[0].Floats()); at >= 0 {
			t.Errorf("element %d is %g, from memory %g", at, got[0].Floats()[at], want[0].Floats()[at])
		}
		if !s.sweep.ended || s.reads != len(s.sweep.items) || s.reads < 17 {
			t.Errorf("%d of %d records were read, ended: %v", s.reads, len(s.sweep.items), s.sweep.ended)
		}
	}
}

func TestRunExpertsStoredFails(t *testing.T) {
	b := open(t, gpu.Options{})
	c := newExpertCase("stored", 60, 64, 32, 40, 3, 37, quantised(4))
	s := newShelf(t, b, &c)
	s.failAt = 11
	experts := ops.Experts{N: len(c.records), Inner: c.inner, Records: s}
	c.run(t, b, experts, []int{0, c.rows})
	if err := b.Wait(context.Background()); !errors.Is(err, errShelf) {
		t.Errorf("Wait: %v, want the reader's error", err)
	}
	if !s.sweep.ended {
		t.Error("the sweep is not ended")
	}
	s.failAt = 0
	want := c.run(t, b, c.experts(), []int{0, c.rows})
	got := c.run(t, b, experts, []int{0, c.rows})
	wait(t, b)
	if differs(want[0].Floats(), got[0].Floats()) >= 0 {
		t.Error("after a failure the next sweep gives other results")
	}
}

// ExpertBytes bounds what RunExperts holds beside its tensors, the route and the slots.
func TestExpertBytes(t *testing.T) {
	c := newExpertCase("bytes", 300, 256, 128, 40, 3, 37, quantised(4))
	for _, storedRecords := range []bool{false, true} {
		b := open(t, gpu.Options{})
		s := newShelf(t, b, &c)
		experts := c.experts()
		if storedRecords {
			experts.Records = s
		} else { // copies of the weights are there from the first run on
			c.run(t, b, experts, every(20, 1))
			wait(t, b)
		}
		x, logits, y := put(t, b, c.x, c.h), put(t, b, c.logits, len(c.records)), blank(t, b, c.rows, c.h)
		route := b.Route(logits, c.k, true)
		wait(t, b)
		before := b.HeldBytes()
		b.RunExperts(y, x, experts, route)
		wait(t, b)
		limit := b.ExpertBytes(ops.ExpertDims{Width: c.h, Inner: c.inner, TopK: c.k, Stored: storedRecords}, c.rows)
		if took := b.HeldBytes() - before; took > int64(limit) {
			t.Errorf("stored records: %v: RunExperts took %d bytes, ExpertBytes says %d", storedRecords, took, limit)
		}
	}
}
