package weights

// collection gathers tensors that belong together, and keeps the first error: once there is one, nothing more
// is read.
type collection struct {
	c     *Checkpoint
	list  []Tensor  // logical tensors, in the order of reading
	parts []*stored // what they are made of
	err   error
}

// add takes the result of one read.
func (g *collection) add(t Tensor, parts []*stored, err error) {
	if g.err = err; err == nil {
		g.list, g.parts = append(g.list, t), append(g.parts, parts...)
	}
}

// matrix reads a matrix or a stack of them.
func (g *collection) matrix(name string, shape ...int) Tensor {
	if g.err != nil {
		return Tensor{}
	}
	t, parts, err := g.c.matrix(name, shape...)
	g.add(t, parts, err)
	return t
}

// plain takes a tensor that is read as it stands.
func (g *collection) plain(s *stored, err error) {
	if err != nil {
		g.err = err
		return
	}
	g.add(Tensor{Name: s.canonical, Stored: s.name, DType: s.dtype, Shape: s.shape, Data: s.data}, []*stored{s}, nil)
}

// join takes all of another collection.
func (g *collection) join(o *collection) {
	g.err = o.err
	g.list, g.parts = append(g.list, o.list...), append(g.parts, o.parts...)
}
