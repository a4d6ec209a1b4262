package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"lector/engine/ops"
	"lector/metal"
)

// expertGroupMax is how many records are used at a time: a sweep hands out no more before the first are done.
const expertGroupMax = 8

// slotMemory is the memory of AllocSlots, in a few buffers: the experts of one dispatch must lie in one.
type slotMemory struct {
	buffers       []*memory // that the host reads records into
	fetched, done deviceEvent
	apart         apartSlots
}

// slotBufferBytes bounds one buffer of slots.
const slotBufferBytes = 1 << 30

// AllocSlots returns memory for n records of size bytes, and the two counters of its sweeps: a sweep's reader signals
// Fetched, the device signals Done behind the last product that uses a record.
func (b *Backend) AllocSlots(n, size int) (ops.Slots, error) {
	if n < 0 || size < 1 {
		return ops.Slots{}, fmt.Errorf("allocate %d slots of %d bytes: not a size that memory can have", n, size)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &slotMemory{}
	slots := ops.Slots{}
	pitch := (size + b.page - 1) / b.page * b.page
	most := int64(slotBufferBytes)
	if limit := b.device.Properties().MaxBufferBytes; limit > 0 {
		most = min(most, limit)
	}
	each := max(1, int(most)/pitch)
	err := m.openEvents(b.device)
	for from := 0; from < n && err == nil; from += each {
		var part *memory
		if part, err = b.allocate(min(each, n-from)*pitch, shared); err == nil {
			m.buffers = append(m.buffers, part)
			for data := part.buf.Bytes(); len(slots.Mem) < min(from+each, n); data = data[pitch:] {
				slots.Mem = append(slots.Mem, data[:size:size])
			}
		}
	}
	if err == nil && b.apart != nil {
		err = m.apart.open(b, m.buffers, slotLayout{pitch: pitch, each: each, n: n})
	}
	if err != nil {
		m.release(b)
		return ops.Slots{}, fmt.Errorf("allocate %d slots of %d bytes: %w", n, size, err)
	}
	b.choices.slots = append(b.choices.slots, m)
	slots.Fetched, slots.Done = m.fetched, m.done
	slots.Free = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		m.release(b)
	}
	return slots, nil
}

func (m *slotMemory) openEvents(d metal.Device) error {
	fetched, err := d.NewEvent()
	if err != nil {
		return err
	}
	done, err := d.NewEvent()
	if err != nil {
		return errors.Join(err, fetched.Close())
	}
	m.fetched, m.done = deviceEvent{fetched}, deviceEvent{done}
	return nil
}

// release gives the slots back. No sweep may be under way. Releasing twice is harmless.
func (m *slotMemory) release(b *Backend) {
	for _, part := range m.buffers {
		b.release(part)
	}
	m.buffers = nil
	m.apart.release(b)
	for _, e := range []*deviceEvent{&m.fetched, &m.done} {
		if e.event != nil {
			b.fail(e.event.Close())
			e.event = nil
		}
	}
	for i, other := range b.choices.slots {
		if other == m {
			b.choices.slots = append(b.choices.slots[:i:i], b.choices.slots[i+1:]...)
			return
		}
	}
}

// slot is where data lies on the device if it is in a slot.
func (c *choices) slot(data []byte) (region, bool) {
	if len(data) == 0 {
		return region{}, false
	}
	for _, m := range c.slots {
		if r, ok := m.find(data); ok {
			return r, true
		}
	}
	return region{}, false
}

func (m *slotMemory) find(data []byte) (region, bool) {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	for i, part := range m.buffers {
		host := part.buf.Bytes()
		if at := first - uintptr(unsafe.Pointer(unsafe.SliceData(host))); at < uintptr(len(host)) {
			if m.apart.buffers != nil {
				part = m.apart.buffers[i]
			}
			return region{part.buf, int(at)}, true
		}
	}
	return region{}, false
}

// deviceEvent is an ops.Event that the device sees as well.
type deviceEvent struct{ event metal.SharedEvent }

// eventPatience is how long one wait lasts before the context is looked at again.
const eventPatience = 20 * time.Millisecond

func (e deviceEvent) Signal(v uint64) { e.event.Signal(v) }

// Wait returns when the event has reached v, or with the cause of the context's end.
func (e deviceEvent) Wait(ctx context.Context, v uint64) error {
	for {
		if e.event.Value() >= v {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := e.event.Wait(v, eventPatience); err != nil && !errors.Is(err, metal.ErrTimeout) {
			return err
		}
	}
}

// stored runs experts whose records come from storage: each once for all rows, in the order in which they come. The
// outputs of all slots are held until the last record is there, so that every sum has the same order as always.
//
// The host waits for the records of a group before it hands the group's products to the device, and does so while the
// device works on the group before: no command buffer holds the device for a disk, and a read that fails is known
// before its record is used. The device tells the reader which slots are free. The sweep ends once the device is past
// it, which whoever waits next finds out: nobody waits here.
func (t *expertRun) stored() {
	var wants []ops.Want
	for e, n := range t.counts {
		if n > 0 {
			wants = append(wants, ops.Want{Expert: e, Rows: n})
		}
	}
	sweep := t.experts.Records.Sweep(wants)
	encoded := false
	defer func() { // a fault in the network panics; the lanes must not outlive it
		if !encoded {
			sweep.End()
		}
	}()
	err := t.sweep(sweep)
	encoded = true
	t.b.sweep = sweep
	if slots, lost := t.slotsOf(sweep.Items()); lost == nil && (err != nil || t.failed()) {
		slots.apart.expect(sweep.Items())
	}
	if err != nil {
		t.b.fail(err)
		t.sync() // the device may still be at records that were there
	}
}

// endSweep ends the sweep whose records were used last. The device must be past it.
func (b *Backend) endSweep() {
	if b.sweep != nil {
		b.fail(b.sweep.End())
		b.sweep = nil
	}
}

// sweep encodes the products of all records, group by group, and the sums.
func (t *expertRun) sweep(sweep ops.Sweep) error {
	items := sweep.Items()
	slots, err := t.slotsOf(items)
	if err != nil {
		return err
	}
	slots.apart.expect(items)
	most := 0 // pairs of a group
	for i, item := range items {
		t.activate(item.Expert, item.Record, item.Rows)
		most = max(most, t.active[i].to-t.active[i/expertGroupMax*expertGroupMax].from)
	}
	width := t.y.Cols
	inside, up, out := t.take(4*most*t.inner()), t.take(4*most*t.inner()), t.take(4*t.total()*width)
	t.place()
	for from := 0; from < len(items) && !t.failed(); from += expertGroupMax {
		to := min(from+expertGroupMax, len(items))
		if err := sweep.Wait(to - 1); err != nil {
			return err
		}
		t.bring(slots, items[from:to])
		for _, g := range t.groups(t.locateAll(t.active[from:to], &spans{})) {
			t.gateUp(&g, inside, up)
			t.product(&g, down, product{y: out.plus(4 * g.base * width), x: inside, to: width})
		}
		t.signalEvent(slots.done.event, items[to-1].Ticket) // the reader may have the slots again
		t.commit()
	}
	t.sum(out, 0, width)
	return nil
}

// slotsOf are the slots that a sweep's records lie in. Records elsewhere are a fault of the caller: their
// bytes change, and copies of weights are kept.
func (t *expertRun) slotsOf(items []ops.Item) (*slotMemory, error) {
	for _, m := range t.b.choices.slots {
		if _, ok := m.find(items[0].Record.Gate.Data); ok {
			return m, nil
		}
	}
	return nil, errors.New("run experts: the records lie outside of the slots of this backend")
}
