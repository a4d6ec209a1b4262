package gpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/shaders"
)

// rowFormats are those that round.
func rowFormats() []ops.RowFormat { return []ops.RowFormat{ops.RowsF16, ops.RowsQ8} }

// blankCache is a cache of NaN, with NaN around it.
func blankCache(t *testing.T, b backend, f ops.RowFormat, rows, heads, dim int) ops.Cache {
	return ops.NewCache(f, rows, heads, dim, func(rows, cols int) ops.Tensor { return blank(t, b, rows, cols) })
}

// wordsOf are a tensor's bytes.
func wordsOf(x ops.Tensor) (data []byte) {
	for _, v := range x.Floats() {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// halfAt is half i of data, which is finite.
func halfAt(data []byte, i int) float64 {
	h := binary.LittleEndian.Uint16(data[2*i:])
	exp, frac := int(h>>10&31), float64(h&1023)
	if exp > 0 {
		frac += 1024
	}
	v := math.Ldexp(frac, max(exp, 1)-25)
	if h>>15 != 0 {
		return -v
	}
	return v
}

// readRows is all of a cache that rounds, and what one code of each value is worth (of a half: its distance to the next).
func readRows(c ops.Cache) (values, units []float64) {
	data := wordsOf(c.Data)
	for i := range c.Rows * c.Heads * c.Dim {
		if c.Format == ops.RowsF16 {
			v := halfAt(data, i)
			values, units = append(values, v), append(units, math.Exp2(max(math.Floor(math.Log2(math.Abs(v)+1e-30)), -14)-10))
			continue
		}
		unit := halfAt(wordsOf(c.Scales), i/c.Dim*c.HeadGroups()+i%c.Dim/ops.RowGroup)
		values, units = append(values, unit*float64(int8(data[i]))), append(units, unit)
	}
	return values, units
}

func TestStoreRows(t *testing.T) {
	b := open(t, gpu.Options{})
	for _, shape := range [][3]int{{5, 2, 32}, {3, 1, 40}, {4, 2, 7}, {2, 2, 256}} { // rows, heads, dim
		rows, heads, dim := shape[0], shape[1], shape[2]
		x := newSource(uint64(dim)).normal(rows*heads*dim, 2)
		clear(x[:dim]) // a head of zeros has a scale of zero
		for _, f := range rowFormats() {
			t.Run(fmt.Sprint(f, shape), func(t *testing.T) {
				c := blankCache(t, b, f, rows+1, heads, dim)
				in := put(t, b, x, heads*dim)
				b.StoreRows(c, 0, in.Slice(0, 1)) // in two parts, with a row to spare
				b.StoreRows(c, 1, in.Slice(1, rows))
				wait(t, b)
				got, units := readRows(ops.Cache{Rows: rows, Heads: heads, Dim: dim, Format: f, Data: c.Data, Scales: c.Scales})
				lost, whole := make([]float64, rows), make([]float64, rows)
				for i, v := range x {
					d := math.Abs(float64(v) - got[i])
					if !(d <= 0.57*units[i]) { // half a code, and what the scale's rounding costs at 127 of them
						t.Fatalf("value %d: %g came back as %g, one code is %g", i, v, got[i], units[i])
					}
					lost[i/(heads*dim)] += d * d
					whole[i/(heads*dim)] += float64(v) * float64(v)
				}
				for r := range rows {
					if f == ops.RowsQ8 && (off(float64(c.Loss.Row(r)[0]), lost[r]) > 1e-3 || off(float64(c.Loss.Row(r)[1]), whole[r]) > 1e-5) {
						t.Errorf("row %d: noted a loss of %v, want %g of %g", r, c.Loss.Row(r), lost[r], whole[r])
					}
				}
				for _, x := range c.Tensors() {
					checkFence(t, x)
				}
			})
		}
	}
}

// off is a relative difference.
func off(got, want float64) float64 { return math.Abs(got-want) / max(want, 1e-30) }

// Attention over a cache that rounds is near the CPU's over the same cache, in every form.
func TestAttendOverRoundedRows(t *testing.T) {
	for _, form := range []struct {
		near int
		o    gpu.Options
		tol  float64
	}{{0, gpu.Options{}, 3e-3}, {1, gpu.Options{}, 3e-3}, {1, gpu.Options{Float32: true}, 3e-6}} {
		b := open(t, form.o)
		b.SetNear(form.near)
		for _, c := range slices.Concat(attendCasesOf(0)[1:4], attendCasesOf(shaders.VectorRows)[1:4]) {
			for _, f := range rowFormats() {
				t.Run(fmt.Sprint(b.Class(), form.near, f, c.d, c.name), func(t *testing.T) {
					compare(t, b, form.tol, func(b ops.Backend) []ops.Tensor { return c.over(t, b, f) })
				})
			}
		}
	}
}

// over attends with K and V in caches of a format.
func (c attendCase) over(t *testing.T, b ops.Backend, f ops.RowFormat) []ops.Tensor {
	k, v := blankCache(t, b, f, c.pos+c.rows, c.d.Hkv, c.d.Hd), blankCache(t, b, f, c.pos+c.rows, c.d.Hkv, c.d.Hd)
	b.StoreRows(k, 0, put(t, b, c.k, c.d.Hkv*c.d.Hd))
	b.StoreRows(v, 0, put(t, b, c.v, c.d.Hkv*c.d.Hd))
	iq, bk, qg := put(t, b, c.iq, c.cols), put(t, b, c.bk, c.h.Dim), put(t, b, c.qg, 2*c.d.Hq*c.d.Hd)
	o := blank(t, b, c.rows, c.d.Hq*c.d.Hd)
	index := b.SelectBlocks(iq, c.h, bk, c.pos, c.ratio, c.budget)
	b.Attend(o, qg, k, v, index, c.pos, c.ratio, c.d)
	return []ops.Tensor{o}
}

// With the choices of an exact run on the CPU forced on it, the half-staged network is near it whatever holds its rows.
func TestNetworkOverRoundedRows(t *testing.T) {
	m := openModel(t, fixtureCase{"tiny", 64, false})
	on := func(be ops.Backend, kv qwen4exp.KV) oracle.OpenOn {
		return func(wrap func(ops.Backend) ops.Backend) (*qwen4exp.Engine, error) {
			return qwen4exp.Open(m.checkpoint, wrap(be), qwen4exp.Options{KV: kv})
		}
	}
	b := open(t, gpu.Options{})
	for _, kv := range []qwen4exp.KV{qwen4exp.KVF16, qwen4exp.KVQ8} {
		bound := oracle.BoundsOf(b.Class(), qwen4exp.Options{KV: kv}.Codec()).Forced
		report, err := oracle.Forced(context.Background(), on(cpu.New(cpu.Options{}), qwen4exp.KVF32), on(b, kv), m.fixture.Tokens, m.chunk, bound)
		if err != nil {
			t.Fatal(err)
		}
		if !report.OK() {
			var text strings.Builder
			report.Print(&text)
			t.Errorf("%s:\n%s", kv, text.String())
		}
	}
}

// The numbers of a recurrent state go where the CPU has them go, and the loss is near the CPU's.
func TestRoundState(t *testing.T) {
	x := append(newSource(36).normal(3*50-4, 2), 1.00390625, 1.01171875, -1.00390625, 0)
	b := open(t, gpu.Options{})
	compare(t, b, 0, func(b ops.Backend) []ops.Tensor {
		s := put(t, b, x, 50)
		b.RoundState(s, blank(t, b, 3, 2))
		return []ops.Tensor{s}
	})
	compare(t, b, 1e-5, func(b ops.Backend) []ops.Tensor {
		loss := blank(t, b, 3, 2)
		b.RoundState(put(t, b, x, 50), loss)
		return []ops.Tensor{loss}
	})
}
