//go:build linux && (amd64 || arm64)

package soft

import (
	"unsafe"

	"lector/metal"
	"lector/metal/msl"
)

// encoder implements metal.Encoder.
type encoder struct {
	commands *commands
	label    string
	pipeline *pipeline
	bound    [msl.MaxBindings]binding
	memory   [msl.MaxBindings]uint32
	ended    bool
}

func (e *encoder) fault(format string, args ...any) {
	e.commands.fault("encoder %q: "+format, append([]any{e.label}, args...)...)
}

// usable says whether the encoder may still be written.
func (e *encoder) usable(what string) bool {
	if e.ended {
		e.fault("%s after End", what)
	}
	return !e.ended
}

// SetPipeline implements metal.Encoder.
func (e *encoder) SetPipeline(p metal.Pipeline) {
	own, ok := p.(*pipeline)
	if !ok || own.device != e.commands.queue.device {
		e.fault("a pipeline of another device")
		return
	}
	if e.usable("SetPipeline") {
		e.pipeline = own
	}
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
	case e.usable("SetBuffer"):
		e.bound[index] = binding{index: index, buffer: own, offset: offset}
	}
}

// SetBytes implements metal.Encoder.
func (e *encoder) SetBytes(index int, block []byte) {
	switch err := metal.CheckBlock(index, len(block)); {
	case err != nil:
		e.fault("%w", err)
	case e.usable("SetBytes"):
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
	switch err := metal.CheckThreadgroupMemory(index, size, e.commands.queue.device.props.ThreadgroupMemory); {
	case err != nil:
		e.fault("%w", err)
	case e.usable("SetThreadgroupMemory"):
		e.memory[index] = uint32(size)
	}
}

// Dispatch implements metal.Encoder.
func (e *encoder) Dispatch(groups, threads metal.Size) {
	if !e.usable("Dispatch") {
		return
	}
	if e.pipeline == nil {
		e.fault("a dispatch before SetPipeline")
		return
	}
	if err := metal.CheckDispatch(e.pipeline, groups, threads); err != nil {
		e.fault("%w", err)
		return
	}
	x := &dispatch{pipeline: e.pipeline, groups: groups, threads: threads}
	for _, a := range e.pipeline.kernel.Arguments {
		switch a.Kind {
		case msl.KindThreadgroup:
			if e.memory[a.Index] == 0 {
				e.fault("kernel %s: threadgroup memory %d (%s) has no size", e.pipeline.Kernel(), a.Index, a.Name)
				return
			}
			x.memory[a.Index] = e.memory[a.Index]
		case msl.KindBuffer, msl.KindReference:
			b := e.bound[a.Index]
			if b.buffer == nil && b.block == nil {
				if a.Optional {
					continue
				}
				e.fault("kernel %s: nothing is bound at buffer %d (%s)", e.pipeline.Kernel(), a.Index, a.Name)
				return
			}
			x.bindings = append(x.bindings, b)
		}
	}
	e.commands.steps = append(e.commands.steps, step{encoder: e.label, dispatch: x})
}

// End implements metal.Encoder.
func (e *encoder) End() {
	if e.ended {
		return
	}
	e.ended = true
	e.commands.open = nil
}
