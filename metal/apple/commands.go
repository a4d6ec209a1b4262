//go:build (darwin && arm64) || (linux && (amd64 || arm64))

package apple

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"lector/metal"
	"lector/metal/encode"
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

// commands implements metal.CommandBuffer. Until Commit one goroutine writes it, then the queue's.
type commands struct {
	encode.Commands
	queue  *queue
	runs   []run
	raises []raise
	id     id // retained from Commit until finish
}

// Encoder implements metal.CommandBuffer.
func (c *commands) Encoder(label string) (metal.Encoder, error) {
	e := &encoder{commands: c}
	if err := c.Begin(&e.Encoder, label); err != nil {
		return nil, err
	}
	return e, nil
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
	if !c.Ours("an event", ok && own.device == c.queue.device) || !c.Writable("an event") {
		return nil
	}
	return own
}

// Commit implements metal.CommandBuffer.
func (c *commands) Commit() error {
	return c.Commands.Commit(func() (err error) {
		c.queue.device.pool(func() { err = c.encode() })
		return err
	})
}

// encode makes the Metal command buffer, inside of a pool, and commits it.
func (c *commands) encode() error {
	q, d := c.queue, c.queue.device
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("commit %q to queue %q: it was closed", c.Label(), q.label)
	}
	const encoderExecutionStatus = 1
	descriptor := id(d.send(d.classNamed("MTLCommandBufferDescriptor"), d.sel.new))
	defer d.release(descriptor)
	d.send1(descriptor, d.sel.setErrorOptions, encoderExecutionStatus)
	c.id = id(d.send1(q.id, d.sel.commandBuffer, uintptr(descriptor)))
	if c.id == 0 {
		return fmt.Errorf("%w: Metal gives no command buffer for %q", metal.ErrMemory, c.Label())
	}
	d.retain(c.id)
	d.send1(c.id, d.sel.setLabel, uintptr(d.nsString(c.Label())))
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
	var failed error
	var spent time.Duration
	d.pool(func() {
		d.send(c.id, d.sel.waitUntilCompleted)
		spent = max(time.Duration((d.double(c.id, d.sel.gpuEnd)-d.double(c.id, d.sel.gpuStart))*1e9), 1)
		const statusCompleted = 4
		if d.send(c.id, d.sel.status) != statusCompleted {
			reason := id(d.send(c.id, d.sel.err))
			failed = fmt.Errorf("command buffer %q, %s: %w", c.Label(), d.failedEncoders(reason), d.nsError(reason))
		}
		d.release(c.id)
	})
	if failed != nil {
		for _, r := range c.raises {
			r.event.Signal(r.value)
		}
	}
	c.Finish(failed, spent)
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

// encoder implements metal.Encoder: it checks and lists.
type encoder struct {
	encode.Encoder
	commands *commands
	steps    []step
	pipeline *pipeline
	memory   [metal.MaxBuffers]int
}

func (e *encoder) add(s step) { e.steps = append(e.steps, s) }

// SetPipeline implements metal.Encoder.
func (e *encoder) SetPipeline(p metal.Pipeline) {
	own, ok := p.(*pipeline)
	if e.Ours("a pipeline", ok && own.device == e.commands.queue.device) && e.Choose(own) {
		e.pipeline = own
		e.add(func(d *device, target id) { d.send1(target, d.sel.setPipeline, uintptr(own.id)) })
	}
}

// SetBuffer implements metal.Encoder.
func (e *encoder) SetBuffer(index int, b metal.Buffer, offset int) {
	own, ok := b.(*buffer)
	if e.Ours("a buffer", ok && own.device == e.commands.queue.device) && e.Buffer(index, offset, len(own.data)) {
		e.add(func(d *device, target id) {
			d.send3(target, d.sel.setBuffer, uintptr(own.id), uintptr(offset), uintptr(index))
		})
	}
}

// SetBytes implements metal.Encoder.
func (e *encoder) SetBytes(index int, block []byte) {
	if e.Block(index, len(block)) {
		own := bytes.Clone(block)
		e.add(func(d *device, target id) {
			d.send3(target, d.sel.setBytes, uintptr(unsafe.Pointer(unsafe.SliceData(own))), uintptr(len(own)), uintptr(index))
		})
	}
}

// SetThreadgroupMemory implements metal.Encoder.
func (e *encoder) SetThreadgroupMemory(index, bytes int) {
	if e.Memory(index, bytes, e.commands.queue.device.props.ThreadgroupMemory) {
		e.memory[index] = bytes
		e.add(func(d *device, target id) { d.send2(target, d.sel.setThreadgroup, uintptr(bytes), uintptr(index)) })
	}
}

// Dispatch implements metal.Encoder.
func (e *encoder) Dispatch(groups, threads metal.Size) {
	if !e.Grid(groups, threads) {
		return
	}
	total := e.pipeline.threadgroup
	for _, n := range e.memory {
		total += n
	}
	if limit := e.commands.queue.device.props.ThreadgroupMemory; total > limit {
		e.Misused("kernel %s: %d bytes of threadgroup memory, where a group has %d", e.pipeline.kernel, total, limit)
		return
	}
	e.add(func(d *device, target id) { d.sendSizes(target, d.sel.dispatch, mtlSize(groups), mtlSize(threads)) })
}

func mtlSize(s metal.Size) size { return size{uint64(s.X), uint64(s.Y), uint64(s.Z)} }

// End implements metal.Encoder.
func (e *encoder) End() {
	if !e.Ended() {
		e.Encoder.End()
		e.commands.runs = append(e.commands.runs, run{label: e.Label(), steps: e.steps})
	}
}
