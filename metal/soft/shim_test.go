package soft_test

import (
	_ "embed"
	"encoding/binary"
	"math"
	"math/bits"
	"testing"
	"unsafe"

	"lector/metal"
	"lector/metal/soft"
)

//go:embed testdata/shim.metal
var shim string

func newShim(t *testing.T, o soft.Options) *bench {
	t.Helper()
	b := &bench{device: open(t, o)}
	var err error
	if b.library, err = b.device.Compile(metal.Source{Name: "shim.metal", Text: shim}); err != nil {
		t.Fatal(err)
	}
	if b.queue, err = b.device.NewQueue("shim"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = b.queue.Close(), b.library.Close() })
	return b
}

func u32(b metal.Buffer) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b.Bytes()))), len(b.Bytes())/4)
}

// The library's mathematics agree with Go's to a few units in the last place.
func TestShimMath(t *testing.T) {
	check(t, metal.Source{Name: "shim.metal", Text: shim})
	b := newShim(t, soft.Options{})
	in, out := b.buffer(t, 128), b.buffer(t, 128*16)
	for i := range 32 {
		f32(in)[i] = float32(i-16)*0.375 + 0.125
	}
	if err := b.run(t, "shim_math", 1, 32, in, out); err != nil {
		t.Fatal(err)
	}
	for i, x32 := range f32(in) {
		x := float64(x32)
		sign, positive := math.Copysign(1, x), 1.0
		if x > 0 {
			positive = 2
		}
		want := []float64{math.Exp(x), math.Log(math.Abs(x) + 1), 1 / math.Sqrt(math.Abs(x)+0.5), math.Tanh(x), math.Pow(math.Abs(x), 1.5),
			math.Floor(x) + 10*math.Ceil(x), min(max(x, -1), 1) + max(x, 2) + min(x, 3), x*3 + 1, positive, math.RoundToEven(x) + 100*math.Trunc(x),
			math.Sin(x) + 2*math.Cos(x), 2 * x, x, -x, x + (4-x)*0.25, sign}
		for k, w := range want {
			if got := float64(f32(out)[i*16+k]); math.Abs(got-w) > 2e-6*max(1, math.Abs(w)) {
				t.Errorf("result %d of %v is %v, want %v", k, x, got, w)
			}
		}
	}
}

func TestShimTypes(t *testing.T) {
	for _, o := range []soft.Options{{}, {Mode: soft.Undefined, Seed: 3}, {Mode: soft.Race}} {
		b := newShim(t, o)
		p, h, u := b.buffer(t, 32*16), b.buffer(t, 32*8), b.buffer(t, 32*4)
		out, counts, sum := b.buffer(t, 32*32), b.buffer(t, 12), b.buffer(t, 4)
		for i := range 32 {
			copy(f32(p)[4*i:], []float32{0, 1, float32(i), 2})
			for k, v := range []uint16{0x3c00, 0x4000, 0x4200, 0x4400} { // 1, 2, 3, 4
				binary.LittleEndian.PutUint16(h.Bytes()[8*i+2*k:], v)
			}
			u32(u)[i] = 0x08060402
		}
		if err := b.run(t, "shim_types", 1, 32, p, h, u, out, counts, sum); err != nil {
			t.Fatal(err)
		}
		for i := range 32 {
			if got := [4]float32(f32(p)[4*i : 4*i+4]); got != [4]float32{201 + 10*float32(i), 4, 2 * float32(i), 2} {
				t.Errorf("packed struct %d is %v", i, got)
			}
			for k, want := range []uint16{0x4200, 0x4200, 0x4600, 0x4800} { // 2+1, 1+2, 3+3, 4+4
				if got := binary.LittleEndian.Uint16(h.Bytes()[8*i+2*k:]); got != want {
					t.Errorf("half %d of lane %d is %#x, want %#x", k, i, got, want)
				}
			}
			n, lane := uint32(i), i
			down := min(lane+1, 31)
			want := [8]uint32{uint32(bits.OnesCount32(n) + 100*bits.LeadingZeros32(n) + 10000*bits.TrailingZeros32(n)), n + 9,
				n*(n-1)/2 + 1000*(n+1), uint32(down + 100*(lane^3) + 70000), 31 + 500 + 10000, 1, n, 0xd12}
			if lane == 0 {
				want[2], want[5] = 1000, 5
			}
			if got := [8]uint32(u32(out)[8*i : 8*i+8]); got != want {
				t.Errorf("lane %d wrote %v, want %v", i, got, want)
			}
		}
		if got := [3]uint32(u32(counts)); got != [3]uint32{496, 93, math.MaxUint32} {
			t.Errorf("atomics are at %v", got)
		}
		if f32(sum)[0] != 16 {
			t.Errorf("the atomic sum is %v", f32(sum)[0])
		}
	}
}
