package cpu_test

import (
	"fmt"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// report turns multiply-adds a call into GFLOP/s.
func report(b *testing.B, macs int) {
	b.ReportMetric(2*float64(macs)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}

func BenchmarkLinear(b *testing.B) {
	src := newSource(60)
	for _, m := range []matrix{plainMatrix(src, 512, 1024, ops.F32), plainMatrix(src, 512, 1024, ops.BF16),
		affineMatrix(src, 512, 1024, 4, 64, ops.BF16), affineMatrix(src, 512, 1024, 6, 64, ops.BF16)} {
		for _, rows := range []int{1, 512} {
			for _, workers := range []int{1, 0} {
				b.Run(fmt.Sprintf("format=%d/bits=%d/rows=%d/workers=%d", m.Format, m.Bits, rows, workers), func(b *testing.B) {
					c := cpu.New(cpu.Options{Workers: workers})
					x, y := put(c, src.normal(rows*m.In, 1), m.In), put(c, make([]float32, rows*m.Out), m.Out)
					for b.Loop() {
						c.Linear(y, x, m.Matrix)
					}
					report(b, rows*m.In*m.Out)
				})
			}
		}
	}
}

func BenchmarkAttend(b *testing.B) {
	src := newSource(61)
	d := ops.AttentionDims{Hq: 24, Hkv: 2, Hd: 256}
	const pos, rows = 2000, 4
	c := cpu.New(cpu.Options{Workers: 1})
	qg, o := put(c, src.normal(rows*2*d.Hq*d.Hd, 1), 2*d.Hq*d.Hd), put(c, make([]float32, rows*d.Hq*d.Hd), d.Hq*d.Hd)
	k, v := put(c, src.normal((pos+rows)*d.Hkv*d.Hd, 1), d.Hkv*d.Hd), put(c, src.normal((pos+rows)*d.Hkv*d.Hd, 1), d.Hkv*d.Hd)
	index := c.SelectBlocks(qg, ops.Heads{N: 4, Stride: 128, Dim: 128}, ops.Tensor{}, pos, 4, 512)
	for b.Loop() {
		c.Attend(o, qg, ops.CacheOf(k, d.Hkv), ops.CacheOf(v, d.Hkv), index, pos, 4, d)
	}
	report(b, rows*pos*d.Hq*d.Hd*2)
}

func BenchmarkSelectBlocks(b *testing.B) {
	src := newSource(62)
	c := cpu.New(cpu.Options{Workers: 1})
	const blocks, rows = 8192, 2
	h := ops.Heads{N: 4, Stride: 128, Dim: 128}
	iq, bk := put(c, src.normal(rows*512, 1), 512), put(c, src.normal(blocks*128, 1), 128)
	for b.Loop() {
		c.SelectBlocks(iq, h, bk, 4*blocks-rows, 4, 512)
	}
	report(b, rows*blocks*512)
}

func BenchmarkDeltaScan(b *testing.B) {
	src := newSource(63)
	d := ops.DeltaDims{Hk: 1, Hv: 2, Dk: 128, Dv: 128}
	const rows = 32
	c := cpu.New(cpu.Options{Workers: 1})
	qkv, o := put(c, src.normal(rows*512, 0.1), 512), put(c, make([]float32, rows*256), 256)
	g, s := put(c, make([]float32, rows*2), 2), put(c, make([]float32, 2*128*128), 128*128)
	for b.Loop() {
		c.DeltaScan(o, qkv, g, g, s, d)
	}
	report(b, rows*2*128*128*7/2)
}

func BenchmarkRunExperts(b *testing.B) {
	src := newSource(64)
	for _, rows := range []int{1, 64} {
		s := expertShape{rows: rows, h: 512, inner: 128, n: 16, k: 4, live: 16}
		_, records, logits := newExpertCase(src, s, true)
		b.Run(fmt.Sprint("rows=", rows), func(b *testing.B) {
			c := cpu.New(cpu.Options{Workers: 1})
			x, y, l := put(c, src.normal(rows*s.h, 1), s.h), put(c, make([]float32, rows*s.h), s.h), put(c, logits, s.n)
			route := c.Route(l, s.k, true)
			e := ops.Experts{N: s.n, Inner: s.inner, At: func(e int) ops.Expert { return records[e] }}
			for b.Loop() {
				c.RunExperts(y, x, e, route)
			}
			report(b, rows*s.k*3*s.h*s.inner)
		})
	}
}

func BenchmarkElementwise(b *testing.B) {
	src := newSource(65)
	c := cpu.New(cpu.Options{Workers: 1})
	x := put(c, src.normal(64*2560, 1), 2560)
	y, scale := put(c, src.normal(64*2560, 1), 2560), src.normal(2560, 1)
	b.Run("swiglu", func(b *testing.B) {
		for b.Loop() {
			c.SwiGLU(y, x, x)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(64*2560), "ns/element")
	})
	b.Run("norm", func(b *testing.B) {
		for b.Loop() {
			c.RMSNorm(x, x, scale, 2560, 1e-6)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(64*2560), "ns/element")
	})
}

// A chunk's attention at the released sizes, over rows of each format.
func BenchmarkAttendRows(b *testing.B) {
	src, d := newSource(3), ops.AttentionDims{Hq: 24, Hkv: 2, Hd: 256}
	const rows, pos = 16, 4096
	for name, f := range map[string]ops.RowFormat{"f32": ops.RowsF32, "f16": ops.RowsF16, "q8": ops.RowsQ8} {
		b.Run(name, func(b *testing.B) {
			c := cpu.New(cpu.Options{Workers: 1})
			k, _ := stored(c, f, src.normal((pos+rows)*d.Hkv*d.Hd, 1), d.Hkv, d.Hd)
			v, _ := stored(c, f, src.normal((pos+rows)*d.Hkv*d.Hd, 1), d.Hkv, d.Hd)
			qg, o := put(c, src.normal(rows*2*d.Hq*d.Hd, 1), 2*d.Hq*d.Hd), put(c, make([]float32, rows*d.Hq*d.Hd), d.Hq*d.Hd)
			iq, bk := put(c, src.normal(rows*32, 1), 32), put(c, src.normal((pos+rows)/4*32, 1), 32)
			index := c.SelectBlocks(iq, ops.Heads{N: 1, Stride: 32, Dim: 32}, bk, pos, 4, 512)
			for b.Loop() {
				c.Attend(o, qg, k, v, index, pos, 4, d)
			}
		})
	}
}

// A chunk's selection and attention at several positions: what either costs a row is to depend little on the position.
func BenchmarkDepth(b *testing.B) {
	d, h := ops.AttentionDims{Hq: 8, Hkv: 2, Hd: 128}, ops.Heads{N: 4, Stride: 64, Dim: 64}
	const rows, ratio, budget = 1024, 4, 512
	for _, pos := range []int{4096, 65536} {
		src, c := newSource(66), cpu.New(cpu.Options{Class: cpu.Blocked})
		n := pos + rows
		k, v := put(c, src.normal(n*d.Hkv*d.Hd, 1), d.Hkv*d.Hd), put(c, src.normal(n*d.Hkv*d.Hd, 1), d.Hkv*d.Hd)
		iq, bk := put(c, src.normal(rows*h.N*h.Dim, 1), h.N*h.Dim), put(c, src.normal(n/ratio*h.Dim, 1), h.Dim)
		qg, o := put(c, src.normal(rows*2*d.Hq*d.Hd, 1), 2*d.Hq*d.Hd), put(c, make([]float32, rows*d.Hq*d.Hd), d.Hq*d.Hd)
		index := c.SelectBlocks(iq, h, bk, pos, ratio, budget)
		b.Run(fmt.Sprintf("select/pos=%d", pos), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.SelectBlocks(iq, h, bk, pos, ratio, budget)
			}
		})
		b.Run(fmt.Sprintf("attend/pos=%d", pos), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Attend(o, qg, ops.CacheOf(k, d.Hkv), ops.CacheOf(v, d.Hkv), index, pos, ratio, d)
			}
		})
	}
}
