//go:build linux && (amd64 || arm64)

package ptx

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"lector/metal"
)

// line is a queue of things between goroutines that never blocks who adds.
type line[T any] struct {
	mu      sync.Mutex
	arrived sync.Cond
	waiting []T
	closed  bool
	changes atomic.Int32 // what was put, and closing
}

func (l *line[T]) start() { l.arrived.L = &l.mu }

// put says whether the line was open.
func (l *line[T]) put(x T) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.waiting = append(l.waiting, x)
	l.changes.Add(1)
	l.arrived.Signal()
	return true
}

// take waits for the next; false when the line is closed and empty.
func (l *line[T]) take() (T, bool) {
	l.mu.Lock()
	if len(l.waiting) == 0 && !l.closed {
		seen := l.changes.Load()
		l.mu.Unlock()
		for began := time.Now(); l.changes.Load() == seen && time.Since(began) < patience; {
		}
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	for len(l.waiting) == 0 && !l.closed {
		l.arrived.Wait()
	}
	var x T
	if len(l.waiting) == 0 {
		return x, false
	}
	x, l.waiting = l.waiting[0], l.waiting[1:]
	return x, true
}

// close says whether it was open.
func (l *line[T]) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := !l.closed
	l.closed = true
	l.changes.Add(1)
	l.arrived.Signal()
	return was
}

// queue implements metal.Queue. One goroutine hands command buffers to a stream in the order of Commit; another waits
// for what the stream has reached, raises events and ends command buffers.
type queue struct {
	device    *device
	label     string
	stream    uintptr
	quit      chan struct{} // closed by Close: ends waits for events
	done      chan struct{} // closed when both goroutines have ended
	committed line[*commands]
	underway  line[landing]
	call      launchCall // of the goroutine that submits, as what follows
	graphs    graphs
	told      []uint64
}

// landing is a point of the stream that something happens at: an event is raised, or a command buffer ends.
type landing struct {
	commands *commands
	mark     uintptr // 0: nothing to wait for
	event    *event  // nil: the end
	value    uint64
}

// NewQueue implements metal.Device.
func (d *device) NewQueue(label string) (metal.Queue, error) {
	q := &queue{device: d, label: label, quit: make(chan struct{}), done: make(chan struct{})}
	q.committed.start()
	q.underway.start()
	err := d.do(func() error { return d.driver.check("make a stream", d.driver.streamCreate(&q.stream, streamApart)) })
	if err != nil {
		return nil, fmt.Errorf("open queue %q: %w", label, err)
	}
	go q.submitAll()
	go q.landAll()
	return q, nil
}

// submitAll is the goroutine that hands over.
func (q *queue) submitAll() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer q.underway.close()
	q.device.driver.contextSet(q.device.context)
	for {
		c, ok := q.committed.take()
		if !ok {
			return
		}
		q.submit(c)
	}
}

// submit hands one command buffer over, step by step. After an error nothing of it is handed over any more, but its
// events are still raised, so that nobody waits for them in vain.
func (q *queue) submit(c *commands) {
	c.failed(c.gather(q.stream), "")
	for i := 0; i < len(c.steps); i++ {
		s := &c.steps[i]
		switch {
		case s.signal:
			q.pause(c)
			mark := q.mark(c)
			if mark != 0 {
				s.event.promised(s.value, mark)
			}
			q.underway.put(landing{c, mark, s.event, s.value})
		case c.refused != nil:
		case s.event != nil:
			q.pause(c)
			c.failed(s.event.await(s.value, q.stream, q.quit), "")
		case s.copy != nil:
			c.failed(q.begin(c), "")
			c.failed(q.copy(s.copy), "")
		default:
			n := run(c.steps[i:])
			q.launch(c, c.steps[i:i+n])
			i += n - 1
		}
	}
	q.pause(c)
	q.underway.put(landing{commands: c, mark: q.mark(c)})
}

// launch hands a run of dispatches over: as a graph, or one by one up to the first error.
func (q *queue) launch(c *commands, steps []step) {
	c.failed(q.begin(c), steps[0].encoder)
	if c.refused != nil {
		return
	}
	if done, err := q.graphed(steps); done || err != nil {
		c.failed(err, steps[0].encoder)
		return
	}
	for i := range steps {
		if c.refused == nil {
			c.failed(q.dispatch(steps[i].dispatch), steps[i].encoder)
		}
	}
}

// mark records the driver's event at the end of the stream as it is now; 0 after an error.
func (q *queue) mark(c *commands) uintptr {
	e, err := q.device.marks.take()
	if err == nil {
		err = q.device.driver.check("record an event", q.device.driver.eventRecord(e, q.stream))
	}
	if err != nil {
		c.failed(q.device.noted(err), "")
		q.device.marks.put(e)
		return 0
	}
	return e
}

// begin starts the clock of a run of dispatches.
func (q *queue) begin(c *commands) error {
	if c.running {
		return nil
	}
	c.running = true
	return q.tick(c)
}

// pause stops it: what follows waits, or lets others wait.
func (q *queue) pause(c *commands) {
	if c.running {
		c.running = false
		c.failed(q.tick(c), "")
	}
}

