package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/engine"
	"lector/engine/bench"
	"lector/engine/nano"
)

//go:embed benchpeer.mjs
var peerScript []byte

// peerFlags are the flags of bench peer.
type peerFlags struct {
	benchFlags
	dir, gguf, node string
	lengths         []int
	generate        int
	copies          int
}

func newBenchPeer(a *app) *cobra.Command {
	var f peerFlags
	c := &cobra.Command{
		Use:   "peer",
		Short: "Compare reading and generation with llama.cpp on the same model, threads and machine",
		Long: "peer lets llama.cpp (the npm package node-llama-cpp) and lector take turns on the same random tokens: a prompt of each\n" +
			"length, then greedy generation behind it. Between the two both save the state and restore it into a fresh sequence up to the\n" +
			"first token: llama.cpp into its state file, which has no digest and is not synced (then it is synced, too); lector up to a handle\n" +
			"in a folder store, with digests, synced and, to compare like with like, not (--store-sync none): all of it at once and, as ingest\n" +
			"does it, what is left behind the last token.\n" +
			"llama.cpp holds keys and values in half precision: beside its own state lector stores one that is held so, too, made up.\n" +
			"--dir names the folder with node_modules, the GGUF and, unless --model says otherwise, lector's packed model in mid-q4.\n" +
			"Without them it says how to make them.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.benchPeer(c.Context(), f) },
	}
	f.declare(c)
	f.declareSVG(c)
	f.declareChunk(c)
	c.Flags().StringVar(&f.dir, "dir", "", "`folder` with node_modules and the GGUF")
	c.Flags().StringVar(&f.gguf, "gguf", "mid-q4_0.gguf", "`file` in --dir that llama.cpp reads")
	c.Flags().StringVar(&f.node, "node", "node", "`program` that runs JavaScript")
	c.Flags().IntSliceVar(&f.lengths, "lengths", []int{512, 2048, 8192}, "`tokens` of a prompt")
	c.Flags().IntVar(&f.generate, "tokens", 32, "`tokens` to generate behind each")
	c.Flags().IntVar(&f.copies, "copies", 3, "how often the state of each is saved and restored; 0: never")
	return c
}

// peerModel is where lector's model lies in --dir.
const peerModel = "mid-q4"

// peerReady says what is missing and how to get it.
func (a *app) peerReady(f peerFlags) error {
	if f.dir == "" {
		return badInput(errors.New("peer needs --dir FOLDER, which holds node_modules and the GGUF; it says how to make them"))
	}
	steps := []struct{ path, how string }{
		{filepath.Join(f.dir, "node_modules", "node-llama-cpp"), fmt.Sprintf("(cd %s && npm init -y && npm i node-llama-cpp@3.22.1)", f.dir)},
		{filepath.Join(f.dir, f.gguf), fmt.Sprintf("lector model new --preset mid --out %s/mid && go run ./tests/peer/gguf %s/mid %s/%s", f.dir, f.dir, f.dir, f.gguf)},
	}
	if a.model == filepath.Join(f.dir, peerModel) {
		steps = append(steps, struct{ path, how string }{a.model, fmt.Sprintf("lector model pack %s/mid --bits 4 --out %s", f.dir, a.model)})
	}
	var missing []string
	for _, s := range steps {
		if _, err := os.Stat(s.path); err != nil {
			missing = append(missing, s.path)
			a.note("%s is missing. To make it:\n    %s", s.path, s.how)
		}
	}
	if len(missing) > 0 {
		return silent{badInput(fmt.Errorf("missing: %s", strings.Join(missing, ", ")))}
	}
	return nil
}

