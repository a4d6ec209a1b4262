package metaltest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"lector/metal"
)

// after is what n steps x = 3 x + i make of 1.
func after(n int) uint32 {
	x := uint32(1)
	for i := range n {
		x = x*3 + uint32(i)
	}
	return x
}

// ones is a buffer of n words 1.
func (r *rig) ones(t *testing.T, n int) metal.Buffer {
	b := r.buffer(t, 4*n)
	for i := range uints(b) {
		uints(b)[i] = 1
	}
	return b
}

func expectAll(t *testing.T, b metal.Buffer, want uint32) {
	t.Helper()
	for i, v := range uints(b) {
		if v != want {
			t.Fatalf("word %d is %d, want %d", i, v, want)
		}
	}
}

func (r *rig) orderInEncoder(t *testing.T) {
	p, x := r.pipeline(t, "suite_step"), r.ones(t, 1000)
	c, e := begin(t, r.queue(t))
	for i := range 40 {
		step(e, p, x, [3]uint32{1000, 3, uint32(i)})
		if i%10 == 9 {
			e.End()
			e = encoder(t, c)
		}
	}
	finish(t, c, e)
	expectAll(t, x, after(40))
}

func (r *rig) orderInQueue(t *testing.T) {
	p, x, q := r.pipeline(t, "suite_step"), r.ones(t, 1000), r.queue(t)
	var last metal.CommandBuffer
	for i := range 30 {
		c, e := begin(t, q)
		step(e, p, x, [3]uint32{1000, 3, uint32(i)})
		e.End()
		commit(t, c)
		last = c
	}
	wait(t, last)
	wait(t, last)
	expectAll(t, x, after(30))
}

// orderAcrossQueues lets two queues take turns on one buffer; the second queue's work is committed first.
func (r *rig) orderAcrossQueues(t *testing.T) {
	p, x := r.pipeline(t, "suite_step"), r.ones(t, 500)
	queues := []metal.Queue{r.queue(t), r.queue(t)}
	done := []metal.SharedEvent{r.event(t), r.event(t)} // each has one writer: the queue of its index
	const rounds = 10
	var last [2]metal.CommandBuffer
	for _, me := range []int{1, 0} {
		for i := me; i < 2*rounds; i += 2 {
			c := commands(t, queues[me])
			if i > 0 {
				c.WaitEvent(done[1-me], uint64(i))
			}
			e := encoder(t, c)
			step(e, p, x, [3]uint32{500, 3, uint32(i)})
			e.End()
			c.SignalEvent(done[me], uint64(i+1))
			commit(t, c)
			last[me] = c
		}
	}
	wait(t, last[0])
	wait(t, last[1])
	expectAll(t, x, after(2*rounds))
	if done[1].Value() != 2*rounds {
		t.Errorf("the event is at %d, want %d", done[1].Value(), 2*rounds)
	}
}

// manyQueues uses one device from several goroutines.
func (r *rig) manyQueues(t *testing.T) {
	p := r.pipeline(t, "suite_step")
	var all sync.WaitGroup
	for range 4 {
		q, x := r.queue(t), r.ones(t, 200)
		all.Go(func() {
			for i := range 10 {
				c, err := q.NewCommandBuffer("many")
				if err != nil {
					t.Error(err)
					return
				}
				e, err := c.Encoder("many")
				if err != nil {
					t.Error(err)
					return
				}
				step(e, p, x, [3]uint32{200, 3, uint32(i)})
				e.End()
				if err := errors.Join(c.Commit(), c.Wait(context.Background())); err != nil {
					t.Error(err)
					return
				}
			}
			for i, v := range uints(x) {
				if v != after(10) {
					t.Errorf("word %d is %d, want %d", i, v, after(10))
					return
				}
			}
		})
	}
	all.Wait()
}

func (r *rig) events(t *testing.T) {
	e := r.event(t)
	if e.Value() != 0 {
		t.Errorf("a new event is at %d", e.Value())
	}
	if err := e.Wait(0, 0); err != nil {
		t.Errorf("wait for 0: %v", err)
	}
	if err := e.Wait(1, 5*time.Millisecond); !errors.Is(err, metal.ErrTimeout) {
		t.Errorf("wait for what does not come: %v, want ErrTimeout", err)
	}
	e.Signal(5)
	e.Signal(3)
	if e.Value() != 5 {
		t.Errorf("after signals of 5 and 3 the event is at %d", e.Value())
	}
	if err := e.Wait(4, patience); err != nil {
		t.Errorf("wait for 4 at 5: %v", err)
	}
	c := commands(t, r.queue(t))
	c.WaitEvent(e, 5)
	c.SignalEvent(e, 1<<40)
	commit(t, c)
	if err := e.Wait(1<<40, patience); err != nil {
		t.Errorf("wait for a signal of an empty command buffer: %v", err)
	}
	wait(t, c)
}

// hostSignal holds work back until the host signals.
func (r *rig) hostSignal(t *testing.T) {
	p, x, gate := r.pipeline(t, "suite_step"), r.ones(t, 100), r.event(t)
	c := commands(t, r.queue(t))
	c.WaitEvent(gate, 2)
	e := encoder(t, c)
	step(e, p, x, [3]uint32{100, 5, 1})
	e.End()
	commit(t, c)
	gate.Signal(1)
	for i := range uints(x) { // the work has not begun, so the host may still write
		uints(x)[i] = 10
	}
	gate.Signal(2)
	wait(t, c)
	expectAll(t, x, 51)
}

