//go:build linux && (amd64 || arm64)

package ptx

import (
	"bytes"

	"lector/metal"
	"lector/metal/encode"
	"lector/metal/msl"
)

// encoder implements metal.Encoder.
type encoder struct {
	encode.Encoder
	commands *commands
	pipeline *pipeline
	bound    [msl.MaxBindings]binding
	memory   [msl.MaxBindings]int
}

// SetPipeline implements metal.Encoder.
func (e *encoder) SetPipeline(p metal.Pipeline) {
	own, ok := p.(*pipeline)
	if e.Ours("a pipeline", ok && own.device == e.commands.queue.device) && e.Choose(own) {
		e.pipeline = own
	}
}

// SetBuffer implements metal.Encoder.
func (e *encoder) SetBuffer(index int, b metal.Buffer, offset int) {
	own, ok := b.(*buffer)
	if e.Ours("a buffer", ok && own.device == e.commands.queue.device) && e.Buffer(index, offset, own.size) {
		e.bound[index] = binding{buffer: own, at: own.at + uint64(offset)}
	}
}

// SetBytes implements metal.Encoder.
func (e *encoder) SetBytes(index int, block []byte) {
	if e.Block(index, len(block)) {
		e.bound[index] = binding{block: bytes.Clone(block)}
	}
}

// SetThreadgroupMemory implements metal.Encoder.
func (e *encoder) SetThreadgroupMemory(index, size int) {
	if e.Memory(index, size, e.commands.queue.device.props.ThreadgroupMemory) {
		e.memory[index] = size
	}
}

// What a grid can have along y and z, and a threadgroup along z.
const (
	maxGroupsAcross = 65535
	maxThreadsDeep  = 64
)

// Dispatch implements metal.Encoder.
func (e *encoder) Dispatch(groups, threads metal.Size) {
	if !e.Grid(groups, threads) {
		return
	}
	if groups.Y > maxGroupsAcross || groups.Z > maxGroupsAcross || threads.Z > maxThreadsDeep {
		e.Misused("kernel %s: %d x %d threadgroups along y and z, %d threads along z: this device has up to %d and %d",
			e.pipeline.Kernel(), groups.Y, groups.Z, threads.Z, maxGroupsAcross, maxThreadsDeep)
		return
	}
	x := &dispatch{pipeline: e.pipeline, groups: groups, threads: threads, bindings: make([]binding, 0, len(e.pipeline.kernel.Arguments))}
	for _, a := range e.pipeline.kernel.Arguments {
		if !e.bind(x, a) {
			return
		}
	}
	if total, limit := x.memory+e.pipeline.shared, e.commands.queue.device.props.ThreadgroupMemory; total > limit {
		e.Misused("kernel %s: %d bytes of threadgroup memory, where there are %d", e.pipeline.Kernel(), total, limit)
		return
	}
	e.commands.steps = append(e.commands.steps, step{encoder: e.Label(), dispatch: x})
}

// bind adds an argument to a dispatch; false where it has none to add.
func (e *encoder) bind(x *dispatch, a msl.Argument) bool {
	switch a.Kind {
	case msl.KindThreadgroup:
		if e.memory[a.Index] == 0 {
			e.Misused("kernel %s: threadgroup memory %d (%s) has no size", e.pipeline.Kernel(), a.Index, a.Name)
			return false
		}
		x.bindings = append(x.bindings, binding{at: uint64(x.memory)})
		x.memory += e.memory[a.Index]
	case msl.KindBuffer, msl.KindReference:
		b := e.bound[a.Index]
		if b.buffer == nil && b.block == nil && !a.Optional {
			e.Misused("kernel %s: nothing is bound at buffer %d (%s)", e.pipeline.Kernel(), a.Index, a.Name)
			return false
		}
		b.written = !a.Const
		if a.Kind == msl.KindReference && a.Const {
			b.inside = &launchBlock{}
			if b.carried() {
				copy(b.inside.bytes[:], b.block)
			}
		}
		x.bindings = append(x.bindings, b)
	}
	return true
}
