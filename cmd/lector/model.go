package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"lector/engine"
	"lector/engine/nano"
	"lector/engine/qwen4exp"
	"lector/engine/token"
	"lector/engine/weights"
)

// source is an open checkpoint with the tokenizer beside it.
type source struct {
	checkpoint *weights.Checkpoint
	tokenizer  *token.Tokenizer // nil where the folder holds none
}

// Close ends the mapping of the weights.
func (s *source) Close() error { return s.checkpoint.Close() }

// openCheckpoint opens --model. Whatever is wrong with it is the input's fault.
func (a *app) openCheckpoint() (*source, error) {
	if a.model == nano.Name {
		c, err := nano.Open()
		if err != nil {
			return nil, err
		}
		t, err := token.Parse(nano.Name, nano.Tokenizer())
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return &source{checkpoint: c, tokenizer: t}, nil
	}
	c, err := weights.Open(a.model)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badInput(fmt.Errorf("%w: --model is %s or the folder of a checkpoint", err, nano.Name))
	}
	if err != nil {
		return nil, badInput(err)
	}
	t, err := token.Load(filepath.Join(a.model, "tokenizer.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return &source{checkpoint: c}, nil
	}
	if err != nil {
		return nil, badInput(errors.Join(err, c.Close()))
	}
	return &source{checkpoint: c, tokenizer: t}, nil
}

// model is a loaded model: engine and text.
type model struct {
	*source
	engine *qwen4exp.Engine
	text   engine.Tokenizer
	device *computing
}

// Close releases the engine, then the device, then the weights.
func (m *model) Close() error {
	return errors.Join(m.engine.Close(), m.device.close(), m.source.Close())
}

// openModel loads --model on --device.
func (a *app) openModel() (*model, error) {
	memory, err := a.memoryBytes()
	if err != nil {
		return nil, err
	}
	if a.workers < 0 {
		return nil, badInput(fmt.Errorf("--threads %d: at least 1, or 0 for all cores", a.workers))
	}
	s, err := a.openCheckpoint()
	if err != nil {
		return nil, err
	}
	if memory == 0 && (s.checkpoint.Packed() != nil || len(a.serves) > 0) { // else everything that is read would stay, and jobs share nothing
		memory = defaultMemory()
	}
	opt := qwen4exp.Options{HiddenNorm: qwen4exp.HiddenNorm(a.norm), KV: qwen4exp.KV(a.kv), State: qwen4exp.State(a.recurrent), Memory: memory, Beside: besideEngine, Tokenizer: "none"}
	if a.memory == "" {
		opt.Panels = int(machineMemory() / 16)
	}
	var text engine.Tokenizer = noTokenizer{name: s.checkpoint.Name()}
	if s.tokenizer != nil {
		text = s.tokenizer
		opt.Tokenizer, opt.Tokens = s.tokenizer.Digest(), s.tokenizer.Vocabulary()
	}
	device, err := a.openBackend(s.checkpoint.Mapped()) // the engine shares out the memory
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	e, err := qwen4exp.Open(s.checkpoint, device.Backend, opt)
	if err != nil {
		return nil, badInput(errors.Join(err, device.close(), s.Close()))
	}
	return &model{source: s, engine: e, text: text, device: device}, nil
}

// besideEngine is the part of --memory that the engine leaves to the rest of the process: Go's runtime, the queue in
// this process, the tokenizer, and the pieces of a state on their way to the store. Reading 8,192 tokens of a model of
// 0.7 B parameters took 24 MiB of it.
const besideEngine = 64 << 20

// defaultMemory is the budget of a packed store without --memory: half of the machine's, 0 where that cannot be told.
func defaultMemory() int { return int(machineMemory() / 2) }

// noTokenizer stands for a checkpoint without tokenizer.json: it reads and writes token ids only.
type noTokenizer struct{ name string }

func (n noTokenizer) refuse() error {
	return badInput(fmt.Errorf("model %s has no tokenizer.json: give token ids with --tokens", n.name))
}

func (n noTokenizer) Encode(string) ([]engine.Token, error)               { return nil, n.refuse() }
func (n noTokenizer) Chat([]engine.Message, bool) ([]engine.Token, error) { return nil, n.refuse() }
func (n noTokenizer) Decoder() engine.Decoder                             { return noText{} }
func (n noTokenizer) Digest() string                                      { return "none" }

// noText decodes every token to nothing.
type noText struct{}

func (noText) Add(engine.Token) string { return "" }
func (noText) Flush() string           { return "" }
