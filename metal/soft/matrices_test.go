package soft_test

import (
	_ "embed"
	"testing"

	"lector/metal"
	"lector/metal/soft"
)

//go:embed testdata/matrices.metal
var matrices string

// square is an 8 x 8 matrix of small whole numbers, so that every order of sums gives the same.
type square [64]float32

func (a square) times(b square) (c square) {
	for i := range 64 {
		for k := range 8 {
			c[i] += a[i/8*8+k] * b[k*8+i%8]
		}
	}
	return c
}

func (a square) transposed() (c square) {
	for i := range 64 {
		c[i] = a[i%8*8+i/8]
	}
	return c
}

// plus is f a + g.
func (a square) plus(f, g float32) (c square) {
	for i := range 64 {
		c[i] = f*a[i] + g
	}
	return c
}

func (a square) total() (sum float32) {
	for _, v := range a {
		sum += v
	}
	return sum
}

// Products of simdgroup matrices are put off and computed together; nobody may notice.
func TestMatrices(t *testing.T) {
	var a, b square
	for i := range 64 {
		a[i], b[i] = float32(i*5%7-3), float32(i*3%5-2)
	}
	p := a.times(b.transposed())
	aa := a.times(a)
	want := []square{p.plus(2, 1), p.times(a), p.plus(1, 3), p.plus(3, 0), aa.times(aa), p.plus(200, 0), p.transposed(), square{}.plus(0, p.total())}
	check(t, metal.Source{Name: "matrices.metal", Text: matrices})
	for name, o := range map[string]soft.Options{"plain": {}, "reverse": {Seed: 1}, "random": {Seed: 9}, "race": {Mode: soft.Race}, "undefined": {Mode: soft.Undefined}} {
		t.Run(name, func(t *testing.T) {
			d := open(t, o)
			l, err := d.Compile(metal.Source{Name: "matrices.metal", Text: matrices})
			if err != nil {
				t.Fatal(err)
			}
			q, err := d.NewQueue("q")
			if err != nil {
				t.Fatal(err)
			}
			bench := &bench{device: d, library: l, queue: q}
			x, y, out := bench.buffer(t, 256), bench.buffer(t, 256), bench.buffer(t, 8*256)
			copy(f32(x), a[:])
			copy(f32(y), b[:])
			if err := bench.run(t, "matrix_uses", 1, 32, x, y, out); err != nil {
				t.Fatal(err)
			}
			for i, w := range want {
				if got := square(f32(out)[64*i : 64*i+64]); got != w {
					t.Errorf("result %d is\n%v, want\n%v", i, got, w)
				}
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
