// Package nano carries the built-in model: a small qwen4_exp with every part of the network in it, trained to
// find facts in long prose (README.md; train.py made it).
//
// It owns the three embedded files. Their data is read-only and may be used from any goroutine. It refuses nothing.
package nano

import (
	_ "embed"

	"lector/engine/weights"
)

// Name is what the model is called where a folder would be named.
const Name = "nano"

// The embedded files; nothing writes to them.
var (
	//go:embed config.json
	config []byte
	//go:embed model.safetensors
	model []byte
	//go:embed tokenizer.json
	tokenizer []byte
)

// Open opens the model. Its tensors are views of the embedded file.
func Open() (*weights.Checkpoint, error) {
	return weights.OpenBytes(Name, config, model)
}

// Tokenizer is the text of tokenizer.json. It must not be changed.
func Tokenizer() []byte { return tokenizer }
