package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"lector/cmd/lector/demo"
	"lector/engine"
	"lector/engine/bench"
	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/engine/token"
	"lector/engine/weights"
	"lector/metal"
)

// nanoFolder holds the trained model. It is read there, so that the archive stays small.
var nanoFolder = filepath.Join("engine", "nano")

// check is one claim about the engine on the GPU.
type check struct {
	name string
	err  error  // nil: it holds
	note string // what was seen
}

// class is the family of the numeric class, as --device cuda opens it.
const class = "ptx"

// open opens a model on a backend.
func open(c *weights.Checkpoint, be ops.Backend) (*qwen4exp.Engine, error) {
	return qwen4exp.Open(c, be, qwen4exp.Options{Tokenizer: "none"})
}

// onDevice opens a backend on the device for the time of use.
func onDevice(d metal.Device, use func(*gpu.Backend) error) error {
	be, err := gpu.New(d, gpu.Options{Family: class})
	if err != nil {
		return err
	}
	return errors.Join(use(be), be.Close())
}

// checks takes all of them, each on a backend of its own.
func checks(ctx context.Context, d metal.Device, faulty func(text string) string) []check {
	var all []check
	for _, dir := range []string{"tiny", "tiny-long", "odd", "tiny-mlx-folded", "tiny-mlx-plain", "nano-text"} {
		note, err := fixture(ctx, d, dir)
		all = append(all, check{"fixture " + dir, err, note})
	}
	note, err := answers(ctx, d)
	all = append(all, check{"nano answers, states from either side", err, note})
	return append(all, digests(ctx, d, faulty)...)
}

// fixture holds the reference's figures against the engine, choices free.
func fixture(ctx context.Context, d metal.Device, dir string) (note string, err error) {
	folder := filepath.Join("tests", "fixtures", dir)
	x, err := oracle.Load(filepath.Join(folder, "oracle.safetensors"))
	if err != nil {
		return "", err
	}
	model := folder
	switch dir { // these two were recorded on a model that lies elsewhere
	case "nano-text":
		model = nanoFolder
	case "tiny-long":
		model = filepath.Join("tests", "fixtures", "tiny")
	}
	c, err := weights.Open(model)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return note, onDevice(d, func(be *gpu.Backend) error {
		report, err := x.CheckWithin(ctx, func(n qwen4exp.HiddenNorm) (*qwen4exp.Engine, error) {
			return qwen4exp.Open(c, be, qwen4exp.Options{HiddenNorm: n})
		}, 512, oracle.BoundsOf(be.Class(), "").Free)
		if err != nil {
			return err
		}
		var b strings.Builder
		if err := report.Print(&b); err != nil {
			return err
		}
		note = fmt.Sprintf("%d figures", len(report.Lines))
		if !report.OK() {
			return errors.New(strings.ReplaceAll(b.String(), "\n", "; "))
		}
		return nil
	})
}

// answers asks nano's questions of states that either side made, on either side.
func answers(ctx context.Context, d metal.Device) (note string, err error) {
	text, err := token.Load(filepath.Join(nanoFolder, "tokenizer.json"))
	if err != nil {
		return "", err
	}
	document, err := text.Encode(demo.Document())
	if err != nil {
		return "", err
	}
	err = onDevice(d, func(be *gpu.Backend) error {
		sides := map[string]ops.Backend{"the GPU": be, "the CPU": cpu.New(cpu.Options{})}
		engines, states := map[string]*qwen4exp.Engine{}, map[string]bench.State{}
		for name, side := range sides {
			c, err := weights.Open(nanoFolder)
			if err != nil {
				return err
			}
			defer c.Close()
			e, err := open(c, side)
			if err != nil {
				return err
			}
			defer e.Close()
			engines[name] = e
			if states[name], err = read(ctx, e, document, 512); err != nil {
				return fmt.Errorf("read on %s: %w", name, err)
			}
		}
		var notes []string
		for from, state := range states {
			for on, e := range engines {
				right, err := ask(ctx, e, state, text)
				if err == nil && right < len(demo.Questions()) {
					err = errors.New("a wrong answer")
				}
				notes = append(notes, fmt.Sprintf("read on %s, asked on %s: %d of %d", from, on, right, len(demo.Questions())))
				if err != nil {
					return fmt.Errorf("%s: %w", strings.Join(notes, "; "), err)
				}
			}
		}
		note = strings.Join(notes, "; ")
		return nil
	})
	return note, err
}

// read prefills tokens and copies the state.
func read(ctx context.Context, e engine.Engine, tokens []engine.Token, chunk int) (bench.State, error) {
	seq, err := e.NewSequence(len(tokens))
	if err != nil {
		return bench.State{}, err
	}
	defer seq.Close()
	for from := 0; from < len(tokens); from += chunk {
		if _, err := seq.Prefill(ctx, tokens[from:min(from+chunk, len(tokens))], nil); err != nil {
			return bench.State{}, err
		}
	}
	return bench.SaveState(seq)
}

// ask counts the right answers from a state.
func ask(ctx context.Context, e engine.Engine, s bench.State, text *token.Tokenizer) (right int, err error) {
	for _, q := range demo.Questions() {
		prompt, err := text.Encode(q.Prompt)
		if err != nil {
			return right, err
		}
		seq, err := s.Start(ctx, e, int(s.Pos)+len(prompt)+32)
		if err != nil {
			return right, err
		}
		step, err := seq.Prefill(ctx, prompt, nil)
		if err != nil {
			return right, errors.Join(err, seq.Close())
		}
		decoder, answer, next := text.Decoder(), "", step.Next
		for range 16 {
			answer += decoder.Add(next)
			out, err := seq.Decode(ctx, []engine.Token{next}, nil)
			if err != nil {
				return right, errors.Join(err, seq.Close())
			}
			next = out.Chosen[0]
		}
		if err := seq.Close(); err != nil {
			return right, err
		}
		if q.Right(answer + decoder.Flush()) {
			right++
		}
	}
	return right, nil
}

// digest is the digest of a state's bytes.
func digest(s bench.State) [32]byte {
	h := sha256.New()
	for _, r := range s.Regions {
		h.Write([]byte(r.Name))
		h.Write(r.Data)
	}
	return [32]byte(h.Sum(nil))
}