func (a *app) benchPeer(ctx context.Context, f peerFlags) (err error) {
	if a.model == nano.Name && f.dir != "" {
		a.model = filepath.Join(f.dir, peerModel)
	}
	if err := a.peerReady(f); err != nil {
		return err
	}
	if len(f.lengths) == 0 || f.generate < 1 || f.chunk < 1 || f.copies < 0 {
		return badInput(errors.New("--lengths, --tokens and --chunk: at least one of each; --copies: not below 0"))
	}
	b, err := a.openBench(ctx, "peer", f.benchFlags)
	if err != nil {
		return err
	}
	defer b.Close()
	p := &peerBench{benchRun: b, f: f}
	if p.identity, err = b.cacheIdentity(); err != nil {
		return err
	}
	if p.temp, err = os.MkdirTemp("", "lector-peer-"); err != nil {
		return fmt.Errorf("make a folder to save to: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.temp)) }()
	if err := p.openHalf(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.half.Close()) }()
	if err := b.measure(ctx, func() ([]bench.Row, error) { return p.samples(ctx) }); err != nil {
		return err
	}
	return b.finish(p.table)
}

// peerBench is one run of bench peer.
type peerBench struct {
	*benchRun
	f        peerFlags
	identity cache.Identity
	half     *peerHalf // nil where --kv says how lector holds keys and values
	temp     string    // where states are saved
}

// The rows of one length, in this order.
const (
	rowPrefill = iota
	rowPeerPrefill
	rowDecode
	rowPeerDecode
	rowStates // those of states begin here, as peerStates names them
	peerRows  = rowStates + peerStateRows
)

// samples lets the two engines take turns, at every length in every repeat.
func (p *peerBench) samples(ctx context.Context) ([]bench.Row, error) {
	rows := make([]bench.Row, 0, peerRows*len(p.f.lengths))
	for _, n := range p.f.lengths {
		if limit := p.model.engine.Info().MaxTokens; n < 1 || n+p.f.generate+1 > limit {
			return nil, fmt.Errorf("length of %d tokens: %w: the model takes %d, generated ones included", n, engine.ErrTooLong, limit)
		}
		for _, name := range [...]string{"lector prefill", "llama.cpp prefill", "lector decode", "llama.cpp decode"} {
			rows = append(rows, bench.Row{Name: fmt.Sprintf("%s length=%d", name, n), Unit: bench.TokensPerSecond, Length: n, Chunk: min(p.f.chunk, n), Series: name})
		}
		for _, name := range peerStates() {
			rows = append(rows, bench.Row{Name: fmt.Sprintf("%s length=%d", name, n), Unit: bench.Seconds, Length: n})
		}
	}
	if err := p.ceiling(ctx); err != nil {
		return nil, err
	}
	for i := range p.flags.repeat {
		for k, n := range p.f.lengths {
			at := rows[k*peerRows:][:peerRows]
			tokens, err := p.runner.Tokens(n + 1)
			if err != nil {
				return nil, err
			}
			if err := p.theirs(ctx, tokens, at); err != nil {
				return nil, fmt.Errorf("run llama.cpp at %d tokens: %w", n, err)
			}
			if err := p.ours(ctx, tokens[:n], at); err != nil {
				return nil, fmt.Errorf("measure %d tokens: %w", n, err)
			}
			p.progress("%d tokens: prefill %.1f and llama.cpp's %.1f, decode %.1f and %.1f tokens/s (%d of %d)", n,
				at[rowPrefill].Samples[i], at[rowPeerPrefill].Samples[i], at[rowDecode].Samples[i], at[rowPeerDecode].Samples[i], i+1, p.flags.repeat)
		}
	}
	return rows, nil
}

// ours reads and generates with the loaded engine.
func (p *peerBench) ours(ctx context.Context, tokens []engine.Token, rows []bench.Row) error {
	got, err := p.runner.Read(ctx, tokens, bench.ReadOptions{Chunk: rows[rowPrefill].Chunk, Room: p.f.generate + 1, Then: func(seq engine.Sequence) error {
		if err := p.saveStates(ctx, seq, rows[rowStates:]); err != nil {
			return err
		}
		rate, err := p.generate(ctx, seq)
		rows[rowDecode].Samples = append(rows[rowDecode].Samples, rate)
		return err
	}})
	if err != nil {
		return err
	}
	rows[rowPrefill].Samples = append(rows[rowPrefill].Samples, float64(len(tokens))/got.Seconds)
	rows[rowPrefill].Stats = append(rows[rowPrefill].Stats, got.Stats)
	return nil
}

// generate decodes greedily; the first token is not timed.
func (p *peerBench) generate(ctx context.Context, seq engine.Sequence) (float64, error) {
	probe, err := seq.Probe(ctx)
	if err != nil {
		return 0, err
	}
	next, start := probe.Next, time.Now()
	for i := range p.f.generate + 1 {
		if i == 1 {
			start = time.Now()
		}
		out, err := seq.Decode(ctx, []engine.Token{next}, nil)
		if err != nil {
			return 0, err
		}
		next = out.Chosen[0]
	}
	return float64(p.f.generate) / time.Since(start).Seconds(), nil
}

// peerResult is the line that the script prints.
type peerResult struct {
	Seconds   float64 `json:"seconds"`
	Decode    float64 `json:"decode"`
	Generated int     `json:"generated"`
	Release   string  `json:"release"`

	Save    []float64 `json:"save"`
	Synced  []float64 `json:"synced"` // saved, and then synced
	Restore []float64 `json:"restore"`
	First   []float64 `json:"first"` // token, from the beginning of the restore
	Bytes   int64     `json:"bytes"`
}

// theirs runs llama.cpp in a process of its own.
func (p *peerBench) theirs(ctx context.Context, tokens []engine.Token, rows []bench.Row) error {
	file, err := filepath.Abs(filepath.Join(p.f.dir, p.f.gguf))
	if err != nil {
		return err
	}
	cfg, n := p.model.checkpoint.Config(), len(tokens)-1
	settings, err := json.Marshal(map[string]any{
		"file": file, "length": n, "generate": p.f.generate, "threads": p.threads(), "batch": p.f.chunk, "ids": tokens,
		"vocabulary": cfg.Vocab, "hidden": cfg.Hidden, "state": filepath.Join(p.temp, "state"), "copies": p.f.copies,
	})
	if err != nil {
		return err
	}
	out, err := p.script(ctx, settings)
	if err != nil {
		return err
	}
	var r peerResult
	if err := json.Unmarshal(out, &r); err != nil {
		return fmt.Errorf("read what it printed, %.80q: %w", out, err)
	}
	if r.Generated != p.f.generate || r.Seconds <= 0 || r.Decode <= 0 {
		return fmt.Errorf("it generated %d of %d tokens", r.Generated, p.f.generate)
	}
	if len(r.Save) != p.f.copies || len(r.Synced) != p.f.copies || len(r.Restore) != p.f.copies || len(r.First) != p.f.copies {
		return fmt.Errorf("it saved its state %d times, not %d", len(r.Save), p.f.copies)
	}
	p.report.Peer = "llama.cpp " + r.Release
	for i, times := range [][]float64{r.Save, r.Synced, r.Restore, r.First} {
		row := &rows[rowStates+theirStates+i]
		row.Samples, row.Bytes = append(row.Samples, times...), r.Bytes
	}
	rows[rowPeerPrefill].Samples = append(rows[rowPeerPrefill].Samples, float64(n)/r.Seconds)
	rows[rowPeerDecode].Samples = append(rows[rowPeerDecode].Samples, float64(r.Generated)/r.Decode)
	return nil
}

// script runs the embedded script as a file of --dir, from where it finds node_modules: llama.cpp's binding starts
// processes of its own with the same options, so the script cannot come from standard input.
func (p *peerBench) script(ctx context.Context, settings []byte) (_ []byte, err error) {
	file, err := os.CreateTemp(p.f.dir, "lector-peer-*.mjs")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	_, err = file.Write(peerScript)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, p.f.node, filepath.Base(file.Name()))
	var said bytes.Buffer
	c.Dir, c.Stdin, c.Stderr = p.f.dir, bytes.NewReader(settings), &said
	out, err := c.Output()
	if err != nil {
		words := strings.TrimSpace(said.String())
		return nil, fmt.Errorf("%s: %w: %s", p.f.node, err, words[max(0, len(words)-600):])
	}
	return out, nil
}

func (p *peerBench) table() error {
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	p.head(t)
	fmt.Fprintf(t, "peer\t%s, %s, batch %d\n\n", p.report.Peer, p.f.gguf, p.f.chunk)
	fmt.Fprintln(t, "length, tokens\tprefill, tokens/s\tllama.cpp\tratio\tdecode, tokens/s\tllama.cpp\tratio")
	rows := p.report.Rows
	for at := 0; at < len(rows); at += peerRows {
		var m [rowStates]float64
		for i := range m {
			m[i] = rows[at+i].Median()
		}
		fmt.Fprintf(t, "%d\t%.1f\t%.1f\t%.2f x\t%.1f\t%.1f\t%.2f x\n", rows[at].Length, m[rowPrefill], m[rowPeerPrefill],
			m[rowPrefill]/m[rowPeerPrefill], m[rowDecode], m[rowPeerDecode], m[rowDecode]/m[rowPeerDecode])
	}
	if p.f.copies == 0 {
		return t.Flush()
	}
	p.statesTable(t)
	return t.Flush()
}
