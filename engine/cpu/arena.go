package cpu

import (
	"sync"
	"unsafe"

	"lector/engine/stream"
)

// mappedFloats is the size from which on memory is mapped, outside of Go's heap: what lives there lets the collector
// wait until there is as much garbage, and a memory budget would be worth half of what it says.
const mappedFloats = 1 << 14

// Tensors below half of arenaBytes share a mapping, so that large pages can lie behind them, too: a state is some dozens of
// small tensors, and where a machine is virtual, touching its small pages for the first time takes longer than restoring it.
const (
	arenaBytes = 4 << 20
	floatBytes = 4
)

// arenas gives out zeroed memory for tensors. The zero value is ready, and may be used from any goroutine.
type arenas struct {
	mu   sync.Mutex
	open *arena // where the next small tensor goes; nil: a new one
}

// arena is one mapping, given out from its start on. What is given back goes back to the system, and is not given out again.
type arena struct {
	floats []float32
	used   int // floats
	live   int // what was given out of it and not back
	free   func()
}

// get returns n zeroed floats and how to give them back, nil for memory of Go's heap.
func (a *arenas) get(n int) ([]float32, func(), error) {
	if n < mappedFloats || n > arenaBytes/floatBytes/2 {
		return allocate(n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	room := pages(n)
	if a.open == nil || len(a.open.floats)-a.open.used < room {
		floats, free, err := allocate(arenaBytes / floatBytes)
		if err != nil {
			return nil, nil, err
		}
		a.open = &arena{floats: floats, free: free}
	}
	from := a.open
	got := from.floats[from.used:][:n:room]
	from.used += room
	from.live++
	return got, func() { a.back(from, got[:room]) }, nil
}

// back takes a tensor's pages back; with the last one of an arena all of it goes.
func (a *arenas) back(from *arena, floats []float32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if from.live--; from.live > 0 {
		stream.Drop(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(floats))), floatBytes*len(floats)))
		return
	}
	if a.open == from {
		a.open = nil
	}
	from.free()
}

// pages rounds up to whole pages, which can be given back.
func pages(floats int) int {
	const page = stream.PageBytes / floatBytes
	return (floats + page - 1) / page * page
}

// allocate returns n zeroed floats that share a mapping with no others, and how to give them back, nil for memory of Go's heap.
func allocate(n int) ([]float32, func(), error) {
	if n < mappedFloats {
		return make([]float32, n), nil, nil
	}
	slots, err := stream.Memory(1, floatBytes*n)
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(slots.Mem[0]))), n), slots.Free, nil
}

// shelfBytes is the size of a mapping that copies of weights share.
const shelfBytes = 32 << 20

// shelf holds what stays for as long as its matrix: a model's copies of its weights, one right behind the other in the order in which
// they are made, which is that of their first use. A token reads all of them, and they are too small for large pages of their own. The
// zero value is ready, and may be used from any goroutine.
type shelf struct {
	mu   sync.Mutex
	open *arena // where the next copy goes; nil: a new one
}

// get returns n bytes that are zero, on a line of memory, and how to give them back. A mapping goes with the last of its copies.
func (s *shelf) get(n int) (memory []byte, free func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := (n + lineBytes - 1) / lineBytes * lineBytes / floatBytes
	from := s.open
	if from == nil || len(from.floats)-from.used < room {
		floats, unmap, err := allocate(max(room, shelfBytes/floatBytes))
		if err != nil {
			return nil, nil, err
		}
		from = &arena{floats: floats, free: unmap}
		if room < shelfBytes/floatBytes/2 { // else the open one has more left
			s.open = from
		}
	}
	got := from.floats[from.used:][:room:room]
	from.used += room
	from.live++
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(got))), n), func() { s.back(from) }, nil
}

// back takes a copy back.
func (s *shelf) back(from *arena) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.live--; from.live > 0 {
		return
	}
	if s.open == from {
		s.open = nil
	}
	from.free()
}

// lineBytes is a line of memory.
const lineBytes = 64
