package oracle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lector/engine"
	"lector/engine/qwen4exp"
)

// Open loads the model under test with one reading of the draft head's hidden norm.
type Open func(qwen4exp.HiddenNorm) (*qwen4exp.Engine, error)

// Check runs the fixture's prompt in chunks and compares everything that the fixture holds, number by number.
func (x *Fixture) Check(ctx context.Context, open Open, chunk int) (Report, error) {
	return x.CheckWithin(ctx, open, chunk, 0)
}

// CheckWithin is Check for a class that is near the reference: bound is of the relative L2 of every tensor, and a
// few choices may differ. The greedy text must be the same where the fixture says that no step of it was close.
func (x *Fixture) CheckWithin(ctx context.Context, open Open, chunk int, bound float64) (Report, error) {
	if chunk < 1 {
		return Report{}, fmt.Errorf("chunk of %d tokens: at least 1", chunk)
	}
	c := &comparison{x: x, bound: bound, gauges: map[string]*gauge{}}
	if err := c.grouped(ctx, open, chunk); err != nil {
		return Report{}, err
	}
	if _, ok := x.tensors["mtp_flat.logits"]; ok && c.head {
		if err := c.flat(ctx, open, chunk); err != nil {
			return Report{}, err
		}
	}
	return c.report(), nil
}

// comparison is a Check in progress.
type comparison struct {
	x      *Fixture
	order  []string
	gauges map[string]*gauge
	seen   []string // tensors of the fixture that were compared
	head   bool     // the model has a draft head
	bound  float64  // of the relative L2; 0: every number within Tolerance
}

// gauge returns the line of that name, which the tensor of that name is compared in.
func (c *comparison) gauge(name string) *gauge {
	g, ok := c.gauges[name]
	if !ok {
		g = &gauge{
			line: Line{Name: name}, strict: strings.HasSuffix(name, "logits"),
			text: name == "greedy" || name == "mtp_drafts" || name == "mtp_chain",
		}
		c.gauges[name], c.order = g, append(c.order, name)
	}
	return g
}

// tensor finds an expectation and notes that it is compared.
func (c *comparison) tensor(name string) (values, bool) {
	v, ok := c.x.tensors[name]
	if ok && !slices.Contains(c.seen, name) {
		c.seen = append(c.seen, name)
	}
	return v, ok
}

func (c *comparison) report() Report {
	var r Report
	for _, name := range c.order {
		exact := name == "greedy" && c.x.report.GreedyMargin > c.bound
		r.Lines = append(r.Lines, c.gauges[name].done(c.bound, exact))
	}
	for name := range c.x.tensors {
		if name != "tokens" && !slices.Contains(c.seen, name) {
			r.Lines = append(r.Lines, Line{Name: name, First: "the model has nothing of that name"})
		}
	}
	n := len(c.x.Tokens)
	if v, ok := c.x.tensors["wide"]; ok && v.shape[1] < n {
		r.Skipped = append(r.Skipped, fmt.Sprintf("residuals and routing of rows %d to %d: not in the fixture", v.shape[1], n-1))
	}
	if from := c.x.report.LogitsFrom; from > 0 {
		r.Skipped = append(r.Skipped, fmt.Sprintf("logits and visible sets of rows 0 to %d: not in the fixture", from-1))
	}
	if _, ok := c.x.tensors["mtp.logits"]; !ok {
		r.Skipped = append(r.Skipped, "the draft head: not in the fixture")
	} else if len(c.x.report.Chain) == 0 {
		r.Skipped = append(r.Skipped, "chained drafts: not in the fixture")
	}
	return r
}

// grouped compares everything but the flat reading of the head.
func (c *comparison) grouped(ctx context.Context, open Open, chunk int) error {
	e, err := open(qwen4exp.Grouped)
	if err != nil {
		return err
	}
	defer e.Close()
	c.head = e.Info().DraftHead
	s, err := e.Sequence(len(c.x.Tokens) + len(c.x.report.Greedy) + engine.MaxDrafts)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Observe(qwen4exp.Debug{Logits: true, Wide: true, Route: true, Blocks: true}); err != nil {
		return err
	}
	step, err := c.prefill(ctx, e, s, chunk, func(from, to int) error { return c.chunkViews(s, e.Info().Layers, from, to) })
	if err != nil {
		return err
	}
	if err := c.state(s); err != nil {
		return err
	}
	return c.continuation(ctx, s, step)
}