func (r *rig) cancelledWait(t *testing.T) {
	p, x, gate := r.pipeline(t, "suite_step"), r.ones(t, 100), r.event(t)
	c := commands(t, r.queue(t))
	c.WaitEvent(gate, 1)
	e := encoder(t, c)
	step(e, p, x, [3]uint32{100, 3, 0})
	e.End()
	commit(t, c)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait that is cut short: %v, want the context's error", err)
	}
	gate.Signal(1)
	wait(t, c)
	expectAll(t, x, 3)
}

// refused commits what must be refused, and says how.
func (r *rig) refused(t *testing.T, what string, x metal.Buffer, encode func(metal.Encoder), names ...string) {
	t.Helper()
	c, e := begin(t, r.queue(t))
	step(e, r.pipeline(t, "suite_step"), x, [3]uint32{uint32(len(uints(x))), 2, 0})
	encode(e)
	e.End()
	err := c.Commit()
	if err == nil {
		wait(t, c)
		t.Errorf("%s was taken", what)
		return
	}
	for _, n := range append(names, "suite encoder") {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("%s: the error does not name %q: %v", what, n, err)
		}
	}
	if again := c.Wait(context.Background()); again == nil {
		t.Errorf("%s: Wait has no error after Commit refused", what)
	}
	expectAll(t, x, 1) // nothing of the command buffer ran
}

func (r *rig) limits(t *testing.T) {
	x, limit := r.ones(t, 64), r.device.Properties()
	one := metal.Size{X: 1, Y: 1, Z: 1}
	counts := r.pipeline(t, "suite_count")
	if n := counts.MaxThreads(); n > 64 {
		t.Errorf("a kernel bounded to 64 threads says %d", n)
	}
	for what, encode := range map[string]func(metal.Encoder){
		"too many threads":        func(e metal.Encoder) { e.Dispatch(one, metal.Size{X: limit.MaxThreads, Y: 2, Z: 1}) },
		"no threads":              func(e metal.Encoder) { e.Dispatch(one, metal.Size{X: 0, Y: 1, Z: 1}) },
		"no groups":               func(e metal.Encoder) { e.Dispatch(metal.Size{X: 1, Y: 0, Z: 1}, one) },
		"threads that overflow":   func(e metal.Encoder) { e.Dispatch(one, metal.Size{X: 1 << 32, Y: 1 << 32, Z: 1}) },
		"more than its kernel's":  func(e metal.Encoder) { e.SetPipeline(counts); e.Dispatch(one, metal.Size{X: 65, Y: 1, Z: 1}) },
		"a negative group number": func(e metal.Encoder) { e.Dispatch(metal.Size{X: -1, Y: 1, Z: 1}, one) },
	} {
		r.refused(t, what, x, encode, "suite_")
	}
	r.refused(t, "too much threadgroup memory", x, func(e metal.Encoder) { e.SetThreadgroupMemory(0, limit.ThreadgroupMemory+16) })
	r.refused(t, "ragged threadgroup memory", x, func(e metal.Encoder) { e.SetThreadgroupMemory(0, 20) })
}

func (r *rig) misuse(t *testing.T) {
	x := r.ones(t, 64)
	r.refused(t, "an offset beyond the buffer", x, func(e metal.Encoder) { e.SetBuffer(0, x, 256) })
	r.refused(t, "a negative offset", x, func(e metal.Encoder) { e.SetBuffer(0, x, -4) })
	r.refused(t, "a buffer index beyond the last", x, func(e metal.Encoder) { e.SetBuffer(metal.MaxBuffers, x, 0) })
	r.refused(t, "a block at a negative index", x, func(e metal.Encoder) { e.SetBytes(-1, []byte{1}) })

	c, e := begin(t, r.queue(t))
	e.Dispatch(row(32, 32))
	e.End()
	if err := c.Commit(); err == nil {
		t.Error("a dispatch without a pipeline was taken")
	}
	c, _ = begin(t, r.queue(t))
	if err := c.Commit(); err == nil {
		t.Error("a command buffer with an open encoder was committed")
	}
	c = commands(t, r.queue(t))
	if err := c.Wait(context.Background()); err == nil {
		t.Error("a command buffer that was not committed was waited for")
	}
	commit(t, c)
	if err := c.Commit(); err == nil {
		t.Error("a command buffer was committed twice")
	}
	wait(t, c)
	if _, err := c.Encoder("late"); err == nil {
		t.Error("an encoder began after Commit")
	}
}

func (r *rig) deviceTime(t *testing.T) {
	x := r.ones(t, 1<<14)
	c, e := begin(t, r.queue(t))
	step(e, r.pipeline(t, "suite_step"), x, [3]uint32{1 << 14, 3, 1})
	finish(t, c, e)
	if d := c.DeviceTime(); d <= 0 || d > patience {
		t.Errorf("the device worked for %v", d)
	}
}
