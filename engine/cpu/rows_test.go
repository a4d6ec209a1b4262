package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
	"pgregory.net/rapid"
)

// newCache is an empty cache that holds NaN until it is written.
func newCache(b *cpu.Backend, f ops.RowFormat, rows, heads, dim int) ops.Cache {
	return ops.NewCache(f, rows, heads, dim, func(rows, cols int) ops.Tensor {
		t, err := b.Alloc(rows, cols)
		if err != nil {
			panic(err)
		}
		copy(t.Floats(), garbage(rows*cols))
		return t
	})
}

// stored is x as a cache of the format gives it back.
func stored(b *cpu.Backend, f ops.RowFormat, x []float32, heads, dim int) (ops.Cache, []float32) {
	c := newCache(b, f, len(x)/(heads*dim), heads, dim)
	b.StoreRows(c, 0, put(b, x, heads*dim))
	return c, cpu.ReadRows(c)
}

// Every half is itself, and every other number goes to the nearer of its neighbours, the even one where both are near.
func TestToHalf(t *testing.T) {
	for h := range 1 << 16 {
		v := cpu.HalfWiden(uint16(h))
		if v != v {
			if got := cpu.HalfWiden(cpu.HalfNarrow(v)); got == got {
				t.Fatalf("NaN %04x became %g", h, got)
			}
			continue
		}
		if got := cpu.HalfNarrow(v); got != uint16(h) {
			t.Fatalf("half %04x came back as %04x", h, got)
		}
		if h&0x7fff >= 0x7bff {
			continue
		}
		next := cpu.HalfWiden(uint16(h + 1))
		mid, even := (v+next)/2, uint16(h+h&1)
		below, above := math.Nextafter32(mid, v), math.Nextafter32(mid, next)
		if cpu.HalfNarrow(mid) != even || cpu.HalfNarrow(below) != uint16(h) || cpu.HalfNarrow(above) != uint16(h+1) {
			t.Fatalf("around %g, between %04x and its neighbour: %04x %04x %04x", mid, h, cpu.HalfNarrow(below), cpu.HalfNarrow(mid), cpu.HalfNarrow(above))
		}
	}
	for v, want := range map[float32]uint16{65519.996: 0x7bff, 65520: 0x7c00, -1e30: 0xfc00, 1e-30: 0, -1e-30: 0x8000} {
		if got := cpu.HalfNarrow(v); got != want {
			t.Errorf("%g became %04x, want %04x", v, got, want)
		}
	}
}

// A number comes back within half a code of itself, and the noted loss is that of the row.
func TestCodesComeBackNear(t *testing.T) {
	b := cpu.New(cpu.Options{Workers: 2})
	rapid.Check(t, func(t *rapid.T) {
		heads, dim := rapid.IntRange(1, 3).Draw(t, "heads"), rapid.IntRange(1, 70).Draw(t, "dim")
		scale := math.Exp2(rapid.Float64Range(-20, 18).Draw(t, "scale"))
		x := make([]float32, heads*dim)
		for i := range x {
			x[i] = float32(rapid.Float64Range(-1, 1).Draw(t, "value") * scale)
		}
		c, got := stored(b, ops.RowsQ8, x, heads, dim)
		lost, whole := 0.0, 0.0
		for head := range heads {
			for from := 0; from < dim; from += ops.RowGroup {
				group := x[head*dim+from : head*dim+min(from+ops.RowGroup, dim)]
				top := 0.0
				for _, v := range group {
					top = max(top, math.Abs(float64(v)))
				}
				// half a code, what the scale's own rounding costs at 127 codes, and where halves are coarse
				bound := top/254*(1+1.0/512) + top/2048 + 127.0/(1<<25)
				for i, v := range group {
					d := math.Abs(float64(v) - float64(got[head*dim+from+i]))
					if !(d <= bound) {
						t.Fatalf("%g of a group up to %g came back %g off, more than %g", v, top, d, bound)
					}
					lost, whole = lost+d*d, whole+float64(v)*float64(v)
				}
			}
		}
		for i, want := range []float64{lost, whole} {
			if noted := float64(c.Loss.Row(0)[i]); math.Abs(noted-want) > 1e-6*want+1e-38 {
				t.Fatalf("noted %v, want %g and %g", c.Loss.Row(0), lost, whole)
			}
		}
	})
}

