package oracle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"lector/engine"
	"lector/engine/ops"
	"lector/engine/qwen4exp"
)

// OpenOn loads a model on a backend that wrap has been put around.
type OpenOn func(wrap func(ops.Backend) ops.Backend) (*qwen4exp.Engine, error)

// Forced runs tokens on an exact engine, and then on the one under test, held to the experts and blocks that the first
// chose. What differs in the logits of every row, and in every region of the state, is rounding alone; bound is what
// the relative L2 of each may be.
func Forced(ctx context.Context, exact, subject OpenOn, tokens []engine.Token, chunk int, bound float64) (Report, error) {
	r := &recording{}
	want, err := readOn(ctx, exact, func(be ops.Backend) ops.Backend { r.Backend = be; return r }, tokens, chunk)
	if err != nil {
		return Report{}, fmt.Errorf("run the exact engine: %w", err)
	}
	f := &forced{choices: r.choices}
	got, err := readOn(ctx, subject, func(be ops.Backend) ops.Backend { f.Backend = be; return f }, tokens, chunk)
	if err != nil {
		return Report{}, err
	}
	if len(f.choices) > 0 {
		return Report{}, fmt.Errorf("%w: %d of them are left over", errChoices, len(f.choices))
	}
	return Report{Lines: got.against(want, bound)}, nil
}

// readOn prefills the tokens and copies the logits of all rows, and the state.
func readOn(ctx context.Context, open OpenOn, wrap func(ops.Backend) ops.Backend, tokens []engine.Token, chunk int) (out afterRun, err error) {
	e, err := open(wrap)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s, err := e.Sequence(len(tokens))
	if err != nil {
		return out, err
	}
	defer s.Close()
	if err := s.Observe(qwen4exp.Debug{Logits: true}); err != nil {
		return out, err
	}
	for from := 0; from < len(tokens); from += chunk {
		to := min(from+chunk, len(tokens))
		if _, err := s.Prefill(ctx, tokens[from:to], nil); err != nil {
			return out, err
		}
		for p := from; p < to; p++ {
			row, err := s.LogitsAt(p)
			if err != nil {
				return out, err
			}
			out.logits = append(out.logits, row...)
		}
	}
	lent, err := s.Regions()
	if err != nil {
		return out, err
	}
	for _, r := range lent {
		r.Data = slices.Clone(r.Data)
		out.regions = append(out.regions, r)
	}
	return out, nil
}

// errChoices says that a run made other calls than the one that it is held to.
var errChoices = errors.New("the run makes other choices than the recorded one")

// choice is what one call of Route (experts, k a row) or of SelectBlocks chose.
type choice struct {
	k       int
	experts []int32
	blocks  [][]int32
}

// recording notes every choice of a backend.
type recording struct {
	ops.Backend
	choices []choice
	failed  error
}

// Wait implements ops.Backend.
func (r *recording) Wait(ctx context.Context) error {
	return errors.Join(r.failed, r.Backend.Wait(ctx))
}

// settle waits, so that a choice can be read.
func (r *recording) settle() {
	if err := r.Backend.Wait(context.Background()); err != nil && r.failed == nil {
		r.failed = err
	}
}

// Route implements ops.MoE.
func (r *recording) Route(logits ops.Tensor, k int, renorm bool) ops.Route {
	route := r.Backend.Route(logits, k, renorm)
	r.settle()
	c := choice{k: k}
	for row := range logits.Rows {
		experts, _ := route.Row(row)
		c.experts = append(c.experts, experts...)
	}
	r.choices = append(r.choices, c)
	return route
}

// SelectBlocks implements ops.Attention.
func (r *recording) SelectBlocks(iq ops.Tensor, h ops.Heads, bk ops.Tensor, pos, ratio, budget int) ops.Index {
	index := r.Backend.SelectBlocks(iq, h, bk, pos, ratio, budget)
	r.settle()
	c := choice{}
	for row := range iq.Rows {
		c.blocks = append(c.blocks, slices.Clone(index.Blocks(row)))
	}
	r.choices = append(r.choices, c)
	return index
}

// forced is a backend that is held to recorded choices; the weights of forced experts are its own.
type forced struct {
	ops.Backend
	choices []choice
	failed  error
}

// forcer is a backend whose choices lie on a device.
type forcer interface {
	ForceRoute(experts []int32, weights []float32, k int) ops.Route
	ForceBlocks(rows [][]int32, pos, ratio, budget int) ops.Index
}

// Wait implements ops.Backend.
func (f *forced) Wait(ctx context.Context) error { return errors.Join(f.failed, f.Backend.Wait(ctx)) }

func (f *forced) fail(err error) {
	if f.failed == nil {
		f.failed = err
	}
}

// next is the recorded choice, if it is one for so many rows of k experts (0: of blocks).
func (f *forced) next(rows, k int) (choice, bool) {
	if len(f.choices) > 0 {
		c := f.choices[0]
		f.choices = f.choices[1:]
		if c.k == k && (k > 0 && len(c.experts) == rows*k || k == 0 && len(c.blocks) == rows) {
			return c, true
		}
	}
	f.fail(errChoices)
	return choice{}, false
}

// Route implements ops.MoE.
func (f *forced) Route(logits ops.Tensor, k int, renorm bool) ops.Route {
	c, ok := f.next(logits.Rows, k)
	if !ok {
		return f.Backend.Route(logits, k, renorm)
	}
	if err := f.Backend.Wait(context.Background()); err != nil { // the logits are read here
		f.fail(err)
	}
	weights := make([]float32, len(c.experts))
	for r := range logits.Rows {
		shares(weights[r*k:(r+1)*k], logits.Row(r), c.experts[r*k:(r+1)*k], renorm)
	}
	if device, ok := f.Backend.(forcer); ok {
		return device.ForceRoute(c.experts, weights, k)
	}
	return fixedRoute{c.experts, weights, k}
}

// shares sets weights to the softmax of the logits at the experts.
func shares(weights, logits []float32, experts []int32, renorm bool) {
	top := slices.Max(logits)
	all, chosen := 0.0, 0.0
	for _, v := range logits {
		all += math.Exp(float64(v - top))
	}
	for _, e := range experts {
		chosen += math.Exp(float64(logits[e] - top))
	}
	if renorm {
		all = chosen
	}
	for i, e := range experts {
		weights[i] = float32(math.Exp(float64(logits[e]-top)) / all)
	}
}

// SelectBlocks implements ops.Attention.
func (f *forced) SelectBlocks(iq ops.Tensor, h ops.Heads, bk ops.Tensor, pos, ratio, budget int) ops.Index {
	c, ok := f.next(iq.Rows, 0)
	if !ok {
		return f.Backend.SelectBlocks(iq, h, bk, pos, ratio, budget)
	}
	if device, ok := f.Backend.(forcer); ok {
		return device.ForceBlocks(c.blocks, pos, ratio, budget)
	}
	return fixedIndex(c.blocks)
}

// fixedRoute and fixedIndex are choices as a backend on the host takes them.
type fixedRoute struct {
	experts []int32
	weights []float32
	k       int
}

func (r fixedRoute) Row(i int) ([]int32, []float32) {
	return r.experts[i*r.k : (i+1)*r.k], r.weights[i*r.k : (i+1)*r.k]
}

type fixedIndex [][]int32

func (x fixedIndex) Blocks(r int) []int32 { return x[r] }
