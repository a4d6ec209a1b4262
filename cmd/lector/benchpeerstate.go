package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

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

// Behind rowStates: lector's own state in a synced store and in one that is not, the same of a state with keys and values in
// half precision, then llama.cpp's.
const (
	scratchStates = ownRows // behind those of the same state in a synced store
	halfStates    = 2 * ownRows
	theirStates   = 4 * ownRows
	theirSave     = theirStates
	theirSynced   = theirStates + 1
	theirRestore  = theirStates + 2
	theirFirst    = theirStates + 3
	peerStateRows = theirStates + 4
)

func peerStates() [peerStateRows]string {
	return [...]string{
		"lector save", "lector save behind the last token", "lector restore", "lector first token",
		"lector unsynced save", "lector unsynced save behind the last token", "lector unsynced restore", "lector unsynced first token",
		"lector f16 save", "lector f16 save behind the last token", "lector f16 restore", "lector f16 first token",
		"lector f16 unsynced save", "lector f16 unsynced save behind the last token", "lector f16 unsynced restore", "lector f16 unsynced first token",
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

// saveStates stores the state and restores it, several times, in folder stores that are in use; then one of the same length
// in half precision.
func (p *peerBench) saveStates(ctx context.Context, seq engine.Sequence, rows []bench.Row) (err error) {
	if p.f.copies == 0 {
		return nil
	}
	own := storedState{benchRun: p.benchRun, identity: p.identity, tokens: seq.Tokens(), temp: p.temp}
	if err := p.inStores(ctx, own, seq, rows); err != nil || p.half == nil {
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
	return p.inStores(ctx, other, half, rows[halfStates:])
}

// inStores stores and restores a state in a store that is synced and in one that is not, in turns.
func (p *peerBench) inStores(ctx context.Context, t storedState, seq engine.Sequence, rows []bench.Row) error {
	for i := range p.f.copies {
		err := p.inStore(ctx, t, seq, dir.Options{}, rows[:ownRows])
		if err == nil {
			err = p.inStore(ctx, t, seq, dir.Options{Unsynced: true}, rows[scratchStates:][:ownRows])
		}
		if err != nil {
			return fmt.Errorf("copy %d of %d: %w", i+1, p.f.copies, err)
		}
	}
	return nil
}

// inStore stores and restores a state once.
func (p *peerBench) inStore(ctx context.Context, t storedState, seq engine.Sequence, o dir.Options, rows []bench.Row) (err error) {
	folder := filepath.Join(p.temp, fmt.Sprint("store-unsynced-", o.Unsynced))
	store, err := dir.OpenWith(folder, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := makeUsed(folder); err != nil {
		return err
	}
	return errors.Join(t.once(ctx, store, seq, rows), dropFiles(folder))
}

// once saves and restores a state, and adds to the rows.
func (t *storedState) once(ctx context.Context, store cache.Store, seq engine.Sequence, rows []bench.Row) error {
	probe, err := seq.Probe(ctx)
	if err != nil {
		return err
	}
	t.space, t.cells = &cache.Space{Store: store, Tenant: benchSave}, &cache.Space{Store: store, Tenant: benchCells}
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
	return nil
}

// statesTable says what saving and restoring takes, and how many times as long as llama.cpp.
func (p *peerBench) statesTable(w io.Writer) {
	fmt.Fprintln(w, "\nlength, tokens\tstate of\tsize\tsave, s\ttime\twith sync\tlast, s\ttime\twith sync\trestore, s\tfirst token, s\ttime")
	rows := p.report.Rows
	for at := 0; at < len(rows); at += peerRows {
		state := rows[at+rowStates:][:peerStateRows]
		for _, own := range []struct {
			name string
			rows []bench.Row
		}{
			{"lector, " + p.kv, state}, {"lector, " + p.kv + ", unsynced", state[scratchStates:]},
			{"lector, f16", state[halfStates:]}, {"lector, f16, unsynced", state[halfStates+scratchStates:]},
		} {
			if len(own.rows[stateSave].Samples) > 0 {
				ownState(w, rows[at].Length, own.name, own.rows[:ownRows], state)
			}
		}
		fmt.Fprintf(w, "%d\tllama.cpp\t%s\t%.4f\t\t%.4f s\t\t\t\t%.4f\t%.4f\t\n", rows[at].Length, size(state[theirSave].Bytes),
			state[theirSave].Median(), state[theirSynced].Median(), state[theirRestore].Median(), state[theirFirst].Median())
	}
	fmt.Fprintln(w, "\ntime\tbeside llama.cpp's, whose file is not synced and has no digest; with sync: beside that file synced")
	fmt.Fprintln(w, "unsynced\ta store with --store-sync none, which has digests and does not wait for the disk: beside the file that is not synced")
	fmt.Fprintln(w, "last\twhat is left to store behind the last token, when all cells before it were stored while the next was read")
}

// ownState is one line of the table. A store that is not synced is not held against a file that is.
func ownState(w io.Writer, length int, name string, own, theirs []bench.Row) {
	save, synced := theirs[theirSave].Median(), theirs[theirSynced].Median()
	s, l, f := own[stateSave].Median(), own[stateLast].Median(), own[stateFirst].Median()
	beside := func(t float64) string {
		if strings.HasSuffix(name, "unsynced") {
			return ""
		}
		return fmt.Sprintf("%.2f x", t/synced)
	}
	fmt.Fprintf(w, "%d\t%s\t%s\t%.4f\t%.2f x\t%s\t%.4f\t%.2f x\t%s\t%.4f\t%.4f\t%.2f x\n", length, name, size(own[stateSave].Bytes),
		s, s/save, beside(s), l, l/save, beside(l), own[stateRestore].Median(), f, f/theirs[theirFirst].Median())
}
