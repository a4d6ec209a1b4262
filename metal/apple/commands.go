//go:build (darwin && arm64) || (linux && (amd64 || arm64))

package apple

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"lector/metal"
)

// step is one entry of a command buffer's list: it sends its messages to the encoder or, outside of one, to
// the command buffer.
type step func(d *device, target id)

// run is an encoder's list, or one event outside of an encoder.
type run struct {
	label string // of the encoder
	event step
	steps []step
}

// raise is an event that the command buffer raises.
type raise struct {
	event *event
	value uint64
}

// commands implements metal.CommandBuffer. Until Commit one goroutine writes it, then the queue's; done is
// closed when its results may be read.
type commands struct {
	queue     *queue
	label     string
	runs      []run
	raises    []raise
	open      *encoder
	misuse    error // the first of encoding
	committed bool
	id        id // retained from Commit until finish
	done      chan struct{}
	err       error
	spent     time.Duration
}

// fault keeps the first misuse, which Commit returns.
func (c *commands) fault(format string, args ...any) {
	if c.misuse == nil {
		c.misuse = fmt.Errorf("command buffer %q: "+format, append([]any{c.label}, args...)...)
	}
}

// writable says whether something can be added now, outside of an encoder.
func (c *commands) writable(what string) bool {
	if c.committed || c.open != nil {
		c.fault("%s after Commit or before the encoder's End", what)
		return false
	}
	return true
}

// Encoder implements metal.CommandBuffer.
func (c *commands) Encoder(label string) (metal.Encoder, error) {
	if !c.writable("encoder " + label) {
		return nil, c.misuse
	}
	c.open = &encoder{commands: c, label: label}
	return c.open, nil
}

// WaitEvent implements metal.CommandBuffer.
func (c *commands) WaitEvent(e metal.SharedEvent, value uint64) {
	if own := c.ownEvent(e); own != nil {
		c.runs = append(c.runs, run{event: func(d *device, target id) { d.send2(target, d.sel.encodeWait, uintptr(own.id), uintptr(value)) }})
	}
}

// SignalEvent implements metal.CommandBuffer.
func (c *commands) SignalEvent(e metal.SharedEvent, value uint64) {
	if own := c.ownEvent(e); own != nil {
		c.raises = append(c.raises, raise{own, value})
		c.runs = append(c.runs, run{event: func(d *device, target id) { d.send2(target, d.sel.encodeSignal, uintptr(own.id), uintptr(value)) }})
	}
}

func (c *commands) ownEvent(e metal.SharedEvent) *event {
	own, ok := e.(*event)
	if !ok || own.device != c.queue.device {
		c.fault("an event of another device")
		return nil
	}
	if !c.writable("an event") {
		return nil
	}
	return own
}

// Commit implements metal.CommandBuffer.
func (c *commands) Commit() error {
	if c.committed {
		return fmt.Errorf("command buffer %q is committed already", c.label)
	}
	if c.open != nil {
		c.fault("encoder %q was not ended", c.open.label)
	}
	c.committed = true
	err := c.misuse
	if err == nil {
		c.queue.device.pool(func() { err = c.encode() })
	}
	if err != nil {
		c.err = err
		close(c.done)
	}
	return err
}

// encode makes the Metal command buffer, inside of a pool, and commits it.
func (c *commands) encode() error {
	q, d := c.queue, c.queue.device
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("commit %q to queue %q: it was closed", c.label, q.label)
	}
	const encoderExecutionStatus = 1
	descriptor := id(d.send(d.classNamed("MTLCommandBufferDescriptor"), d.sel.new))
	defer d.release(descriptor)
	d.send1(descriptor, d.sel.setErrorOptions, encoderExecutionStatus)
	c.id = id(d.send1(q.id, d.sel.commandBuffer, uintptr(descriptor)))
	if c.id == 0 {
		return fmt.Errorf("%w: Metal gives no command buffer for %q", metal.ErrMemory, c.label)
	}
	d.retain(c.id)
	d.send1(c.id, d.sel.setLabel, uintptr(d.nsString(c.label)))
	for _, r := range c.runs {
		if r.event != nil {
			r.event(d, c.id)
			continue
		}
		e := id(d.send(c.id, d.sel.computeEncoder))
		if e == 0 {
			d.release(c.id)
			return fmt.Errorf("%w: Metal gives no encoder for %q", metal.ErrMemory, r.label)
		}
		d.send1(e, d.sel.setLabel, uintptr(d.nsString(r.label)))
		for _, s := range r.steps {
			s(d, e)
		}
		d.send(e, d.sel.endEncoding)
	}
	d.resident.settle(d)
	d.send(c.id, d.sel.commit)
	q.underway = append(q.underway, c)
	q.arrived.Signal()
	c.runs = nil // Metal holds what the work uses
	return nil
}

// finish waits for the work and reads what came of it.
func (c *commands) finish() {
	d := c.queue.device
	d.pool(func() {
		d.send(c.id, d.sel.waitUntilCompleted)
		c.spent = max(time.Duration((d.double(c.id, d.sel.gpuEnd)-d.double(c.id, d.sel.gpuStart))*1e9), 1)
		const statusCompleted = 4
		if d.send(c.id, d.sel.status) != statusCompleted {
			reason := id(d.send(c.id, d.sel.err))
			c.err = fmt.Errorf("command buffer %q, %s: %w", c.label, d.failedEncoders(reason), d.nsError(reason))
		}
		d.release(c.id)
	})
	if c.err != nil {
		for _, r := range c.raises {
			r.event.Signal(r.value)
		}
	}
	close(c.done)
}

