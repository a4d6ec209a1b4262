package qwen4exp

import (
	"context"
	"fmt"

	"lector/engine"
	"lector/engine/ops"
)

// Decode implements engine.Sequence.
func (s *Sequence) Decode(ctx context.Context, tokens []engine.Token, choose engine.Choose) (engine.Decoded, error) {
	if err := s.admit(tokens, decodeRows); err != nil {
		return engine.Decoded{}, err
	}
	var chosen []engine.Token
	stats, err := s.batch(ctx, len(tokens), func(f *pass) error {
		var err error
		chosen, err = s.decode(f, tokens, choose)
		return err
	})
	if err != nil {
		return engine.Decoded{}, fmt.Errorf("decode at %d: %w", s.st.pos, err)
	}
	stats.Tokens = len(chosen)
	s.stats = s.stats.Add(stats)
	return engine.Decoded{Chosen: chosen, Stats: stats}, nil
}

// decode runs a token and its drafts as rows of one batch, keeps what the choices confirm and undoes the
// rest. The head's rows are then computed from the trunk's residuals.
func (s *Sequence) decode(f *pass, tokens []engine.Token, choose engine.Choose) ([]engine.Token, error) {
	f.keep = len(tokens) > 1
	f.ids, f.history = tokens, append(s.st.tokens, tokens...)
	if err := s.net.trunk(f, s.st); err != nil {
		return nil, err
	}
	one := len(tokens) == 1 // it is confirmed whatever follows it, so that the device is waited for once
	if one {
		if err := s.follow(f, tokens); err != nil {
			return nil, err
		}
		if err := f.enter(ops.PartOther); err != nil {
			return nil, err
		}
	}
	chosen, greedy, err := s.verify(f, tokens, choose)
	if err != nil {
		return nil, err
	}
	n := len(chosen)
	if n < len(tokens) {
		s.st.replay(f, n)
	}
	if !one {
		if err := s.follow(f, tokens[:n]); err != nil {
			return nil, err
		}
		if err := f.wait(); err != nil {
			return nil, err
		}
	}
	s.adopt(f.history[:s.st.pos+n], greedy)
	return chosen, nil
}

// follow computes what the state keeps besides the trunk's of tokens that are confirmed.
func (s *Sequence) follow(f *pass, tokens []engine.Token) error {
	if _, err := s.headRows(f, tokens, engine.NoToken); err != nil {
		return err
	}
	n := len(tokens)
	f.be.CopyRows(s.st.residual, 0, f.wide.Slice(n-1, n), 0)
	return nil
}

// verify chooses after each row while the choice confirms the draft in the next row. It returns the choices
// and the greedy token after the last row that counts.
func (s *Sequence) verify(f *pass, tokens []engine.Token, choose engine.Choose) (chosen []engine.Token, greedy engine.Token, err error) {
	g := f.of(f.rows, f.pos, nil)
	y := g.logits.Slice(0, f.rows)
	s.net.logits(g, y)
	picks := s.pick(g, y)
	if err := g.wait(); err != nil {
		return nil, 0, err
	}
	for r := range tokens {
		var row []float32
		if picks == nil || choose != nil {
			if row, err = s.choosable(y.Row(r), f.pos+r+1); err != nil {
				return nil, 0, err
			}
		}
		if greedy, err = s.picked(picks, r, row, "logits after token", f.pos+r+1); err != nil {
			return nil, 0, err
		}
		t := greedy
		if choose != nil {
			t = choose(engine.Pos(f.pos+r+1), row)
		}
		chosen = append(chosen, t)
		if r+1 == len(tokens) || t != tokens[r+1] {
			break
		}
	}
	return chosen, greedy, nil
}

// pick lets the backend find the largest logits of a pass that is not waited for yet; nil where it does not.
func (s *Sequence) pick(f *pass, y ops.Tensor) ops.Picks {
	if p, ok := f.be.(ops.Picker); ok && f.view == nil {
		return p.Pick(y, s.engine.choices)
	}
	return nil
}

// picked is the greedy token of row r: what the backend picked, or else the host from the row.
func (s *Sequence) picked(picks ops.Picks, r int, row []float32, what string, at int) (engine.Token, error) {
	if picks == nil {
		return argmax(row[:s.engine.choices]), nil
	}
	column, finite := picks.Row(r)
	if !finite {
		return engine.NoToken, fmt.Errorf("%w: %s %d are not all finite: the weights or the state are damaged", engine.ErrNumeric, what, at)
	}
	return engine.Token(column), nil
}

// Draft implements engine.Sequence.
func (s *Sequence) Draft(ctx context.Context, next engine.Token, n int) ([]engine.Token, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	switch {
	case s.net.mtp == nil:
		return nil, engine.ErrNoHead
	case s.st.pos == 0:
		return nil, fmt.Errorf("draft at 0: %w", engine.ErrEmpty)
	case n < 0 || n > engine.MaxDrafts:
		return nil, fmt.Errorf("draft %d tokens: at most %d", n, engine.MaxDrafts)
	case next < 0 || int(next) >= s.net.Vocab:
		return nil, fmt.Errorf("%w: id %d, the vocabulary has %d", engine.ErrToken, next, s.net.Vocab)
	}
	drafts, stats, err := s.propose(ctx, next, n)
	if err != nil {
		return nil, fmt.Errorf("draft at %d: %w", s.st.pos, err)
	}
	s.stats = s.stats.Add(stats)
	return drafts, nil
}

// propose drafts without counting it: Probe and Regions ask for what a chunk has reported already.
func (s *Sequence) propose(ctx context.Context, next engine.Token, n int) ([]engine.Token, engine.ChunkStats, error) {
	var drafts []engine.Token
	stats, err := s.run(ctx, 1, func(f *pass) error {
		var err error
		if drafts, err = s.chain(f, s.st.pos, next, n); err != nil {
			return err
		}
		return f.wait()
	})
	stats.Tokens = 0
	return drafts, stats, err
}

// Logits implements engine.Sequence.
func (s *Sequence) Logits(ctx context.Context) ([]float32, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.st.pos == 0 {
		return nil, fmt.Errorf("logits at 0: %w", engine.ErrEmpty)
	}
	var logits []float32
	_, err := s.run(ctx, 1, func(f *pass) error {
		var err error
		logits, err = s.lastLogits(f, s.st.residual, s.st.pos)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("logits at %d: %w", s.st.pos, err)
	}
	return logits, nil
}

// Probe implements engine.Sequence.
func (s *Sequence) Probe(ctx context.Context) (engine.Probe, error) {
	logits, err := s.Logits(ctx)
	if err != nil {
		return engine.Probe{}, err
	}
	p := engine.Probe{Top: top(logits, engine.ProbeTop), Next: argmax(logits), Draft: engine.NoToken}
	if s.net.mtp == nil {
		return p, nil
	}
	drafts, _, err := s.propose(ctx, p.Next, 1)
	if err != nil {
		return engine.Probe{}, fmt.Errorf("probe at %d: %w", s.st.pos, err)
	}
	p.Draft = drafts[0]
	return p, nil
}
