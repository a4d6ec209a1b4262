package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"lector/cache"
	"lector/cache/dir"
	"lector/engine"
	"lector/engine/bench"
)

// What is measured of a state of lector's, in this order.
const (
	stateSave = iota // all of it, after the fact
	stateLast        // what is left behind the last token
	stateRestore
	stateFirst // token, from the handle on
	ownRows
)

// Behind rowStates: lector's own state, one with keys and values in half precision, then llama.cpp's.
const (
	halfStates    = ownRows
	theirStates   = 2 * ownRows
	theirSave     = theirStates
	theirSynced   = theirStates + 1
	theirRestore  = theirStates + 2
	theirFirst    = theirStates + 3
	peerStateRows = theirStates + 4
)

func peerStates() [peerStateRows]string {
	return [...]string{
		"lector save", "lector save behind the last token", "lector restore", "lector first token",
		"lector f16 save", "lector f16 save behind the last token", "lector f16 restore", "lector f16 first token",
		"llama.cpp save", "llama.cpp save and sync", "llama.cpp restore", "llama.cpp first token",
	}
}

// peerHalf is the same model, which holds keys and values in half precision.
type peerHalf struct {
	*benchRun
	identity cache.Identity
}

// halfFormat is how llama.cpp holds keys and values.
const halfFormat = "f16"

// openHalf opens the model once more, for states in half precision beside those in single.
func (p *peerBench) openHalf() (err error) {
	if p.f.copies == 0 || p.kv != "f32" {
		return nil
	}
	kv := p.kv
	defer func() { p.kv = kv }()
	p.kv = halfFormat
	m, err := p.openModel()
	if err != nil {
		return err
	}
	h := &peerHalf{benchRun: &benchRun{app: p.app, flags: p.flags, model: m}}
	if h.identity, err = h.cacheIdentity(); err != nil {
		return errors.Join(err, m.Close())
	}
	p.half = h
	return nil
}

// Close releases the model; there may be none.
func (h *peerHalf) Close() error {
	if h == nil {
		return nil
	}
	return h.benchRun.Close()
}

// saveStates stores the state and restores it, several times, in a folder store that is in use; then one of the same length
// in half precision.
func (p *peerBench) saveStates(ctx context.Context, seq engine.Sequence, rows []bench.Row) (err error) {
	if p.f.copies == 0 {
		return nil
	}
	folder := filepath.Join(p.temp, "store")
	store, err := dir.Open(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := makeUsed(folder); err != nil {
		return err
	}
	own := storedState{benchRun: p.benchRun, identity: p.identity, tokens: seq.Tokens(), temp: p.temp}
	if err := own.several(ctx, store, seq, p.f.copies, rows[:ownRows]); err != nil || p.half == nil {
		return err
	}
	made, err := bench.SyntheticState(ctx, p.half.model.engine, seq.Pos(), p.flags.seed)
	if err != nil {
		return err
	}
	half, err := made.Start(ctx, p.half.model.engine, int(made.Pos))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, half.Close()) }()
	other := storedState{benchRun: p.half.benchRun, identity: p.half.identity, tokens: half.Tokens(), temp: p.temp}
	return other.several(ctx, store, half, p.f.copies, rows[halfStates:][:ownRows])
}

// several saves and restores a state some times, and fills the rows.
func (t *storedState) several(ctx context.Context, store cache.Store, seq engine.Sequence, copies int, rows []bench.Row) error {
	probe, err := seq.Probe(ctx)
	if err != nil {
		return err
	}
	t.space, t.cells = &cache.Space{Store: store, Tenant: benchSave}, &cache.Space{Store: store, Tenant: benchCells}
	for range copies {
		t.rows = make([]bench.Row, snapshotRows)
		if err := errors.Join(t.save(ctx, seq, probe), t.saveCells(ctx, seq, probe)); err != nil {
			return fmt.Errorf("save a state: %w", err)
		}
		if err := t.restore(ctx, probe); err != nil {
			return fmt.Errorf("restore a state: %w", err)
		}
		for i, row := range []int{rowSave, rowLast, rowRestore, rowResumed} {
			rows[i].Samples, rows[i].Bytes = append(rows[i].Samples, t.rows[row].Samples...), t.rows[row].Bytes
		}
		if err := dropStates(ctx, store, t.space, t.cells); err != nil {
			return err
		}
	}
	return nil
}

// statesTable says what saving and restoring takes, and how many times as long as llama.cpp.
func (p *peerBench) statesTable(w io.Writer) {
	fmt.Fprintln(w, "\nlength, tokens\tstate of\tsize\tsave, s\ttime\twith sync\tlast, s\ttime\trestore, s\tfirst token, s\ttime")
	rows := p.report.Rows
	for at := 0; at < len(rows); at += peerRows {
		state := rows[at+rowStates:][:peerStateRows]
		save, synced, first := state[theirSave].Median(), state[theirSynced].Median(), state[theirFirst].Median()
		for _, own := range []struct {
			name string
			rows []bench.Row
		}{{"lector, " + p.kv, state[:ownRows]}, {"lector, f16", state[halfStates:][:ownRows]}} {
			if len(own.rows[stateSave].Samples) == 0 {
				continue
			}
			s, l, f := own.rows[stateSave].Median(), own.rows[stateLast].Median(), own.rows[stateFirst].Median()
			fmt.Fprintf(w, "%d\t%s\t%s\t%.4f\t%.2f x\t%.2f x\t%.4f\t%.2f x\t%.4f\t%.4f\t%.2f x\n", rows[at].Length, own.name,
				size(own.rows[stateSave].Bytes), s, s/save, s/synced, l, l/save, own.rows[stateRestore].Median(), f, f/first)
		}
		fmt.Fprintf(w, "%d\tllama.cpp\t%s\t%.4f\t\t%.4f s\t\t\t%.4f\t%.4f\t\n", rows[at].Length, size(state[theirSave].Bytes), save, synced,
			state[theirRestore].Median(), first)
	}
	fmt.Fprintln(w, "\ntime\tbeside llama.cpp's, whose file is not synced and has no digest; with sync: beside that file synced")
	fmt.Fprintln(w, "last\twhat is left to store behind the last token, when all cells before it were stored while the next was read")
}
