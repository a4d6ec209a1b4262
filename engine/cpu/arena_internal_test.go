package cpu

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

// Whatever is given out and back in whatever order is zero when it is given out, and nobody else's until it is given back.
func TestArenas(t *testing.T) {
	var a arenas
	type held struct {
		floats []float32
		free   func()
		mark   float32
	}
	var all []held
	src := rand.New(rand.NewPCG(1, 2))
	take := func(mark float32) {
		n := []int{1, mappedFloats - 1, mappedFloats, mappedFloats + 1, 1 << 17, arenaBytes / floatBytes / 2, arenaBytes/floatBytes/2 + 1}[src.IntN(7)]
		floats, free, err := a.get(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(floats) != n {
			t.Fatalf("%d floats of %d", len(floats), n)
		}
		for i, v := range floats {
			if v != 0 {
				t.Fatalf("float %d of %d is %g when it is given out", i, n, v)
			}
			floats[i] = mark
		}
		all = append(all, held{floats, free, mark})
	}
	give := func(i int) {
		h := all[i]
		for k, v := range h.floats {
			if v != h.mark {
				t.Fatalf("float %d of %d is %g, and %g was written", k, len(h.floats), v, h.mark)
			}
		}
		if h.free != nil {
			h.free()
		}
		all[i] = all[len(all)-1]
		all = all[:len(all)-1]
	}
	for i := range 400 {
		take(float32(i + 1))
		if len(all) > 12 || src.IntN(3) == 0 {
			give(src.IntN(len(all)))
		}
	}
	for len(all) > 0 {
		give(0)
	}
	if a.open != nil {
		t.Errorf("an arena of %d tensors is kept where none is held", a.open.live)
	}
}

// Sequences are opened and closed at the same time.
func TestArenasAtOnce(t *testing.T) {
	var a arenas
	var g sync.WaitGroup
	for w := range 4 {
		g.Go(func() {
			for range 100 {
				floats, free, err := a.get(mappedFloats + w)
				if err != nil {
					t.Error(err)
					return
				}
				for i, v := range floats {
					if v != 0 {
						t.Errorf("float %d is %g", i, v)
						break
					}
					floats[i] = float32(w)
				}
				free()
			}
		})
	}
	g.Wait()
}

// Copies lie one behind the other, are nobody else's until they are given back, and a mapping goes with its last.
func TestShelf(t *testing.T) {
	var s shelf
	type held struct {
		memory []byte
		free   func()
	}
	var all []held
	var last *byte
	for i, n := range []int{1, 64, 1000, 1 << 20, shelfBytes / 4, 5 << 20, shelfBytes, 3 * shelfBytes / 4, 100, shelfBytes + 1, 0} {
		memory, free, err := s.get(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(memory) != n {
			t.Fatalf("%d bytes of %d", len(memory), n)
		}
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(memory))); at%lineBytes != 0 {
			t.Errorf("copy %d begins %d bytes behind a line of memory", i, at%lineBytes)
		}
		if n == 64 && unsafe.SliceData(memory) != (*byte)(unsafe.Add(unsafe.Pointer(last), lineBytes)) {
			t.Error("the second copy does not begin right behind the first")
		}
		for k, v := range memory {
			if v != 0 {
				t.Fatalf("byte %d of copy %d is %d when it is given out", k, i, v)
			}
			memory[k] = byte(i + 1)
		}
		all, last = append(all, held{memory, free}), unsafe.SliceData(memory)
	}
	for i, h := range all {
		for k, v := range h.memory {
			if v != byte(i+1) {
				t.Fatalf("byte %d of copy %d is %d", k, i, v)
			}
		}
		h.free()
	}
	if s.open != nil {
		t.Errorf("a mapping of %d copies is kept where none is held", s.open.live)
	}
}
