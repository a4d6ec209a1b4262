package qwen4exp

import (
	"errors"
	"fmt"
	"slices"

	"lector/engine"
	"lector/engine/ops"
)

// Debug asks a sequence to keep views of its last chunk, or to leave parts out.
type Debug struct {
	Logits bool     // logits of every row, of the trunk and of the head
	Wide   bool     // the residual entering every layer, and after the last
	Route  bool     // experts and weights of every row and layer
	Blocks bool     // what every row of every attention layer sees
	Skip   []string // parts that yield zeros: "mixer", "experts", "ple"
	Layers int      // run only so many layers; 0: all
}

// ErrReleased says that a view is gone: the sequence moved on, was closed, or never kept it.
var ErrReleased = errors.New("view is not kept")

// parts are the names that Debug.Skip knows.
func parts() []string { return []string{"mixer", "experts", "ple"} }

// Observe sets what is kept from the next chunk on. A sequence that skips or caps cannot export.
func (s *Sequence) Observe(d Debug) error {
	v := &view{want: d, cap: d.Layers, skip: map[string]bool{}}
	for _, part := range d.Skip {
		if !slices.Contains(parts(), part) {
			return fmt.Errorf("skip %q: the parts are %v", part, parts())
		}
		v.skip[part] = true
	}
	s.view = v
	return nil
}

// view holds copies of a chunk's intermediate values. A nil view keeps nothing.
type view struct {
	want   Debug
	skip   map[string]bool
	cap    int
	rows   map[viewKey][]float32 // by kind, layer and absolute position
	blocks map[viewKey][]int32
	ids    map[viewKey][]int32
}

type viewKind uint8

const (
	viewLogits viewKind = iota
	viewHead
	viewWide
	viewRoute
	viewBlocks
)

type viewKey struct {
	kind       viewKind
	layer, pos int
}

// alters says that the results are not the model's own.
func (v *view) alters() bool { return v != nil && (len(v.skip) > 0 || v.cap > 0) }

// begin drops the last chunk's views.
func (v *view) begin(*Sequence, int) {
	if v != nil {
		v.rows, v.blocks, v.ids = map[viewKey][]float32{}, map[viewKey][]int32{}, map[viewKey][]int32{}
	}
}

// keep copies the rows of t; the backend has finished them.
func (v *view) keep(kind viewKind, layer, pos int, t ops.Tensor) {
	for r := range t.Rows {
		v.rows[viewKey{kind, layer, pos + r}] = slices.Clone(t.Row(r))
	}
}

func (v *view) wide(layer int, f *pass) {
	if v == nil || !v.want.Wide {
		return
	}
	f.flush()
	if err := f.wait(); err != nil {
		return // the pass ends with that error
	}
	v.keep(viewWide, layer, f.pos, f.wide)
}

func (v *view) visible(layer int, f *pass, index ops.Index) {
	if v == nil || !v.want.Blocks || f.wait() != nil {
		return
	}
	for r := range f.rows {
		v.blocks[viewKey{viewBlocks, layer, f.pos + r}] = slices.Clone(index.Blocks(r))
	}
}

func (v *view) route(layer int, f *pass, route ops.Route) {
	if v == nil || !v.want.Route || f.wait() != nil {
		return
	}
	for r := range f.rows {
		ids, w := route.Row(r)
		key := viewKey{viewRoute, layer, f.pos + r}
		v.ids[key], v.rows[key] = slices.Clone(ids), slices.Clone(w)
	}
}

// logits keeps the trunk's logits of every row, a few rows at a time.
func (v *view) logits(s *Sequence, f *pass) error {
	if v == nil || !v.want.Logits {
		return nil
	}
	return v.tiles(f, viewLogits, &s.net.final, s.net.head)
}

// headLogits keeps the draft head's logits of every row.
func (v *view) headLogits(s *Sequence, f *pass) error {
	if v == nil || !v.want.Logits {
		return nil
	}
	return v.tiles(f, viewHead, &s.net.mtp.mixer, s.net.head)
}

func (v *view) tiles(f *pass, kind viewKind, mixer *hyper, head ops.Matrix) error {
	for at := 0; at < f.rows; at += decodeRows {
		n := min(decodeRows, f.rows-at)
		g := f.of(n, f.pos+at, nil)
		g.wide = f.wide.Slice(at, at+n)
		mixer.read(g, false)
		y := g.logits.Slice(0, n)
		g.be.Linear(y, g.x, head)
		if err := g.wait(); err != nil {
			return err
		}
		v.keep(kind, 0, f.pos+at, y)
	}
	return nil
}

// find returns a kept row or says why there is none.
func find[T any](s *Sequence, kept func(*view) map[viewKey]T, key viewKey, what string) (T, error) {
	var none T
	if s.view != nil && !s.closed {
		if got, ok := kept(s.view)[key]; ok {
			return got, nil
		}
	}
	return none, fmt.Errorf("%w: %s of layer %d at position %d", ErrReleased, what, key.layer, key.pos)
}

func floatViews(v *view) map[viewKey][]float32 { return v.rows }

// LogitsAt is a copy of the trunk's logits [V] of the row at pos of the last chunk.
func (s *Sequence) LogitsAt(pos int) ([]float32, error) {
	return find(s, floatViews, viewKey{viewLogits, 0, pos}, "logits")
}

// HeadLogitsAt is a copy of the draft head's logits [V] of the row at pos.
func (s *Sequence) HeadLogitsAt(pos int) ([]float32, error) {
	return find(s, floatViews, viewKey{viewHead, 0, pos}, "head logits")
}

// WideAt is a copy of the residual [W] at pos entering layer, or after the last one (layer = L).
func (s *Sequence) WideAt(layer, pos int) ([]float32, error) {
	return find(s, floatViews, viewKey{viewWide, layer, pos}, "residual")
}

// RouteAt is the experts of the row at pos in slot order, and their weights.
func (s *Sequence) RouteAt(layer, pos int) ([]int32, []float32, error) {
	key := viewKey{viewRoute, layer, pos}
	w, err := find(s, floatViews, key, "route")
	if err != nil {
		return nil, nil, err
	}
	return s.view.ids[key], w, nil
}

// BlocksAt lists the complete blocks that the row at pos sees in an attention layer; the draft head is layer L.
func (s *Sequence) BlocksAt(layer, pos int) ([]int32, error) {
	return find(s, func(v *view) map[viewKey][]int32 { return v.blocks }, viewKey{viewBlocks, layer, pos}, "blocks")
}

// VisibleAt lists the tokens that the row at pos sees: those of its blocks, then the incomplete tail block's.
func (s *Sequence) VisibleAt(layer, pos int) ([]engine.Pos, error) {
	blocks, err := s.BlocksAt(layer, pos)
	if err != nil {
		return nil, err
	}
	var out []engine.Pos
	ratio := s.net.Ratio
	for _, b := range blocks {
		for t := range ratio {
			out = append(out, engine.Pos(int(b)*ratio+t))
		}
	}
	for t := (pos + 1) / ratio * ratio; t <= pos; t++ {
		out = append(out, engine.Pos(t))
	}
	return out, nil
}