func (q *queue) tick(c *commands) error {
	e, err := q.device.clocks.take()
	if err != nil {
		return err
	}
	c.ticks = append(c.ticks, e)
	return q.device.driver.check("record a time", q.device.driver.eventRecord(e, q.stream))
}

// copy moves bytes by the device's engines for it.
func (q *queue) copy(x *copying) error {
	if err := errors.Join(x.from.bound(q.stream, false), x.to.bound(q.stream, true)); err != nil {
		return err
	}
	return q.device.noted(q.device.driver.check("copy", q.device.driver.copyAsync(x.at, x.of, uint64(x.n), q.stream)))
}

// launchCall is what a launch points the driver at. It is part of the queue, which does not move.
type launchCall struct {
	values   [64]uint64
	pointers [64]uintptr
	node     kernelNode
}

// argument points the driver at what an argument is bound to.
func (c *launchCall) argument(i int, b *binding) {
	if b.inside != nil {
		if !b.carried() {
			b.inside.at = b.at
		}
		c.pointers[i] = uintptr(unsafe.Pointer(b.inside)) // the command buffer holds it
		return
	}
	c.values[i] = b.at
	c.pointers[i] = uintptr(unsafe.Pointer(&c.values[i]))
}

// dispatch launches one kernel.
func (q *queue) dispatch(x *dispatch) error {
	for i := range x.bindings {
		b := &x.bindings[i]
		if b.buffer != nil {
			if err := b.buffer.bound(q.stream, b.written); err != nil {
				return err
			}
		}
		q.call.argument(i, b)
	}
	g, t := x.groups, x.threads
	r, _, _ := purego.SyscallN(q.device.driver.launch, x.pipeline.function, uintptr(g.X), uintptr(g.Y), uintptr(g.Z),
		uintptr(t.X), uintptr(t.Y), uintptr(t.Z), uintptr(x.memory), q.stream, uintptr(unsafe.Pointer(&q.call.pointers[0])), 0)
	runtime.KeepAlive(q)
	runtime.KeepAlive(x)
	s := status(int32(r))
	if s == statusOK && q.device.options.Careful {
		s = q.device.driver.streamSync(q.stream)
	}
	if err := q.device.noted(q.device.driver.check("launch", s)); err != nil {
		return fmt.Errorf("kernel %s: %w", x.pipeline.Kernel(), err)
	}
	return nil
}

// landAll is the goroutine that waits for the stream.
func (q *queue) landAll() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(q.done)
	q.device.driver.contextSet(q.device.context)
	for {
		l, ok := q.underway.take()
		if !ok {
			return
		}
		q.land(l)
	}
}

func (q *queue) land(l landing) {
	if l.mark != 0 {
		if err := q.device.noted(q.device.driver.check("run", q.reached(l.mark))); err != nil && l.commands.fault == nil {
			l.commands.fault = fmt.Errorf("one of the kernels %s: %w", l.commands.kernels(), err)
		}
	}
	if l.event != nil {
		l.event.raise(l.value)
		q.device.marks.put(l.mark)
		return
	}
	q.device.marks.put(l.mark)
	q.end(l.commands)
}

// patience is how long a thread looks for what it waits for before it sleeps: about what a token takes, as waking a thread
// takes long beside one of its dispatches, and three are woken a token.
const patience = 2 * time.Millisecond

// reached waits for a mark.
func (q *queue) reached(mark uintptr) status {
	for began := time.Now(); time.Since(began) < patience; {
		if s := q.device.driver.eventQuery(mark); s != statusNotReady {
			return s
		}
	}
	return q.device.driver.eventSync(mark)
}

// end gives a command buffer its results.
func (q *queue) end(c *commands) {
	var spent time.Duration
	for i := 0; i+1 < len(c.ticks); i += 2 {
		var ms float32
		if q.device.driver.eventElapsed(&ms, c.ticks[i], c.ticks[i+1]) == statusOK {
			spent += max(time.Duration(float64(ms)*1e6), 1)
		}
	}
	for _, e := range c.ticks {
		q.device.clocks.put(e)
	}
	q.device.chunks.put(c.chunk)
	c.chunk, c.ticks, c.steps = nil, nil, nil
	err := c.refused
	if err == nil && c.fault != nil {
		err = fmt.Errorf("command buffer %q: %w", c.Label(), c.fault)
	}
	c.Finish(err, spent)
}

// kernels are the names of a command buffer's, each once.
func (c *commands) kernels() string {
	var names []string
	seen := map[string]bool{}
	for _, s := range c.steps {
		if s.dispatch != nil && !seen[s.dispatch.pipeline.Kernel()] {
			seen[s.dispatch.pipeline.Kernel()] = true
			names = append(names, s.dispatch.pipeline.Kernel())
		}
	}
	return strings.Join(names, ", ")
}

// Close implements metal.Queue. Work that still waits for an event of the host ends with an error.
func (q *queue) Close() error {
	if q.committed.close() {
		close(q.quit)
		<-q.done
		d := q.device
		err := d.do(func() error {
			return errors.Join(q.graphs.close(d), d.driver.check("close a stream", d.driver.streamDestroy(q.stream)))
		})
		if d.lost.Load() != nil || errors.Is(err, ErrLost) {
			return nil
		}
		return err
	}
	<-q.done
	return nil
}
