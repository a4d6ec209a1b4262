package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

// kernel names a kernel whose parameter block is a P: another block does not compile.
type kernel[P any] string

// launch is one dispatch.
type launch struct {
	buffers   []region  // by buffer index; what stays zero is not bound
	constants constants // function constants of the pipeline
	groups    metal.Size
	threads   int     // of a threadgroup, along x
	work      float64 // floating-point operations, so that command buffers stay short
}

// constants are the function constants of a pipeline: how a matrix is stored, where it reads one.
type constants struct {
	stored                    bool // the rest counts
	format, bits, group, side uint32
}

// list is the constants as a library wants them.
func (c constants) list() []metal.Constant {
	if !c.stored {
		return nil
	}
	return []metal.Constant{
		{Index: shaders.ConstantFormat, Value: c.format}, {Index: shaders.ConstantBits, Value: c.bits},
		{Index: shaders.ConstantGroup, Value: c.group}, {Index: shaders.ConstantSide, Value: c.side},
	}
}

// commands is the queue with what is encoded and what is under way.
type commands struct {
	queue   metal.Queue
	open    metal.CommandBuffer // being encoded; nil without one
	encoder metal.Encoder       // of open; nil between encoders
	kernel  string              // that encoder is labelled with
	count   int                 // dispatches in open
	enough  int                 // that are worth handing over
	total   int                 // and since New
	work    float64             // their floating-point operations
	part    ops.Part            // that open counts as
	flying  []flight
}

// flight is a command buffer under way.
type flight struct {
	metal.CommandBuffer
	part ops.Part
}

// A command buffer is committed at whichever of these it reaches first: the system stops one that holds the device for
// seconds, and the device should start before everything is encoded.
const (
	maxDispatches = 128
	maxWork       = 200e9
)

// firstDispatches are worth handing over to a device that stands still, and twice as many each time after that.
const firstDispatches = 8

// idle says that no pending work uses any memory.
func (c *commands) idle() bool { return c.open == nil && len(c.flying) == 0 }

// commit hands the open command buffer to the queue.
func (c *commands) commit() error {
	if c.open == nil {
		return nil
	}
	c.endEncoder()
	cb := c.open
	c.open, c.count, c.work, c.enough = nil, 0, 0, min(2*c.enough, maxDispatches)
	if err := cb.Commit(); err != nil {
		return fmt.Errorf("%w: commit: %w", ErrDevice, err)
	}
	c.flying = append(c.flying, flight{cb, c.part})
	return nil
}

// buffer is the open command buffer, made where there is none.
func (c *commands) buffer() (metal.CommandBuffer, error) {
	if c.open == nil {
		cb, err := c.queue.NewCommandBuffer("lector")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDevice, err)
		}
		c.open = cb
		if len(c.flying) == 0 {
			c.enough = firstDispatches
		}
	}
	return c.open, nil
}

func (c *commands) endEncoder() {
	if c.encoder != nil {
		c.encoder.End()
		c.encoder, c.kernel = nil, ""
	}
}

// encode is the encoder for a kernel's dispatch. Runs of one kernel share one; its label is what an error names.
func (c *commands) encode(kernel string) (metal.Encoder, error) {
	if c.encoder != nil && c.kernel == kernel {
		return c.encoder, nil
	}
	c.endEncoder()
	cb, err := c.buffer()
	if err != nil {
		return nil, err
	}
	enc, err := cb.Encoder(kernel)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDevice, kernel, err)
	}
	c.encoder, c.kernel = enc, kernel
	return enc, nil
}

// landed takes a finished command buffer out of those under way; false where it was no longer there.
func (c *commands) landed(f flight) bool {
	for i, other := range c.flying {
		if other == f {
			c.flying = append(c.flying[:i], c.flying[i+1:]...)
			return true
		}
	}
	return false
}

// encoding is one operation being encoded. It holds the Backend's lock, and its scratch lives until end.
type encoding struct{ b *Backend }

// begin starts an operation:
//
//	e := b.begin()
//	defer e.end()
//	dispatch(e, normHeads, shaders.NormParams{...}, launch{...})
func (b *Backend) begin() *encoding {
	b.mu.Lock()
	b.flush()
	return b.started()
}

// join starts an operation that goes with the products that wait, if it can.
func (b *Backend) join() *encoding {
	b.mu.Lock()
	return b.started()
}

func (b *Backend) started() *encoding {
	b.scratch.reset(b)
	if b.cmd.idle() {
		b.uploads.reset(b)
	}
	return &encoding{b}
}

func (e *encoding) end() { e.b.mu.Unlock() }

// failed says that a failure since the last Wait makes this operation a no-op.
func (e *encoding) failed() bool { return e.b.err != nil }

// take lends n bytes of scratch for the device alone, until the operation's end; what is in them is unknown. Later
// operations write over them, in the queue's order. After a failure the region is unbound and dispatch does nothing.
func (e *encoding) take(n int) region {
	if e.failed() {
		return region{}
	}
	r, err := e.b.scratch.take(e.b, n)
	if err != nil {
		e.b.fail(fmt.Errorf("allocate scratch: %w", err))
	}
	return r
}

// upload copies host values for the work that is encoded next; the copy lives until that work is done, and at least to
// the operation's end.
func upload[T any](e *encoding, values []T) region {
	if e.failed() {
		return region{}
	}
	data := bytesOf(values)
	r, err := e.b.uploads.take(e.b, len(data))
	if err != nil {
		e.b.fail(fmt.Errorf("allocate %d bytes for values of the host: %w", len(data), err))
		return region{}
	}
	copy(r.buf.Bytes()[r.off:], data)
	return r
}

