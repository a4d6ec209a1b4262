package soft_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"lector/metal"
	"lector/metal/metaltest"
	"lector/metal/soft"
)

// pair is two queues that share a buffer: the first writes it, the second reads it.
type pair struct {
	writer, reader metal.Queue
	write, read    metal.Pipeline
	x, y           metal.Buffer
	event          metal.SharedEvent
}

func newPair(t *testing.T, d metal.Device) *pair {
	t.Helper()
	l, err := d.Compile(metaltest.Source())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := &pair{}
	var errs [7]error
	p.writer, errs[0] = d.NewQueue("writer")
	p.reader, errs[1] = d.NewQueue("reader")
	p.write, errs[2] = l.Pipeline("suite_step", nil)
	p.read, errs[3] = l.Pipeline("suite_copy", nil)
	p.x, errs[4] = d.NewBuffer(256)
	p.y, errs[5] = d.NewBuffer(256)
	p.event, errs[6] = d.NewEvent()
	must(errors.Join(errs[:]...))
	t.Cleanup(func() {
		must(errors.Join(p.writer.Close(), p.reader.Close(), p.write.Close(), p.read.Close(), p.x.Close(), p.y.Close(), l.Close()))
	})
	return p
}

// commands encodes one dispatch of a queue.
func (p *pair) commands(t *testing.T, write bool, before, after func(metal.CommandBuffer)) metal.CommandBuffer {
	t.Helper()
	q, kernel, label := p.reader, p.read, "reading"
	if write {
		q, kernel, label = p.writer, p.write, "writing"
	}
	c, err := q.NewCommandBuffer(label)
	if err != nil {
		t.Fatal(err)
	}
	before(c)
	e, err := c.Encoder(label)
	if err != nil {
		t.Fatal(err)
	}
	e.SetPipeline(kernel)
	e.SetBuffer(0, p.x, 0)
	if write {
		e.SetBytes(1, []byte{64, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0})
	} else {
		e.SetBuffer(3, p.y, 0)
		e.SetBytes(7, []byte{64, 0, 0, 0})
	}
	e.Dispatch(metal.Size{X: 2, Y: 1, Z: 1}, metal.Size{X: 32, Y: 1, Z: 1})
	e.End()
	after(c)
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	return c
}

func nothing(metal.CommandBuffer) {}

// A dropped event wait between queues is found whether or not the timing went wrong.
func TestDroppedEventWait(t *testing.T) {
	d := open(t, soft.Options{Mode: soft.Race})
	ctx := context.Background()
	for _, dropped := range []bool{false, true} {
		p := newPair(t, d)
		raise := func(c metal.CommandBuffer) { c.SignalEvent(p.event, 1) }
		hold := func(c metal.CommandBuffer) {
			if !dropped {
				c.WaitEvent(p.event, 1)
			}
		}
		w := p.commands(t, true, nothing, raise)
		r := p.commands(t, false, hold, nothing)
		err := errors.Join(w.Wait(ctx), r.Wait(ctx))
		switch {
		case !dropped && err != nil:
			t.Errorf("with the wait: %v", err)
		case dropped && (err == nil || !strings.Contains(err.Error(), "with no event between") || !strings.Contains(err.Error(), "race on buffer 0")):
			t.Errorf("without the wait: %v", err)
		}
	}
}

// A host that waits for one queue before it commits to the other orders them as an event would; so does a
// host that waits for an event, or signals one that the second queue waits for.
func TestHostOrder(t *testing.T) {
	d := open(t, soft.Options{Mode: soft.Race})
	ctx := context.Background()
	p := newPair(t, d)
	w := p.commands(t, true, nothing, func(c metal.CommandBuffer) { c.SignalEvent(p.event, 1) })
	if err := w.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.commands(t, false, nothing, nothing).Wait(ctx); err != nil {
		t.Errorf("after the host's wait: %v", err)
	}
	p = newPair(t, d)
	gate, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	r := p.commands(t, false, func(c metal.CommandBuffer) { c.WaitEvent(gate, 1) }, nothing)
	p.commands(t, true, nothing, func(c metal.CommandBuffer) { c.SignalEvent(p.event, 1) })
	if err := p.event.Wait(1, patience); err != nil {
		t.Fatal(err)
	}
	gate.Signal(1)
	if err := r.Wait(ctx); err != nil {
		t.Errorf("after the host passed an event on: %v", err)
	}
}

// A failed command buffer raises its events, so that other queues end too.
func TestFailureRaisesEvents(t *testing.T) {
	b := newBench(t, soft.Options{})
	event, err := b.device.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.device.NewQueue("other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	waiting, err := other.NewCommandBuffer("waiting")
	if err != nil {
		t.Fatal(err)
	}
	waiting.WaitEvent(event, 3)
	if err := waiting.Commit(); err != nil {
		t.Fatal(err)
	}
	p, err := b.library.Pipeline("fault_write_beyond", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := b.queue.NewCommandBuffer("failing")
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Encoder("failing")
	if err != nil {
		t.Fatal(err)
	}
	e.SetPipeline(p)
	e.SetBuffer(0, b.buffer(t, 64), 0)
	e.Dispatch(metal.Size{X: 1, Y: 1, Z: 1}, metal.Size{X: 32, Y: 1, Z: 1})
	e.End()
	c.SignalEvent(event, 3)
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := waiting.Wait(context.Background()); err != nil {
		t.Errorf("the other queue: %v", err)
	}
	if err := c.Wait(context.Background()); err == nil {
		t.Error("the failing command buffer has no error")
	}
}

// Closing a queue ends work that waits for an event which nobody raises.
func TestCloseEndsWaits(t *testing.T) {
	b := newBench(t, soft.Options{})
	event, err := b.device.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.queue.NewCommandBuffer("stuck")
	if err != nil {
		t.Fatal(err)
	}
	c.WaitEvent(event, 1)
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := b.queue.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(context.Background()); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("stuck work ended with %v", err)
	}
}
