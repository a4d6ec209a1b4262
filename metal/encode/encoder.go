package encode

import (
	"errors"
	"fmt"

	"lector/metal"
)

// maxGroups bounds each dimension of a grid of threadgroups, so that positions fit 32 bits.
const maxGroups = 1 << 30

// Encoder is an encoder without its list. Its methods say whether what they are asked for may be encoded; if not, that is a
// misuse of the command buffer, and the device lists nothing.
type Encoder struct {
	commands *Commands
	label    string
	pipeline metal.Pipeline
	ended    bool
}

// Label is its name in errors and traces.
func (e *Encoder) Label() string { return e.label }

// Misused keeps the first misuse of the command buffer.
func (e *Encoder) Misused(format string, args ...any) {
	e.commands.Misused("encoder %q: "+format, append([]any{e.label}, args...)...)
}

// Ours says whether what is bound is of this device.
func (e *Encoder) Ours(what string, ours bool) bool {
	if !ours {
		e.Misused("%s of another device", what)
	}
	return ours
}

// Choose is SetPipeline: the sizes of the dispatches that follow are held to p's.
func (e *Encoder) Choose(p metal.Pipeline) bool {
	if !e.may("SetPipeline", nil) {
		return false
	}
	e.pipeline = p
	return true
}

// Buffer is SetBuffer, of a buffer of size bytes.
func (e *Encoder) Buffer(index, offset, size int) bool {
	return e.may("SetBuffer", checkBuffer(index, offset, size))
}

// Block is SetBytes, of size bytes.
func (e *Encoder) Block(index, size int) bool { return e.may("SetBytes", checkBlock(index, size)) }

// Memory is SetThreadgroupMemory, of size bytes where a threadgroup has limit.
func (e *Encoder) Memory(index, size, limit int) bool {
	return e.may("SetThreadgroupMemory", checkMemory(index, size, limit))
}

// Grid is Dispatch.
func (e *Encoder) Grid(groups, threads metal.Size) bool {
	if e.pipeline == nil {
		return e.may("Dispatch", errNoPipeline)
	}
	return e.may("Dispatch", checkGrid(e.pipeline, groups, threads))
}

// may says whether a call may be encoded, whose own arguments err is about.
func (e *Encoder) may(call string, err error) bool {
	switch {
	case e.ended:
		e.Misused("%s after End", call)
	case err != nil:
		e.Misused("%w", err)
	default:
		return true
	}
	return false
}

// Ended says whether End was called.
func (e *Encoder) Ended() bool { return e.ended }

// End implements metal.Encoder.
func (e *Encoder) End() {
	if !e.ended {
		e.ended = true
		e.commands.open = nil
	}
}

var errNoPipeline = errors.New("a dispatch before SetPipeline")

// checkGrid says what is wrong with the sizes of a dispatch: Metal itself ends the process of whoever gets them wrong.
func checkGrid(p metal.Pipeline, groups, threads metal.Size) error {
	for _, n := range []int{groups.X, groups.Y, groups.Z} {
		if n < 1 || n > maxGroups {
			return fmt.Errorf("kernel %s: %d x %d x %d threadgroups", p.Kernel(), groups.X, groups.Y, groups.Z)
		}
	}
	for _, n := range []int{threads.X, threads.Y, threads.Z} {
		if n < 1 || n > p.MaxThreads() {
			return fmt.Errorf("kernel %s: a threadgroup of %d x %d x %d threads", p.Kernel(), threads.X, threads.Y, threads.Z)
		}
	}
	if n := threads.Count(); n > p.MaxThreads() {
		return fmt.Errorf("kernel %s: a threadgroup of %d threads, where %d can run", p.Kernel(), n, p.MaxThreads())
	}
	return nil
}

func checkBuffer(index, offset, size int) error {
	switch {
	case index < 0 || index >= metal.MaxBuffers:
		return fmt.Errorf("buffer index %d is not in 0 to %d", index, metal.MaxBuffers-1)
	case offset < 0 || offset >= size:
		return fmt.Errorf("buffer %d: offset %d of %d bytes", index, offset, size)
	}
	return nil
}

func checkBlock(index, size int) error {
	switch {
	case index < 0 || index >= metal.MaxBuffers:
		return fmt.Errorf("buffer index %d is not in 0 to %d", index, metal.MaxBuffers-1)
	case size == 0 || size > metal.MaxBlockBytes:
		return fmt.Errorf("buffer %d: a block has 1 to %d bytes, not %d", index, metal.MaxBlockBytes, size)
	}
	return nil
}

func checkMemory(index, size, limit int) error {
	switch {
	case index < 0 || index >= metal.MaxBuffers:
		return fmt.Errorf("threadgroup index %d is not in 0 to %d", index, metal.MaxBuffers-1)
	case size <= 0 || size > limit || size%16 != 0:
		return fmt.Errorf("threadgroup memory %d of %d bytes is no multiple of 16 up to %d", index, size, limit)
	}
	return nil
}
