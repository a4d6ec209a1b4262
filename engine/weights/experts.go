package weights

import "fmt"

// Experts are the routed experts of one layer.
type Experts struct {
	N      int // experts
	Inner  int // width between gate/up and down
	Hidden int // width of the residual

	records [][3]Tensor
}

// At returns expert i: gate and up [Inner, Hidden], down [Hidden, Inner]. The tensors are views made when the
// layer was read; At allocates nothing.
func (e *Experts) At(i int) (gate, up, down Tensor) {
	r := &e.records[i]
	return r[0], r[1], r[2]
}

// The ways to store experts.
const (
	fusedExperts  = "fused"      // gate_up_proj [N, 2*Inner, Hidden], gate rows first; down_proj [N, Hidden, Inner]
	switchExperts = "switch_mlp" // MLX: three stacks
	singleExperts = "per expert"
	packedRecords = "records" // of a packed store
)

// Experts reads the routed experts of a layer such as "model.language_model.layers.3" or "mtp.layers.0",
// stored fused, as three stacks (MLX) or one by one.
func (c *Checkpoint) Experts(layer string, n, inner, hidden int) (*Experts, error) {
	e, _, err := c.experts(layer, n, inner, hidden)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// experts also returns the layer's tensors as stored, for verify.
func (c *Checkpoint) experts(layer string, n, inner, hidden int) (*Experts, *collection, error) {
	if c.packed != nil {
		return c.packedExperts(layer, n, inner, hidden)
	}
	e := &Experts{N: n, Inner: inner, Hidden: hidden, records: make([][3]Tensor, n)}
	got := &collection{c: c}
	base := layer + ".mlp."
	switch c.expertForm(layer) {
	case fusedExperts:
		both := got.matrix(base+"experts.gate_up_proj", n, 2*inner, hidden)
		down := got.matrix(base+"experts.down_proj", n, hidden, inner)
		if got.err == nil {
			e.cut(layer, func(i int) [3]Tensor {
				return [3]Tensor{both.rows(i, 0, inner), both.rows(i, inner, 2*inner), down.rows(i, 0, hidden)}
			})
		}
	case switchExperts:
		gate := got.matrix(base+"switch_mlp.gate_proj", n, inner, hidden)
		up := got.matrix(base+"switch_mlp.up_proj", n, inner, hidden)
		down := got.matrix(base+"switch_mlp.down_proj", n, hidden, inner)
		if got.err == nil {
			e.cut(layer, func(i int) [3]Tensor {
				return [3]Tensor{gate.rows(i, 0, inner), up.rows(i, 0, inner), down.rows(i, 0, hidden)}
			})
		}
	default:
		for i := range n {
			name := fmt.Sprintf("%sexperts.%d.", base, i)
			e.records[i] = [3]Tensor{
				got.matrix(name+"gate_proj", inner, hidden), got.matrix(name+"up_proj", inner, hidden),
				got.matrix(name+"down_proj", hidden, inner),
			}
		}
	}
	return e, got, got.err
}

// expertForm says how the experts of a layer are stored; a layer without any reads as fused, so that the
// error names the released tensor.
func (c *Checkpoint) expertForm(layer string) string {
	switch {
	case c.packed != nil:
		return packedRecords
	case c.find(layer+".mlp.switch_mlp.gate_proj") != nil:
		return switchExperts
	case c.find(layer+".mlp.experts.0.gate_proj") != nil:
		return singleExperts
	}
	return fusedExperts
}

// cut fills the records from stacks, and names each view after its expert.
func (e *Experts) cut(layer string, record func(i int) [3]Tensor) {
	for i := range e.records {
		e.records[i] = record(i)
		for j, part := range []string{"gate_proj", "up_proj", "down_proj"} {
			e.records[i][j].Name = fmt.Sprintf("%s.mlp.experts.%d.%s.weight", layer, i, part)
		}
	}
}

// rows is the view of rows [from, to) of matrix i in a stack [n, out, in].
func (t Tensor) rows(i, from, to int) Tensor {
	out := t.Shape[1]
	cut := func(data []byte) []byte {
		row := len(data) / (t.Shape[0] * out)
		a, b := (i*out+from)*row, (i*out+to)*row
		return data[a:b:b]
	}
	t.Data = cut(t.Data)
	if t.Quant != nil {
		q := *t.Quant
		q.Scales, q.Biases = cut(q.Scales), cut(q.Biases)
		t.Quant = &q
	}
	t.Shape = []int{to - from, t.Shape[2]}
	return t
}
