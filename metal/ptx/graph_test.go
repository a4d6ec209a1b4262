package ptx_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"unsafe"

	"lector/metal"
	"lector/metal/ptx"
)

// words views a buffer.
func words(b metal.Buffer) []uint32 {
	data := b.Bytes()
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

// A run of dispatches that comes again, with other arguments, grids and buffers, does what it is told now, each dispatch
// after the one before; so do copies around it.
func TestRunsThatComeAgain(t *testing.T) {
	r := newRig(t, ptx.Options{})
	p, err := r.library.Pipeline("device_turn", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const most = 1 << 16
	local := func() metal.Buffer {
		b, err := r.Device.(metal.LocalMemory).NewLocalBuffer(4 * most)
		return kept(t, b, err)
	}
	at, other, host := local(), local(), r.buffer(t, 4*most)
	want := make([]uint32, most)
	for round := range 6 {
		n := most >> (round % 3)
		for i := range n {
			want[i] = uint32(i * (round + 7))
			words(host)[i] = want[i]
		}
		c, err := r.queue.NewCommandBuffer("again")
		if err != nil {
			t.Fatal(err)
		}
		c.(metal.Copier).Copy(at, 0, host, 0, 4*n)
		e, err := c.Encoder("again")
		if err != nil {
			t.Fatal(err)
		}
		e.SetPipeline(p)
		for step := range 9 + 2*(round/4) {
			add := uint32(step*31 + round)
			e.SetBuffer(0, other, 0)
			e.SetBuffer(1, at, 0)
			e.SetBytes(2, binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, add), uint32(n)))
			e.Dispatch(metal.Size{X: (n + 127) / 128, Y: 1, Z: 1}, metal.Size{X: 128, Y: 1, Z: 1})
			at, other = other, at
			next := make([]uint32, n)
			for i := range next {
				next[i] = 3*want[n-1-i] + add
			}
			copy(want, next)
		}
		e.End()
		c.(metal.Copier).Copy(host, 0, at, 0, 4*n)
		if err := errors.Join(c.Commit(), c.Wait(context.Background())); err != nil {
			t.Fatal(err)
		}
		for i, v := range words(host)[:n] {
			if v != want[i] {
				t.Fatalf("round %d: word %d of %d is %d, want %d", round, i, n, v, want[i])
			}
		}
	}
}

// Copies past the ends of a buffer are refused when they are committed.
func TestCopiesStayInside(t *testing.T) {
	r := newRig(t, ptx.Options{})
	a, b := r.buffer(t, 64), r.buffer(t, 64)
	for _, x := range [][3]int{{0, 0, 65}, {1, 0, 64}, {0, 1, 64}, {-4, 0, 4}, {0, 0, 0}} {
		c, err := r.queue.NewCommandBuffer("outside")
		if err != nil {
			t.Fatal(err)
		}
		c.(metal.Copier).Copy(a, x[0], b, x[1], x[2])
		if err := c.Commit(); err == nil {
			t.Errorf("%v: committed", x)
		}
	}
}