// What is not finite must not come back as a number.
func TestCodesKeepWhatIsNotFinite(t *testing.T) {
	b := cpu.New(cpu.Options{})
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), 3e38} {
		for at := range 3 {
			x := []float32{1, 2, 3}
			x[at] = bad
			for _, f := range []ops.RowFormat{ops.RowsF16, ops.RowsQ8} {
				if _, got := stored(b, f, x, 1, 3); got[at]-got[at] == 0 {
					t.Errorf("format %d: %g at %d came back as %g", f, bad, at, got[at])
				}
			}
		}
	}
}

// Attention over a cache that rounds is, bit for bit, attention over the numbers that it holds.
func TestAttendReadsWhatIsStored(t *testing.T) {
	src := newSource(33)
	for _, s := range []attentionShape{
		{ops.AttentionDims{Hq: 6, Hkv: 2, Hd: 64}, 30, 9, 4, 3, 3, 64},
		{ops.AttentionDims{Hq: 5, Hkv: 1, Hd: 40}, 61, 5, 4, 100, 4, 8},
		{ops.AttentionDims{Hq: 2, Hkv: 2, Hd: 3}, 0, 7, 4, 1, 1, 3},
	} {
		n := (s.pos + s.rows) * s.Hkv * s.Hd
		k, v := src.normal(n, 1), src.normal(n, 1)
		qg, iq := src.normal(s.rows*2*s.Hq*s.Hd, 1), src.normal(s.rows*s.hi*s.di, 1)
		bk := src.normal(((s.pos+s.rows)/s.ratio+1)*s.di, 1)
		attend := func(b *cpu.Backend, cuts []int, ks, vs ops.Cache) []float32 {
			o, q := put(b, garbage(s.rows*s.Hq*s.Hd), s.Hq*s.Hd), put(b, qg, 2*s.Hq*s.Hd)
			is, bs := put(b, iq, s.hi*s.di), put(b, bk, s.di)
			chunks(cuts, func(from, to int) {
				index := b.SelectBlocks(is.Slice(from, to), ops.Heads{N: s.hi, Stride: s.di, Dim: s.di}, bs, s.pos+from, s.ratio, s.budget)
				b.Attend(o.Slice(from, to), q.Slice(from, to), ks, vs, index, s.pos+from, s.ratio, s.AttentionDims)
			})
			return o.Floats()
		}
		for _, class := range cpu.Classes() {
			for _, f := range []ops.RowFormat{ops.RowsF16, ops.RowsQ8} {
				b := cpu.New(cpu.Options{Class: class, Workers: 1})
				_, wantK := stored(b, f, k, s.Hkv, s.Hd)
				_, wantV := stored(b, f, v, s.Hkv, s.Hd)
				want := attend(b, []int{0, s.rows}, ops.CacheOf(put(b, wantK, s.Hkv*s.Hd), s.Hkv), ops.CacheOf(put(b, wantV, s.Hkv*s.Hd), s.Hkv))
				checkClass(t, opCase{fmt.Sprint(f, s), s.rows, func(b *cpu.Backend, cuts []int) []float32 {
					ks, _ := stored(b, f, k, s.Hkv, s.Hd)
					vs, _ := stored(b, f, v, s.Hkv, s.Hd)
					return attend(b, cuts, ks, vs)
				}, wide(want), 0}, class)
			}
		}
	}
}

func TestRoundState(t *testing.T) {
	x := append(newSource(35).normal(3*40-8, 3), 1, 1.00390625, 1.01171875, -1.00390625, 0, 1e-45, 3.4028235e38, float32(math.Inf(1)))
	want := []float32{1, 1, 1.015625, -1, 0, 0, float32(math.Inf(1)), float32(math.Inf(1))} // ties go to even
	for _, workers := range []int{1, 3} {
		b := cpu.New(cpu.Options{Workers: workers})
		s, loss := put(b, x, 40), put(b, garbage(6), 2)
		b.RoundState(s, loss)
		if got := s.Floats()[3*40-8:]; differs(got, want) >= 0 {
			t.Errorf("got %v, want %v", got, want)
		}
		for r := range 2 {
			lost, whole := 0.0, 0.0
			for i, v := range s.Row(r) {
				was := float64(x[r*40+i])
				if math.Float32bits(v)&0xffff != 0 || math.Abs(float64(v)-was) > math.Abs(was)/256 {
					t.Fatalf("%g became %g", was, v)
				}
				lost, whole = lost+(float64(v)-was)*(float64(v)-was), whole+was*was
			}
			if l := loss.Row(r); math.Abs(float64(l[0])-lost) > 1e-6*lost || math.Abs(float64(l[1])-whole) > 1e-6*whole || lost == 0 {
				t.Errorf("row %d: noted %v, want %g of %g", r, l, lost, whole)
			}
		}
	}
}
