//go:build linux && (amd64 || arm64)

package soft

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"lector/metal"
	"lector/metal/msl"
)

// The structs of rt/msl_abi.h and rt/runtime.h.
type (
	cConstants struct {
		value   [msl.MaxConstants]uint32
		defined uint64
	}
	cArgs struct {
		buffer      [msl.MaxBindings]uintptr
		length      [msl.MaxBindings]uint64
		threadgroup [msl.MaxBindings]uintptr
	}
	cLaunch struct {
		kernel           uintptr
		args             cArgs
		constants        *cConstants
		shadow           [msl.MaxBindings]uintptr
		visible          *clock
		queue, launch    uint32
		groups, threads  [3]uint32
		threadgroupBytes [msl.MaxBindings]uint32
		flags            uint32
		seed             uint64
	}
	cReport struct {
		text             [480]byte
		place            uint64
		switches         uint64
		threadgroupBytes uint32
	}
)

const flagLenient = 1

// set gives a function constant its value.
func (c *cConstants) set(unit *msl.Unit, v metal.Constant) error {
	i := slices.IndexFunc(unit.Constants, func(k msl.Constant) bool { return k.Index == v.Index })
	if i < 0 {
		return nil // as in Metal, a value that no kernel asks for is ignored
	}
	var bits uint32
	var typ string
	switch x := v.Value.(type) {
	case bool:
		typ = "bool"
		if x {
			bits = 1
		}
	case int32:
		typ, bits = "int", uint32(x)
	case uint32:
		typ, bits = "uint", x
	case float32:
		typ, bits = "float", math.Float32bits(x)
	}
	if want := unit.Constants[i]; want.Type != typ {
		return fmt.Errorf("function constant %d (%s) is a %s, and its value a %T", v.Index, want.Name, want.Type, v.Value)
	}
	c.value[v.Index] = bits
	c.defined |= 1 << v.Index
	return nil
}

// dispatch is one encoded dispatch.
type dispatch struct {
	pipeline *pipeline
	bindings []binding
	memory   [msl.MaxBindings]uint32 // of threadgroup arguments
	groups   metal.Size
	threads  metal.Size
}

// binding is what one argument of a kernel is bound to: a buffer from an offset, or a block.
type binding struct {
	index  int
	buffer *buffer
	offset int
	block  []byte
}

// launch readies a dispatch for the runtime. What it points to lives as long as the dispatch.
func (x *dispatch) launch(d *device, who stamp) (*cLaunch, error) {
	l := &cLaunch{
		kernel: x.pipeline.function, constants: x.pipeline.constants, visible: &who.visible, queue: who.queue, launch: who.number,
		groups:           [3]uint32{uint32(x.groups.X), uint32(x.groups.Y), uint32(x.groups.Z)},
		threads:          [3]uint32{uint32(x.threads.X), uint32(x.threads.Y), uint32(x.threads.Z)},
		threadgroupBytes: x.memory, seed: d.options.Seed,
	}
	if d.options.Lenient {
		l.flags |= flagLenient
	}
	for _, b := range x.bindings {
		if b.buffer == nil {
			l.args.buffer[b.index] = uintptr(unsafe.Pointer(unsafe.SliceData(b.block)))
			l.args.length[b.index] = uint64(len(b.block))
			continue
		}
		shadow, err := b.buffer.shadowAt(b.offset)
		if err != nil {
			return nil, err
		}
		l.args.buffer[b.index] = b.buffer.address(b.offset)
		l.args.length[b.index] = uint64(len(b.buffer.data) - b.offset)
		l.shadow[b.index] = shadow
	}
	return l, nil
}

// smallThreads is up to how many threads a dispatch is not worth a second OS thread.
const smallThreads = 512

// run runs a dispatch and returns when it is done.
func (x *dispatch) run(d *device, who stamp) error {
	l, err := x.launch(d, who)
	if err != nil {
		return err
	}
	groups := x.groups.Count()
	workers := min(d.options.Workers, groups)
	if groups*x.threads.Count() <= smallThreads {
		workers = 1
	}
	step := groups
	if workers > 1 {
		step = max(1, groups/(workers*8))
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(l)
	pins.Pin(l.constants)
	pins.Pin(l.visible)
	for _, b := range x.bindings {
		if b.block != nil {
			pins.Pin(unsafe.SliceData(b.block))
		}
	}
	var next atomic.Int64
	failures := make([]error, workers)
	work := func(worker int) {
		for failures[worker] == nil {
			first := int(next.Add(int64(step))) - step
			if first >= groups {
				return
			}
			failures[worker] = x.runGroups(d, l, first, min(first+step, groups))
		}
		next.Store(int64(groups)) // the others stop too
	}
	var rest sync.WaitGroup
	for w := 1; w < workers; w++ {
		rest.Go(func() { work(w) })
	}
	work(0)
	rest.Wait()
	i := slices.IndexFunc(failures, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return failures[i]
}

// runGroups runs part of a dispatch on this OS thread.
func (x *dispatch) runGroups(d *device, l *cLaunch, first, last int) error {
	r := &cReport{}
	status, _, _ := purego.SyscallN(d.run, uintptr(unsafe.Pointer(l)), uintptr(first), uintptr(last), uintptr(unsafe.Pointer(r)))
	runtime.KeepAlive(r)
	if int32(status) == 0 {
		return nil
	}
	text := string(r.text[:max(0, bytes.IndexByte(r.text[:], 0))])
	if r.place != 0 {
		if at := lineAt(x.pipeline.loaded.path, r.place); at != "" {
			text += " (" + at + ")"
		}
	}
	return fmt.Errorf("kernel %s: %s", x.pipeline.kernel.Name, text)
}
