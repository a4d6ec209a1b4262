package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

// Where the device's memory lies apart, records are read into slots that host and device share, and each slot has a
// twin in the device's own memory that products read. What came from the disk is copied there on a queue of its own,
// so that the next group's records come over while the device works on one; what a slot kept is there already.

// apartSlots are the twins of the slots. The zero value is a device that needs none.
type apartSlots struct {
	slotLayout
	hosts, buffers []*memory
	stale          []bool // by slot: the twin does not hold what the slot does
}

// slotLayout says where slots lie: each of them in a buffer, pitch bytes apart.
type slotLayout struct{ pitch, each, n int }

// open makes the twins of the slots in hosts.
func (a *apartSlots) open(b *Backend, hosts []*memory, l slotLayout) error {
	a.slotLayout, a.hosts, a.stale = l, hosts, make([]bool, l.n)
	for _, host := range hosts {
		twin, err := b.allocate(int(host.bytes), near)
		if err != nil {
			return err
		}
		a.buffers = append(a.buffers, twin)
	}
	return b.copies.open(b.device)
}

func (a *apartSlots) release(b *Backend) {
	for _, twin := range a.buffers {
		b.release(twin)
	}
	*a = apartSlots{}
}

// stale says that what lies at data in a slot is not in the slot's twin.
func (c *choices) stale(data []byte) bool {
	for _, m := range c.slots {
		a := &m.apart
		for i, part := range m.buffers {
			host := part.buf.Bytes()
			at := uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(unsafe.SliceData(host)))
			if at < uintptr(len(host)) {
				return a.buffers != nil && a.stale[i*a.each+int(at)/a.pitch]
			}
		}
	}
	return false
}

// expect marks the slots that a sweep fills: at its start, and again where it breaks off, since nobody knows then what
// came over.
func (a *apartSlots) expect(items []ops.Item) {
	for _, item := range items {
		if !item.Hit && a.buffers != nil {
			a.stale[item.Slot] = true
		}
	}
}

// bring copies the records of a group that are not in their twins yet, and lets the work encoded next wait for them.
// The twins are free: a slot is filled anew only after the device is done with the record that it held.
func (t *expertRun) bring(m *slotMemory, items []ops.Item) {
	a, c := &m.apart, &t.b.copies
	if a.buffers == nil || t.failed() {
		return
	}
	var moves []move
	for _, item := range items {
		if !item.Hit || a.stale[item.Slot] {
			part, off := item.Slot/a.each, item.Slot%a.each*a.pitch
			moves = append(moves, move{region{a.buffers[part].buf, off}, region{a.hosts[part].buf, off}, a.pitch})
		}
	}
	if len(moves) == 0 {
		return
	}
	if err := c.copy(&t.b.kernels, merged(moves)); err != nil {
		t.b.fail(fmt.Errorf("%w: copy records to the device: %w", ErrDevice, err))
		return
	}
	for _, item := range items {
		a.stale[item.Slot] = false
	}
	t.waitEvent(c.event, c.count)
}

// copies is the queue of copies between two places.
type copies struct {
	queue  metal.Queue
	event  metal.SharedEvent
	count  uint64 // that event reaches with the last copy
	flying []metal.CommandBuffer
}

// move copies n bytes, a multiple of 4.
type move struct {
	to, from region
	n        int
}

func (c *copies) open(d metal.Device) error {
	if c.queue != nil {
		return nil
	}
	queue, err := d.NewQueue("records")
	if err != nil {
		return err
	}
	event, err := d.NewEvent()
	if err != nil {
		return errors.Join(err, queue.Close())
	}
	c.queue, c.event = queue, event
	return nil
}

// copy hands the moves to the queue, and counts.
func (c *copies) copy(k *kernels, moves []move) error {
	cb, err := c.queue.NewCommandBuffer("records")
	if err != nil {
		return err
	}
	if engine, ok := cb.(metal.Copier); ok {
		for _, m := range moves {
			engine.Copy(m.to.buf, m.to.off, m.from.buf, m.from.off, m.n)
		}
	} else if err := copyByKernel(k, cb, moves); err != nil {
		return err
	}
	cb.SignalEvent(c.event, c.count+1)
	if err := cb.Commit(); err != nil {
		return err
	}
	c.count++
	c.flying = append(c.flying, cb)
	return nil
}

// copyByKernel encodes the moves where the device has nothing better.
func copyByKernel(k *kernels, cb metal.CommandBuffer, moves []move) error {
	p, err := k.pipeline(string(denseCopy), constants{})
	if err != nil {
		return err
	}
	enc, err := cb.Encoder(string(denseCopy))
	if err != nil {
		return err
	}
	enc.SetPipeline(p)
	for _, m := range moves {
		params := shaders.CopyParams{Cols: uint32(m.n / 4)}
		enc.SetBytes(shaders.Params, unsafe.Slice((*byte)(unsafe.Pointer(&params)), unsafe.Sizeof(params)))
		enc.SetBuffer(shaders.CopyDst, m.to.buf, m.to.off)
		enc.SetBuffer(shaders.CopySrc, m.from.buf, m.from.off)
		enc.Dispatch(rowsBy(1, m.n/4, elementThreads), metal.Size{X: elementThreads, Y: 1, Z: 1})
	}
	enc.End()
	return nil
}

// merged joins moves whose ends meet on both sides.
func merged(moves []move) (all []move) {
	slices.SortFunc(moves, func(a, b move) int { return cmp.Compare(a.from.off, b.from.off) })
	for _, m := range moves {
		if last := len(all) - 1; last >= 0 && all[last].to.plus(all[last].n) == m.to && all[last].from.plus(all[last].n) == m.from {
			all[last].n += m.n
			continue
		}
		all = append(all, m)
	}
	return all
}

// settle reads how the copies ended. The work that uses them has waited for them already.
func (c *copies) settle() error {
	var errs []error
	for _, cb := range c.flying {
		if err := cb.Wait(context.Background()); err != nil {
			errs = append(errs, fmt.Errorf("%w: copy records to the device: %w", ErrDevice, err))
		}
	}
	c.flying = nil
	return errors.Join(errs...)
}

func (c *copies) close() error {
	if c.queue == nil {
		return nil
	}
	return errors.Join(c.queue.Close(), c.event.Close())
}
