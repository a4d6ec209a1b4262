package gpu_test

import (
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"lector/engine/gpu"
	"lector/engine/ops"
)

// A gated read in one operation gives the bits of the single operations, with and without an injection.
func TestReadStreamsIsTheSingleOperations(t *testing.T) {
	b, src := open(t, gpu.Options{}), newSource(91)
	for _, s := range []struct{ rows, n, h, low int }{{1, 4, 640, 33}, {3, 2, 64, 16}, {16, 3, 40, 8}} {
		for _, inject := range []bool{true, false} {
			wide := s.n * s.h
			down, up, gate := plain(src, s.low, wide, ops.BF16), plain(src, wide, s.low, ops.F16), plain(src, s.n, wide, ops.F32)
			if wide%64 == 0 {
				down = affine(src, s.low, wide, 4, 64, ops.BF16)
			}
			norm, w, y, inj := src.normal(wide, 1), src.normal(s.rows*wide, 1), src.normal(s.rows*s.h, 1), src.normal(s.rows*s.n, 1)
			r := ops.StreamRead{X: blank(t, b, s.rows, s.h), Wide: put(t, b, w, wide), Inj: put(t, b, inj, s.n), Norm: norm, Eps: 1e-6, Down: down, Up: up}
			x, wd, in := blank(t, b, s.rows, s.h), put(t, b, w, wide), put(t, b, inj, s.n)
			if inject {
				r.Y, r.Inject = put(t, b, y, s.h), gate
				b.Inject(wd, put(t, b, y, s.h), in)
			}
			z, u, low := blank(t, b, s.rows, wide), blank(t, b, s.rows, wide), blank(t, b, s.rows, s.low)
			b.RMSNorm(z, wd, norm, s.h, 1e-6)
			b.Linear(low, z, down)
			b.SiLU(low, 1/float32(s.n))
			b.Linear(u, low, up)
			b.Sigmoid(u, 1, 1)
			b.MixStreams(x, u, z)
			if inject {
				b.Linear(in, z, gate)
				b.Sigmoid(in, 1/float32(s.n), 2)
			}
			b.ReadStreams(r)
			wait(t, b)
			for name, pair := range map[string][2]ops.Tensor{"x": {r.X, x}, "wide": {r.Wide, wd}, "inj": {r.Inj, in}} {
				if i := differs(pair[0].Floats(), pair[1].Floats()); i >= 0 {
					t.Errorf("%v, inject %v: %s[%d] is %g, want %g", s, inject, name, i, pair[0].Floats()[i], pair[1].Floats()[i])
				}
				checkFence(t, pair[0])
			}
		}
	}
}

// Products with the same few rows go out together, in the order of what they read and write.
func TestProductsThatWait(t *testing.T) {
	src := newSource(92)
	square, tall, other := affine(src, 64, 64, 4, 32, ops.BF16), affine(src, 130, 64, 4, 32, ops.BF16), plain(src, 64, 64, ops.BF16)
	rows := src.normal(5*64, 0.3)
	b := open(t, gpu.Options{})
	compare(t, b, 1e-4, func(b ops.Backend) []ops.Tensor {
		x, one, two, three, wide := put(t, b, rows, 64), blank(t, b, 5, 64), blank(t, b, 5, 64), blank(t, b, 5, 64), blank(t, b, 5, 130)
		b.Linear(one, x, square)
		b.Linear(wide, x, tall)
		b.Linear(two, x, other)  // stored otherwise
		b.Linear(two, x, square) // over what the one before writes
		b.Linear(three, two, square)
		b.Linear(x, three, square) // over the rows of those before
		b.Add(one, x)
		return []ops.Tensor{x, one, two, three, wide}
	})
}

// The experts of few rows are found by the device itself where all are in its memory: the bits are those of choices that
// the host reads.
func TestExpertsOfFewRowsResident(t *testing.T) {
	c := newExpertCase("mapped", 3, 64, 64, 6, 3, 5, quantised(4))
	memory := mapRecords(t, &c)
	b := open(t, gpu.Options{Mapped: [][]byte{memory}})
	compare(t, b, 1e-5, func(b ops.Backend) []ops.Tensor { return c.run(t, b, c.experts(), []int{0, c.rows}) })
	apart := open(t, gpu.Options{}) // where they are copied one by one, the host reads the choice
	want, got := c.run(t, apart, c.experts(), []int{0, c.rows}), c.run(t, b, c.experts(), []int{0, c.rows})
	wait(t, apart)
	wait(t, b)
	if i := differs(want[0].Floats(), got[0].Floats()); i >= 0 {
		t.Errorf("element %d is %g, by way of the host %g", i, got[0].Floats()[i], want[0].Floats()[i])
	}
	x, y := put(t, b, c.x, c.h), blank(t, b, c.rows, c.h)
	used := b.RunExperts(y, x, c.experts(), b.Route(put(t, b, c.logits, len(c.records)), c.k, true))
	wait(t, b)
	if want := (ops.Usage{Records: c.rows * c.k, Bytes: int64(c.rows * c.k * c.records[0].Bytes())}); used != want {
		t.Errorf("used %+v, want %+v", used, want)
	}
	none := make([]float32, len(c.logits))
	for i := range none {
		none[i] = float32(math.NaN())
	}
	b.RunExperts(y, x, c.experts(), b.Route(put(t, b, none, len(c.records)), c.k, true))
	wait(t, b)
	for i, v := range y.Floats() {
		if v == v {
			t.Fatalf("logits that are no numbers give %g at %d", v, i)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// mapRecords puts a case's records into memory that a backend may map.
func mapRecords(t *testing.T, c *expertCase) []byte {
	t.Helper()
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, 64*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	rest := memory[40:]
	for i := range c.records {
		for _, m := range []*ops.Matrix{&c.records[i].Gate, &c.records[i].Up, &c.records[i].Down} {
			for _, data := range []*[]byte{&m.Data, &m.Scales, &m.Biases} {
				n := copy(rest, *data)
				*data, rest = rest[:n:n], rest[n:]
			}
		}
	}
	return memory
}