// failedEncoders names the encoders that an error of a command buffer blames.
func (d *device) failedEncoders(reason id) string {
	const faulted = 4
	if reason == 0 || d.errorKey == 0 {
		return "encoder unknown"
	}
	var names []string
	infos := id(d.send1(id(d.send(reason, d.sel.userInfo)), d.sel.objectForKey, uintptr(d.errorKey)))
	for i := range d.send(infos, d.sel.count) {
		info := id(d.send1(infos, d.sel.objectAtIdx, i))
		if d.send(info, d.sel.errorState) == faulted {
			names = append(names, fmt.Sprintf("encoder %q", d.goString(id(d.send(info, d.sel.label)))))
		}
	}
	if len(names) == 0 {
		return "encoder unknown"
	}
	return strings.Join(names, ", ")
}

var errNotCommitted = errors.New("it was not committed")

// Wait implements metal.CommandBuffer.
func (c *commands) Wait(ctx context.Context) error {
	if !c.committed {
		return fmt.Errorf("wait for command buffer %q: %w", c.label, errNotCommitted)
	}
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("wait for command buffer %q: %w", c.label, ctx.Err())
	}
}

// DeviceTime implements metal.CommandBuffer.
func (c *commands) DeviceTime() time.Duration {
	select {
	case <-c.done:
		return c.spent
	default:
		return 0
	}
}

// encoder implements metal.Encoder: it checks and lists.
type encoder struct {
	commands *commands
	label    string
	steps    []step
	pipeline *pipeline
	memory   [metal.MaxBuffers]int
	ended    bool
}

func (e *encoder) fault(format string, args ...any) {
	e.commands.fault("encoder %q: "+format, append([]any{e.label}, args...)...)
}

func (e *encoder) add(what string, s step) {
	if e.ended {
		e.fault("%s after End", what)
		return
	}
	e.steps = append(e.steps, s)
}

// SetPipeline implements metal.Encoder.
func (e *encoder) SetPipeline(p metal.Pipeline) {
	own, ok := p.(*pipeline)
	if !ok || own.device != e.commands.queue.device {
		e.fault("a pipeline of another device")
		return
	}
	e.pipeline = own
	e.add("SetPipeline", func(d *device, target id) { d.send1(target, d.sel.setPipeline, uintptr(own.id)) })
}

// SetBuffer implements metal.Encoder.
func (e *encoder) SetBuffer(index int, b metal.Buffer, offset int) {
	own, ok := b.(*buffer)
	if !ok || own.device != e.commands.queue.device {
		e.fault("buffer %d is of another device", index)
		return
	}
	switch err := metal.CheckBuffer(index, offset, len(own.data)); {
	case err != nil:
		e.fault("%w", err)
	default:
		e.add("SetBuffer", func(d *device, target id) {
			d.send3(target, d.sel.setBuffer, uintptr(own.id), uintptr(offset), uintptr(index))
		})
	}
}

// SetBytes implements metal.Encoder.
func (e *encoder) SetBytes(index int, block []byte) {
	switch err := metal.CheckBlock(index, len(block)); {
	case err != nil:
		e.fault("%w", err)
	default:
		own := append([]byte(nil), block...)
		e.add("SetBytes", func(d *device, target id) {
			d.send3(target, d.sel.setBytes, uintptr(unsafe.Pointer(unsafe.SliceData(own))), uintptr(len(own)), uintptr(index))
		})
	}
}

// SetThreadgroupMemory implements metal.Encoder.
func (e *encoder) SetThreadgroupMemory(index, bytes int) {
	switch err := metal.CheckThreadgroupMemory(index, bytes, e.commands.queue.device.props.ThreadgroupMemory); {
	case err != nil:
		e.fault("%w", err)
	default:
		e.memory[index] = bytes
		e.add("SetThreadgroupMemory", func(d *device, target id) { d.send2(target, d.sel.setThreadgroup, uintptr(bytes), uintptr(index)) })
	}
}

// Dispatch implements metal.Encoder.
func (e *encoder) Dispatch(groups, threads metal.Size) {
	if e.pipeline == nil {
		e.fault("a dispatch before SetPipeline")
		return
	}
	if err := metal.CheckDispatch(e.pipeline, groups, threads); err != nil {
		e.fault("%w", err)
		return
	}
	total := e.pipeline.threadgroup
	for _, n := range e.memory {
		total += n
	}
	if limit := e.commands.queue.device.props.ThreadgroupMemory; total > limit {
		e.fault("kernel %s: %d bytes of threadgroup memory, where a group has %d", e.pipeline.kernel, total, limit)
		return
	}
	e.add("Dispatch", func(d *device, target id) { d.sendSizes(target, d.sel.dispatch, mtlSize(groups), mtlSize(threads)) })
}

func mtlSize(s metal.Size) size { return size{uint64(s.X), uint64(s.Y), uint64(s.Z)} }

// End implements metal.Encoder.
func (e *encoder) End() {
	if e.ended {
		return
	}
	e.ended = true
	e.commands.open = nil
	e.commands.runs = append(e.commands.runs, run{label: e.label, steps: e.steps})
}