// flat compares the head's logits with one RMS over the whole residual.
func (c *comparison) flat(ctx context.Context, open Open, chunk int) error {
	e, err := open(qwen4exp.Flat)
	if err != nil {
		return err
	}
	defer e.Close()
	s, err := e.Sequence(len(c.x.Tokens))
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Observe(qwen4exp.Debug{Logits: true}); err != nil {
		return err
	}
	_, err = c.prefill(ctx, e, s, chunk, func(from, to int) error { return c.headViews(s, "mtp_flat.logits", from, to) })
	return err
}

// prefill runs the prompt in chunks and calls views with each chunk's rows.
func (c *comparison) prefill(ctx context.Context, e *qwen4exp.Engine, s *qwen4exp.Sequence, chunk int, views func(from, to int) error) (engine.Step, error) {
	var step engine.Step
	chunk = min(chunk, e.Info().MaxChunk)
	for from := 0; from < len(c.x.Tokens); from += chunk {
		to := min(from+chunk, len(c.x.Tokens))
		var err error
		if step, err = s.Prefill(ctx, c.x.Tokens[from:to], nil); err != nil {
			return step, err
		}
		if err := views(from, to); err != nil {
			return step, err
		}
	}
	return step, nil
}

// chunkViews compares the debug views of rows [from, to).
func (c *comparison) chunkViews(s *qwen4exp.Sequence, layers, from, to int) error {
	if want, ok := c.tensor("logits"); ok {
		for p := max(from, c.x.report.LogitsFrom); p < to; p++ {
			got, err := s.LogitsAt(p)
			if err != nil {
				return err
			}
			c.gauge("logits").numbers(got, want.row(-1, p-c.x.report.LogitsFrom), place(p))
		}
	}
	for l := range layers + 1 {
		if err := c.layerViews(s, l, layers, from, to); err != nil {
			return err
		}
	}
	return c.headViews(s, "mtp.logits", from, to)
}

func place(p int) string { return "row " + strconv.Itoa(p) }

// layerViews compares what one layer saw and chose; layer = layers stands for the residual after the last.
func (c *comparison) layerViews(s *qwen4exp.Sequence, l, layers, from, to int) error {
	if want, ok := c.tensor("wide"); ok {
		for p := from; p < min(to, want.shape[1]); p++ {
			got, err := s.WideAt(l, p)
			if err != nil {
				return err
			}
			c.gauge("wide").numbers(got, want.row(l, p), fmt.Sprintf("layer %d %s", l, place(p)))
		}
	}
	if l == layers {
		return nil
	}
	if err := c.routes(s, l, from, to); err != nil {
		return err
	}
	name := fmt.Sprintf("visible.%d", l)
	want, ok := c.tensor(name)
	if !ok {
		return nil
	}
	for p := max(from, c.x.report.LogitsFrom); p < to; p++ {
		got, err := s.VisibleAt(l, p)
		if err != nil {
			return err
		}
		mask := make([]int64, len(c.x.Tokens))
		for _, t := range got {
			mask[t] = 1
		}
		n := len(mask)
		at := (p - c.x.report.LogitsFrom) * n
		choices(c.gauge(name), mask, want.ints[at:at+n], place(p))
	}
	return nil
}

func (c *comparison) routes(s *qwen4exp.Sequence, l, from, to int) error {
	index, ok := c.tensor("router_index")
	if !ok {
		return nil
	}
	weight, _ := c.tensor("router_weight")
	for p := from; p < min(to, index.shape[1]); p++ {
		ids, w, err := s.RouteAt(l, p)
		if err != nil {
			return err
		}
		k := index.shape[2]
		at := (l*index.shape[1] + p) * k
		where := fmt.Sprintf("layer %d %s", l, place(p))
		choices(c.gauge("router_index"), ids, index.ints[at:at+k], where)
		if slices.EqualFunc(ids, index.ints[at:at+k], func(a int32, b int64) bool { return int64(a) == b }) {
			c.gauge("router_weight").numbers(w, weight.row(l, p), where) // of other experts they are others
		}
	}
	return nil
}

// headViews compares the head's logits. The head completes the row before the chunk, not the chunk's last.
func (c *comparison) headViews(s *qwen4exp.Sequence, name string, from, to int) error {
	if !c.head {
		return nil // the report then says that the model has nothing of that name
	}
	want, ok := c.tensor(name)
	if !ok {
		return nil
	}
	for p := max(from-1, c.x.report.LogitsFrom); p < to-1; p++ {
		got, err := s.HeadLogitsAt(p)
		if err != nil {
			return err
		}
		c.gauge(name).numbers(got, want.row(-1, p-c.x.report.LogitsFrom), place(p))
	}
	return nil
}

// errShape is a fixture that is not of the shape its format says.
var errShape = errors.New("fixture and model differ in shape")
