package qwen4exp

import (
	"lector/engine"
	"lector/engine/ops"
)

// draftHead is the MTP head: one full-attention layer that pairs the trunk's residual at r with token r+1.
type draftHead struct {
	normEmbed   []float32 // scale [h]
	normHidden  []float32 // scale [W]
	hiddenGroup int       // columns that share a mean in normHidden: h (grouped) or W (flat)
	fcEmbed     ops.Matrix
	fcHidden    ops.Matrix
	layer       layer
	mixer       hyper
}

// forward runs the head over the pass: f.hidden [rows, W] holds the residuals of f.pos.., f.ids the token
// after each. f.wide holds the layer's output on return, which a chained draft takes as its residual; with rowsOnly the
// layer ends where the state has its rows.
//
//	fe = FcE RMSNorm(E[t_{r+1}]);  fh_g = FcH RMSNorm(wide_r)_g
//	wide' = fe + fh_g for every g;  layer(wide') at position r
func (m *draftHead) forward(f *pass, embed ops.Matrix, st *attnState, rowsOnly bool) error {
	be, d := f.be, f.dims
	be.Embed(f.x, embed, f.ids)
	be.RMSNorm(f.x, f.x, m.normEmbed, d.Hidden, d.Eps)
	be.Linear(f.fe, f.x, m.fcEmbed)
	be.RMSNorm(f.z, f.hidden, m.normHidden, m.hiddenGroup, d.Eps)
	streams := f.rows * d.Streams
	be.Linear(f.wide.Reshape(streams, d.Hidden), f.z.Reshape(streams, d.Hidden), m.fcHidden)
	be.AddToStreams(f.wide, f.fe)
	if rowsOnly {
		m.layer.readMix.read(f, false)
		m.layer.attn.appendRows(f, st)
		return nil
	}
	if err := m.layer.forward(f, &layerState{attn: st}); err != nil {
		return err
	}
	f.flush()
	return nil
}

// draftRows runs the head over rows that follow residual rows hidden: row i stands at pos+i and pairs with
// ids[i]. It returns the pass, whose wide is the head's output, unless that is not wanted.
func (s *Sequence) draftRows(f *pass, pos int, ids []engine.Token, rowsOnly bool) (*pass, error) {
	head := f.of(len(ids), pos, ids)
	head.wide = head.headWide
	head.draft = true
	if err := head.enter(ops.PartMTP); err != nil {
		return nil, err
	}
	if err := s.net.mtp.forward(head, s.net.embed, s.st.mtp, rowsOnly && head.view == nil); err != nil {
		return nil, err
	}
	head.view.headLogits(s, head)
	return head, nil
}

// draftOf reads the last row of a head pass as a draft.
func (s *Sequence) draftOf(head *pass) (engine.Token, error) {
	last := head.of(1, head.pos+head.rows-1, nil)
	last.wide = head.wide.Slice(head.rows-1, head.rows)
	last.draft = true
	y := last.logits.Slice(0, 1)
	s.net.mtp.mixer.read(last, false)
	last.be.Linear(y, last.x, s.net.head)
	picks := s.pick(last, y)
	if err := last.wait(); err != nil {
		return engine.NoToken, err
	}
	const what = "draft head's logits after token"
	var row []float32
	if picks == nil {
		row = y.Row(0)
		if err := checkFinite(row, what, last.pos); err != nil {
			return engine.NoToken, err
		}
	}
	return s.picked(picks, 0, row, what, last.pos)
}

// headRows computes the head's rows that the trunk's new rows complete: row r of the old last position
// pairs with the first new token, and so on. wide holds the new rows' residuals; the last of them has no
// next token yet, so its row is added only when one is given (provisional), and the pass is returned: its output is of use
// for that row alone.
func (s *Sequence) headRows(f *pass, tokens []engine.Token, provisional engine.Token) (*pass, error) {
	if s.net.mtp == nil {
		return nil, nil
	}
	from, ids, rows := s.st.pos-1, tokens, 0
	hidden := f.whole.hidden // one row more than the trunk's
	if s.st.pos == 0 {
		from, ids = 0, tokens[1:]
	} else {
		f.be.CopyRows(hidden, 0, s.st.residual, 0)
		rows = 1
	}
	ids = append([]engine.Token(nil), ids...)
	if provisional != engine.NoToken {
		ids = append(ids, provisional)
	}
	if n := len(ids) - rows; n > 0 {
		f.be.CopyRows(hidden, rows, f.wide.Slice(0, n), 0)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return s.draftRows(f, from, ids, provisional == engine.NoToken)
}

// chain drafts n tokens after next, which stands at pos: the first from the kept residual of pos-1, every
// later one from the head's own output and the draft before it. Its rows are provisional: they stand past
// what the state counts.
func (s *Sequence) chain(f *pass, pos int, next engine.Token, n int) ([]engine.Token, error) {
	var drafts []engine.Token
	f.be.CopyRows(f.hidden, 0, s.st.residual, 0)
	for i := range n {
		head, err := s.draftRows(f, pos-1+i, []engine.Token{next}, false)
		if err != nil {
			return nil, err
		}
		if next, err = s.draftOf(head); err != nil {
			return nil, err
		}
		drafts = append(drafts, next)
		f.be.CopyRows(f.hidden, 0, head.wide, 0)
	}
	return drafts, nil
}
