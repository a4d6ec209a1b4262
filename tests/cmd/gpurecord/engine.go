package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"lector/engine/bench"
	"lector/engine/gpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
	"lector/engine/weights/pack"
	"lector/engine/weights/synth"
	"lector/metal"
)

// The synthetic model of these figures is mid, with 4-bit weights.
const (
	chunk    = 2048
	nearTo   = 4096  // the position that costs are compared with
	farOut   = 65536 // and the one far out
	decodeAt = 4096
)

// engineFigures are the rates of prefill and decode; busy and memory are what the device was measured to do.
func engineFigures(ctx context.Context, d metal.Device, memory float64, profileTo string) (figures []figure, err error) {
	folder, err := os.MkdirTemp("", "lector-mid-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	store, err := packed(ctx, folder, synth.Options{Preset: "mid", Seed: 1}, pack.Settings{Bits: 4, ExpertsBits: 4, Group: 64})
	if err != nil {
		return nil, err
	}
	c, err := weights.Open(store)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, memory := range []struct {
		name  string
		bytes func(least int64) int
	}{
		{"resident", func(int64) int { return 0 }},
		{"streamed", func(least int64) int { return int(least) + 256<<20 }},
	} {
		err := onDevice(d, func(be *gpu.Backend) error {
			least, err := leastOf(c, be)
			if err != nil {
				return err
			}
			e, err := qwen4exp.Open(c, be, qwen4exp.Options{Tokenizer: "none", Memory: memory.bytes(least)})
			if err != nil {
				return err
			}
			found, err := rates(ctx, e, c, memory.name, profileTo)
			figures = append(figures, found...)
			return errors.Join(err, e.Close())
		})
		if err != nil {
			return figures, fmt.Errorf("mid, experts %s: %w", memory.name, err)
		}
	}
	for i := range figures { // the share of a limit of the same run
		if f := &figures[i]; f.unit == "GB/s" {
			f.note += fmt.Sprintf("; %.1f %% of a copy within device memory", 100*f.value/memory)
		}
	}
	return figures, nil
}

func leastOf(c *weights.Checkpoint, be *gpu.Backend) (int64, error) {
	e, err := open(c, be)
	if err != nil {
		return 0, err
	}
	least, err := e.LeastMemory()
	return least, errors.Join(err, e.Close())
}

// rates measures one engine.
func rates(ctx context.Context, e *qwen4exp.Engine, c *weights.Checkpoint, experts, profileTo string) ([]figure, error) {
	r := &bench.Runner{
		Engine: e, Config: c.Config(), Stored: bench.StoredOf(c), Seed: 1, Repeat: 3,
		Note: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	}
	if err := r.Warm(ctx); err != nil {
		return nil, err
	}
	size := min(chunk, e.Info().MaxChunk)
	rows, err := r.Prefill(ctx, []int{3 * size}, []int{size})
	if err != nil {
		return nil, err
	}
	figures := []figure{prefillFigure("prefill of mid, experts "+experts, rows[0])}
	if experts != "resident" {
		return figures, nil
	}
	rows, err = r.At(ctx, []int{nearTo, farOut}, bench.StateOptions{Chunk: size, Synthetic: true})
	if err != nil {
		return figures, err
	}
	for _, row := range rows {
		figures = append(figures, prefillFigure(fmt.Sprintf("a chunk of mid at %d tokens", row.Position), row))
	}
	far := &figures[len(figures)-1]
	far.note += fmt.Sprintf("; %.0f %% of the rate at %d", 100*rows[1].Median()/rows[0].Median(), nearTo)
	stop, err := profiled(profileTo)
	if err != nil {
		return figures, err
	}
	rows, err = r.Decode(ctx, bench.DecodeOptions{Positions: []int{decodeAt}, Drafts: []int{0}, Tokens: 64, StateOptions: bench.StateOptions{Chunk: size, Synthetic: true}})
	if err := errors.Join(err, stop()); err != nil {
		return figures, err
	}
	row := rows[0]
	fmt.Fprintf(os.Stderr, "decode: %+v\n", row.Sum())
	return append(figures,
		figure{"decode of mid", row.Median(), "tokens/s", fmt.Sprintf("at %d tokens, no drafts", decodeAt)},
		figure{"decode of mid, bytes that it must read", row.BytesPerSecond() / 1e9, "GB/s", fmt.Sprintf("%.1f MB a token", float64(row.Reads.Total())/float64(max(row.Steps, 1))/1e6)},
	), nil
}

// profiled profiles the host until stop is called; nothing where folder is empty.
func profiled(folder string) (stop func() error, err error) {
	if folder == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(filepath.Join(folder, "cpu.pprof"))
	if err != nil {
		return nil, err
	}
	runtime.SetBlockProfileRate(1)
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		block, err := os.Create(filepath.Join(folder, "block.pprof"))
		if err == nil {
			err = errors.Join(pprof.Lookup("block").WriteTo(block, 0), block.Close())
		}
		return errors.Join(err, f.Close())
	}, nil
}

// prefillFigure says where the time went as well.
func prefillFigure(name string, row bench.Row) figure {
	s := row.Sum()
	share := func(seconds float64) float64 { return 100 * seconds / s.Seconds }
	return figure{name, row.Median(), "tokens/s", fmt.Sprintf(
		"chunks of %d, %.2f TFLOP/s; DeltaNet %.0f %%, attention %.0f %%, experts %.0f %%, n-grams %.0f %%, draft head %.0f %%, other %.0f %%; %.1f MB of records a chunk",
		row.Chunk, row.FLOPs()/1e12, share(s.Delta), share(s.Attention), share(s.Experts), share(s.Ngram), share(s.MTP), share(s.Other),
		float64(s.RecordBytes)/float64(max(1, s.Tokens))*float64(row.Chunk)/1e6)}
}

// copyRate is the rate of a copy within device memory, as it was measured.
func copyRate(figures []figure) float64 {
	for _, f := range figures {
		if f.name == copyFigure {
			return f.value
		}
	}
	return 0
}
