//go:build linux && (amd64 || arm64)

package soft

import (
	"unsafe"

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
	memory   [msl.MaxBindings]uint32
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
	if e.Ours("a buffer", ok && own.device == e.commands.queue.device) && e.Buffer(index, offset, len(own.data)) {
		e.bound[index] = binding{index: index, buffer: own, offset: offset}
	}
}

// SetBytes implements metal.Encoder.
func (e *encoder) SetBytes(index int, block []byte) {
	if e.Block(index, len(block)) {
		e.bound[index] = binding{index: index, block: alignedCopy(block)}
	}
}

// alignedCopy copies a block to where a float4 may begin.
func alignedCopy(block []byte) []byte {
	room := make([]byte, len(block)+15)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(room))) & 15)
	own := room[skip : skip+len(block) : skip+len(block)]
	copy(own, block)
	return own
}

// SetThreadgroupMemory implements metal.Encoder.
func (e *encoder) SetThreadgroupMemory(index, size int) {
	if e.Memory(index, size, e.commands.queue.device.props.ThreadgroupMemory) {
		e.memory[index] = uint32(size)
	}
}

// Dispatch implements metal.Encoder.
func (e *encoder) Dispatch(groups, threads metal.Size) {
	if !e.Grid(groups, threads) {
		return
	}
	x := &dispatch{pipeline: e.pipeline, groups: groups, threads: threads}
	for _, a := range e.pipeline.kernel.Arguments {
		switch a.Kind {
		case msl.KindThreadgroup:
			if e.memory[a.Index] == 0 {
				e.Misused("kernel %s: threadgroup memory %d (%s) has no size", e.pipeline.Kernel(), a.Index, a.Name)
				return
			}
			x.memory[a.Index] = e.memory[a.Index]
		case msl.KindBuffer, msl.KindReference:
			b := e.bound[a.Index]
			if b.buffer == nil && b.block == nil {
				if a.Optional {
					continue
				}
				e.Misused("kernel %s: nothing is bound at buffer %d (%s)", e.pipeline.Kernel(), a.Index, a.Name)
				return
			}
			x.bindings = append(x.bindings, b)
		}
	}
	e.commands.steps = append(e.commands.steps, step{encoder: e.Label(), dispatch: x})
}
