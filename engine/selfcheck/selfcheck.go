package selfcheck

import (
	"context"
	"fmt"
	"math"
	"strings"

	"lector/engine/ops"
)

// Result is one operation on one shape.
type Result struct {
	Op    string  `json:"op"`
	Shape string  `json:"shape"`
	Off   float64 `json:"off"`   // the largest difference, relative to the larger of 1 and the reference's root mean square
	Bound float64 `json:"bound"` // what it may be
	Err   string  `json:"error,omitempty"`
}

// OK says that the operation is within its bound.
func (r Result) OK() bool { return r.Err == "" && r.Off <= r.Bound }

// check is one operation on one shape.
type check struct {
	op, shape   string
	half, float float64 // bounds where products are staged in half, and where not
	run         func(r *run)
}

// Run runs every check on both backends. It ends early only with the context.
func Run(ctx context.Context, reference, subject ops.Backend) ([]Result, error) {
	var results []Result
	for _, c := range checks() {
		if err := ctx.Err(); err != nil {
			return results, err
		}
		r := Result{Op: c.op, Shape: c.shape, Bound: c.float}
		if strings.HasSuffix(subject.Class(), "-h1") {
			r.Bound = c.half
		}
		want, err := c.on(reference)
		if err != nil {
			return results, fmt.Errorf("run %s %s on %s: %w", c.op, c.shape, reference.Class(), err)
		}
		got, err := c.on(subject)
		if err != nil {
			r.Err = err.Error()
		} else {
			r.Off = apart(got, want)
		}
		if math.IsInf(r.Off, 1) { // JSON has no infinity
			r.Off, r.Err = math.MaxFloat32, "a result is not a number, was not written, or is another choice"
		}
		results = append(results, r)
	}
	return results, nil
}

// Failed counts the results that are not within their bounds.
func Failed(results []Result) int {
	n := 0
	for _, r := range results {
		if !r.OK() {
			n++
		}
	}
	return n
}

// on runs the check on one backend and returns its outputs.
func (c *check) on(be ops.Backend) (out [][]float32, err error) {
	r := &run{Backend: be, source: newSource(c.op + c.shape)}
	defer r.free()
	r.prepare(c)
	if err := be.Wait(context.Background()); err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	for _, read := range r.outputs {
		out = append(out, read())
	}
	return out, nil
}

// prepare calls the operations. An allocation that fails ends it.
func (r *run) prepare(c *check) {
	defer func() {
		if r.err != nil {
			_ = recover() // put's
		}
	}()
	c.run(r)
}

// apart is the largest difference of two lists of outputs; infinite where one is no number.
func apart(got, want [][]float32) float64 {
	most := 0.0
	for i := range want {
		if len(got) != len(want) || len(got[i]) != len(want[i]) {
			return math.Inf(1)
		}
		squares, off := 0.0, 0.0
		for j, w := range want[i] {
			d := math.Abs(float64(got[i][j]) - float64(w))
			if math.IsNaN(d) {
				return math.Inf(1)
			}
			off = max(off, d)
			squares += float64(w) * float64(w) / float64(len(want[i]))
		}
		most = max(most, off/max(1, math.Sqrt(squares)))
	}
	return most
}

// run is one check on one backend.
type run struct {
	ops.Backend
	*source
	held    []ops.Tensor
	slots   []ops.Slots
	outputs []func() []float32
	err     error
}

// put is a tensor that holds v in rows of cols.
func (r *run) put(v []float32, cols int) ops.Tensor {
	rows := 0
	if cols > 0 {
		rows = len(v) / cols
	}
	t, err := r.Alloc(rows, cols)
	if err != nil {
		r.err = err
		panic(err) // to prepare
	}
	copy(t.Floats(), v)
	r.held = append(r.held, t)
	return t
}

// blank is an output, full of NaN.
func (r *run) blank(rows, cols int) ops.Tensor {
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return r.put(v, cols)
}

// out compares a tensor.
func (r *run) out(tensors ...ops.Tensor) {
	for _, t := range tensors {
		r.outputs = append(r.outputs, func() []float32 { return append([]float32(nil), t.Floats()...) })
	}
}

// chosen compares choices, each to the last one: a wrong one is infinitely off.
func (r *run) chosen(read func() [][]int32) {
	r.outputs = append(r.outputs, func() []float32 {
		var all []float32
		for _, row := range read() {
			for _, id := range append(row, -1) {
				all = append(all, float32(id)*1e9)
			}
		}
		return all
	})
}

func (r *run) free() {
	for _, t := range r.held {
		r.Free(t)
	}
	for _, s := range r.slots {
		if s.Free != nil {
			s.Free()
		}
	}
}