// lasting is memory of at least n bytes under a name, kept from operation to operation. Where it has to grow, its
// content is lost and what was bound before stays valid for the work that uses it. nil after a failure.
func (e *encoding) lasting(name scratchPart, n int) *memory {
	if e.failed() {
		return nil
	}
	b := e.b
	if m := b.named[name]; m != nil && m.bytes >= int64(n) {
		return m
	}
	m, err := b.allocate(n, name.place())
	if err != nil {
		b.fail(fmt.Errorf("allocate %s: %w", name, err))
		return nil
	}
	b.release(b.named[name])
	b.named[name] = m
	return m
}

// sync waits for everything encoded so far, so that the host may read what it computed. An operation begins with it
// if it needs it: scratch and uploads are taken back. It returns false after a failure, which Wait will report.
func (e *encoding) sync() bool {
	e.b.fail(e.b.drain(context.Background()))
	e.b.scratch.reset(e.b)
	if e.b.cmd.idle() {
		e.b.uploads.reset(e.b)
	}
	return !e.failed()
}

// commit hands what is encoded so far to the device without waiting.
func (e *encoding) commit() { e.b.fail(e.b.cmd.commit()) }

// signalEvent raises the event to value when what is encoded so far is done.
func (e *encoding) signalEvent(event metal.SharedEvent, value uint64) {
	if cb := e.between(); cb != nil {
		cb.SignalEvent(event, value)
	}
}

// waitEvent holds what is encoded next until the event has reached value.
func (e *encoding) waitEvent(event metal.SharedEvent, value uint64) {
	if cb := e.between(); cb != nil {
		cb.WaitEvent(event, value)
	}
}

// between is the open command buffer, outside of an encoder; nil after a failure.
func (e *encoding) between() metal.CommandBuffer {
	if e.failed() {
		return nil
	}
	e.b.cmd.endEncoder()
	cb, err := e.b.cmd.buffer()
	if err != nil {
		e.b.fail(err)
		return nil
	}
	return cb
}

// dispatch encodes one kernel over l.groups threadgroups; none of them, or an earlier failure, makes it a no-op.
func dispatch[P any](e *encoding, k kernel[P], p P, l launch) {
	if e.failed() || l.groups.X*l.groups.Y*l.groups.Z == 0 {
		return
	}
	block := unsafe.Slice((*byte)(unsafe.Pointer(&p)), unsafe.Sizeof(p))
	if err := e.b.encode(string(k), block, &l); err != nil {
		e.b.fail(err)
	}
	runtime.KeepAlive(&p)
}

// encode writes one dispatch and commits the command buffer where it is long enough.
func (b *Backend) encode(name string, block []byte, l *launch) error {
	p, err := b.kernels.pipeline(name, l.constants)
	if err != nil {
		return err
	}
	if l.threads > p.MaxThreads() {
		return fmt.Errorf("%w: %s runs in at most %d threads here, %d are needed", ErrDevice, name, p.MaxThreads(), l.threads)
	}
	enc, err := b.cmd.encode(name)
	if err != nil {
		return err
	}
	enc.SetPipeline(p)
	enc.SetBytes(shaders.Params, block)
	for i, r := range l.buffers {
		if r.buf != nil {
			enc.SetBuffer(i, r.buf, r.off)
		}
	}
	enc.Dispatch(l.groups, metal.Size{X: l.threads, Y: 1, Z: 1})
	b.cmd.count++
	b.cmd.total++
	b.cmd.work += l.work
	if b.cmd.count >= maxDispatches || b.cmd.work >= maxWork {
		return b.cmd.commit()
	}
	return nil
}

// over is a grid of groups for n items, each group taking `each` of them.
func over(n, each int) metal.Size { return metal.Size{X: blocks(n, each), Y: 1, Z: 1} }

// kernels are the compiled libraries and pipelines.
type kernels struct {
	device    metal.Device
	libraries map[string]metal.Library
	pipelines map[pipelineKey]metal.Pipeline
}

type pipelineKey struct {
	kernel    string
	constants constants
}

func newKernels(device metal.Device) kernels {
	return kernels{device, map[string]metal.Library{}, map[pipelineKey]metal.Pipeline{}}
}

// library compiles a block's library on its first use.
func (k *kernels) library(name string) (metal.Library, error) {
	if l := k.libraries[name]; l != nil {
		return l, nil
	}
	text, err := shaders.Source(name)
	if err != nil {
		return nil, err
	}
	l, err := k.device.Compile(metal.Source{Name: name, Text: text})
	if err != nil {
		return nil, fmt.Errorf("compile kernel library %s: %w", name, err)
	}
	k.libraries[name] = l
	return l, nil
}

func (k *kernels) pipeline(name string, c constants) (metal.Pipeline, error) {
	key := pipelineKey{name, c}
	if p := k.pipelines[key]; p != nil {
		return p, nil
	}
	l, err := k.library(shaders.Library(name))
	if err != nil {
		return nil, err
	}
	p, err := l.Pipeline(name, c.list())
	if err != nil {
		return nil, fmt.Errorf("%w: make kernel %s: %w", ErrDevice, name, err)
	}
	k.pipelines[key] = p
	return p, nil
}

// Dispatches counts what was handed to the device since New.
func (b *Backend) Dispatches() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cmd.total
}

// Kernels lists the kernels that have been asked for since New, sorted.
func (b *Backend) Kernels() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for key := range b.kernels.pipelines {
		names = append(names, key.kernel)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (k *kernels) close() error {
	var errs []error
	for _, p := range k.pipelines {
		errs = append(errs, p.Close())
	}
	for _, l := range k.libraries {
		errs = append(errs, l.Close())
	}
	*k = newKernels(k.device)
	return errors.Join(errs...)
}
