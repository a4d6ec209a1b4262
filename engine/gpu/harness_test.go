package gpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
)

// backend is what both the reference and the device compute here.
type backend interface {
	Alloc(rows, cols int) (ops.Tensor, error)
	Free(t ops.Tensor)
	Wait(ctx context.Context) error
	ops.Dense
	ops.Streams
}

// open returns a Backend on the device that stands in for a GPU; the test is skipped where that cannot be had.
func open(t *testing.T, o gpu.Options) *gpu.Backend {
	t.Helper()
	b, err := gpu.New(openDevice(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// fence is how many rows of NaN stand before and after every tensor that a test puts on a backend: padding that an
// operation reads shows in its result, and what it writes there shows in a check.
const fence = 3

// put allocates a tensor holding v in rows of cols, with NaN around it.
func put(t *testing.T, b backend, v []float32, cols int) ops.Tensor {
	t.Helper()
	rows := len(v) / cols
	whole, err := b.Alloc(rows+2*fence, cols)
	if err != nil {
		t.Fatal(err)
	}
	all := whole.Floats()
	for i := range all {
		all[i] = float32(math.NaN())
	}
	copy(all[fence*cols:], v)
	return whole.Slice(fence, fence+rows)
}

// blank is an output of rows x cols that holds NaN until it is written.
func blank(t *testing.T, b backend, rows, cols int) ops.Tensor {
	t.Helper()
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return put(t, b, v, cols)
}

// checkFence fails where something was written around a tensor made by put.
func checkFence(t *testing.T, x ops.Tensor) {
	t.Helper()
	whole := ops.Tensor{Rows: x.Rows + 2*fence, Cols: x.Cols, Mem: x.Mem, Off: x.Off - fence*x.Cols}
	all := whole.Floats()
	for i, v := range all {
		if (i < x.Off || i >= x.Off+x.Rows*x.Cols) && v == v {
			t.Fatalf("element %d before or after the tensor was written: %g", i-x.Off, v)
		}
	}
}

func wait(t *testing.T, b backend) {
	t.Helper()
	if err := b.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// against runs an operation on the CPU and on the device and compares what it returns, all of it made by put. tol is
// the largest error relative to the larger of 1 and the root mean square of the reference.
func against(t *testing.T, b *gpu.Backend, tol float64, run func(t *testing.T, b backend) []ops.Tensor) {
	t.Helper()
	want, got := run(t, cpu.New(cpu.Options{Workers: 1})), run(t, b)
	wait(t, b)
	for i := range want {
		if err := worst(got[i].Floats(), want[i].Floats()); !(err <= tol) {
			t.Errorf("result %d: error %.2e, want at most %.0e", i, err, tol)
		}
		checkFence(t, got[i])
		b.Free(got[i])
	}
}

// worst is the largest difference relative to the larger of 1 and the root mean square of want; infinite for a NaN.
func worst(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	squares, err := 0.0, 0.0
	for i, w := range want {
		squares += float64(w) * float64(w) / float64(len(want))
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		err = max(err, d)
	}
	return err / max(1, math.Sqrt(squares))
}

// differs returns the first element whose bits differ, or -1.
func differs(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// source gives reproducible inputs.
type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 11))} }

// normal is n values of a nearly normal distribution times scale.
func (s source) normal(n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32((s.Float64() + s.Float64() + s.Float64() + s.Float64() - 2) * scale * 1.75)
	}
	return v
}

// number appends v in a plain format: bf16 and f16 truncated, within the normal range of a half.
func number(dst []byte, f ops.Format, v float32) []byte {
	bits := math.Float32bits(v)
	switch f {
	case ops.F32:
		return binary.LittleEndian.AppendUint32(dst, bits)
	case ops.F16:
		return binary.LittleEndian.AppendUint16(dst, uint16(bits>>16&0x8000|(bits>>13&0x3ffff-112<<10)&0x7fff))
	}
	return binary.LittleEndian.AppendUint16(dst, uint16(bits>>16))
}

// plain stores random values as F32, BF16 or F16.
func plain(src source, out, in int, f ops.Format) ops.Matrix {
	m := ops.Matrix{Name: fmt.Sprint("format ", f), Out: out, In: in, Format: f}
	for range out * in {
		v := (src.Float64() - 0.5) * 2
		if math.Abs(v) < 1e-3 {
			v = 1e-3
		}
		m.Data = number(m.Data, f, float32(v))
	}
	return m
}

// affine stores random codes.
func affine(src source, out, in, bits, group int, side ops.Format) ops.Matrix {
	m := ops.Matrix{Name: fmt.Sprint("affine ", bits, "-", group, "-", side), Out: out, In: in, Format: ops.Affine, Bits: bits, Group: group, Side: side}
	unit := 1.5 / float64(int(1)<<bits) // so that values are near [-0.75, 0.75]
	for range out * in / group {
		m.Scales = number(m.Scales, side, float32(unit*(0.7+0.3*src.Float64())))
		m.Biases = number(m.Biases, side, float32(-0.75+src.Float64()/8))
	}
	m.Data = make([]byte, out*in*bits/8)
	for i := range m.Data {
		m.Data[i] = byte(src.Uint32())
	}
	return m
}

// values decodes a matrix on the CPU, [out, in].
func values(t *testing.T, m ops.Matrix) []float32 {
	t.Helper()
	b := cpu.New(cpu.Options{Workers: 1})
	y, err := b.Alloc(m.Out, m.In)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, m.Out)
	for i := range ids {
		ids[i] = int32(i)
	}
	b.Embed(y, m, ids)
	return y.Floats()
}
