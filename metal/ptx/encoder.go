//go:build linux && (amd64 || arm64)

package ptx

import (
	"bytes"

	"lector/metal"
	"lector/metal/msl"
)

// encoder implements metal.Encoder.
type encoder struct {
	commands *commands
	label    string
	pipeline *pipeline
	bound    [msl.MaxBindings]binding
	memory   [msl.MaxBindings]int
	ended    bool
}

func (e *encoder) misused(format string, args ...any) {
	e.commands.misused("encoder %q: "+format, append([]any{e.label}, args...)...)
}

// usable says whether the encoder may still be written.
func (e *encoder) usable(what string) bool {
	if e.ended {
		e.misused("%s after End", what)
	}
	return !e.ended
}

// SetPipeline implements metal.Encoder.
func (e *encoder) SetPipeline(p metal.Pipeline) {
	own, ok := p.(*pipeline)
	if !ok || own.device != e.commands.queue.device {
		e.misused("a pipeline of another device")
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
		e.misused("buffer %d is of another device", index)
		return
	}
	switch err := metal.CheckBuffer(index, offset, own.size); {
	case err != nil:
		e.misused("%w", err)
	case e.usable("SetBuffer"):
		e.bound[index] = binding{buffer: own, at: own.at + uint64(offset)}
	}
}

// SetBytes implements metal.Encoder.
func (e *encoder) SetBytes(index int, block []byte) {
	switch err := metal.CheckBlock(index, len(block)); {
	case err != nil:
		e.misused("%w", err)
	case e.usable("SetBytes"):
		e.bound[index] = binding{block: bytes.Clone(block)}
	}
}

// SetThreadgroupMemory implements metal.Encoder.
func (e *encoder) SetThreadgroupMemory(index, size int) {
	switch err := metal.CheckThreadgroupMemory(index, size, e.commands.queue.device.props.ThreadgroupMemory); {
	case err != nil:
		e.misused("%w", err)
	case e.usable("SetThreadgroupMemory"):
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
	if !e.usable("Dispatch") {
		return
	}
	if e.pipeline == nil {
		e.misused("a dispatch before SetPipeline")
		return
	}
	if err := metal.CheckDispatch(e.pipeline, groups, threads); err != nil {
		e.misused("%w", err)
		return
	}
	if groups.Y > maxGroupsAcross || groups.Z > maxGroupsAcross || threads.Z > maxThreadsDeep {
		e.misused("kernel %s: %d x %d threadgroups along y and z, %d threads along z: this device has up to %d and %d",
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
		e.misused("kernel %s: %d bytes of threadgroup memory, where there are %d", e.pipeline.Kernel(), total, limit)
		return
	}
	e.commands.steps = append(e.commands.steps, step{encoder: e.label, dispatch: x})
}

// bind adds an argument to a dispatch; false where it has none to add.
func (e *encoder) bind(x *dispatch, a msl.Argument) bool {
	switch a.Kind {
	case msl.KindThreadgroup:
		if e.memory[a.Index] == 0 {
			e.misused("kernel %s: threadgroup memory %d (%s) has no size", e.pipeline.Kernel(), a.Index, a.Name)
			return false
		}
		x.bindings = append(x.bindings, binding{at: uint64(x.memory)})
		x.memory += e.memory[a.Index]
	case msl.KindBuffer, msl.KindReference:
		b := e.bound[a.Index]
		if b.buffer == nil && b.block == nil && !a.Optional {
			e.misused("kernel %s: nothing is bound at buffer %d (%s)", e.pipeline.Kernel(), a.Index, a.Name)
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

// End implements metal.Encoder.
func (e *encoder) End() {
	if e.ended {
		return
	}
	e.ended = true
	e.commands.open = nil
}
