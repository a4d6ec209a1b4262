// Package oracle compares an engine with a recorded fixture of the public reference implementation: logits,
// residuals, choices, states, draft head and greedy continuation, figure by figure.
//
// It promises that what a fixture holds is compared, and that what it does not hold is named as not compared.
// It never writes an expectation. Start reading at Fixture.Check.
package oracle

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"lector/engine"
	"lector/engine/weights"
)

// Fixture is what the reference computed for one prompt.
type Fixture struct {
	Path    string
	Tokens  []engine.Token
	report  reportFile
	tensors map[string]values
}

// reportFile is oracle.json beside the tensors.
type reportFile struct {
	LogitsFrom int            `json:"logits_from"`
	Greedy     []engine.Token `json:"greedy"`
	Drafts     []engine.Token `json:"mtp_drafts"`
	Chain      []engine.Token `json:"mtp_chain"`
	Reference  string         `json:"reference"`
	// GreedyMargin is the smallest lead of a greedy token over the next one.
	GreedyMargin float64 `json:"greedy_margin_min"`
}

// values is one tensor of a fixture: numbers or choices.
type values struct {
	shape  []int
	floats []float32
	ints   []int64
}

// Load reads an oracle.safetensors and the oracle.json beside it.
func Load(path string) (*Fixture, error) {
	x := &Fixture{Path: path, tensors: map[string]values{}}
	beside := filepath.Join(filepath.Dir(path), "oracle.json")
	text, err := os.ReadFile(beside)
	if err != nil {
		return nil, fmt.Errorf("read fixture: %w", err)
	}
	if err := json.Unmarshal(text, &x.report); err != nil {
		return nil, fmt.Errorf("read fixture %s: %w", beside, err)
	}
	stored, err := weights.ReadTensors(path)
	if err != nil {
		return nil, fmt.Errorf("read fixture: %w", err)
	}
	for _, t := range stored {
		v, err := decode(t)
		if err != nil {
			return nil, fmt.Errorf("read fixture %s: %w", path, err)
		}
		x.tensors[t.Name] = v
	}
	prompt := x.tensors["tokens"]
	if len(prompt.ints) == 0 {
		return nil, fmt.Errorf("read fixture %s: it holds no tokens", path)
	}
	for _, id := range prompt.ints {
		x.Tokens = append(x.Tokens, engine.Token(id))
	}
	if x.report.LogitsFrom < 0 || x.report.LogitsFrom >= len(x.Tokens) {
		return nil, fmt.Errorf("read fixture %s: logits_from is %d of %d tokens", beside, x.report.LogitsFrom, len(x.Tokens))
	}
	return x, nil
}

// decode copies a stored tensor out of the file.
func decode(t weights.Tensor) (values, error) {
	v := values{shape: t.Shape}
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	switch t.DType {
	case "F32":
		v.floats = make([]float32, n)
		for i := range v.floats {
			v.floats[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
	case "I64":
		v.ints = make([]int64, n)
		for i := range v.ints {
			v.ints[i] = int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
		}
	case "U8":
		v.ints = make([]int64, n)
		for i := range v.ints {
			v.ints[i] = int64(t.Data[i])
		}
	default:
		return v, fmt.Errorf("tensor %s is %s: fixtures hold F32, I64 and U8", t.Name, t.DType)
	}
	return v, nil
}

// row is row r of the second axis (axis 1) of a [A, R, n] tensor at a, or of the first axis where a < 0.
func (v values) row(a, r int) []float32 {
	n := v.shape[len(v.shape)-1]
	if a < 0 {
		size := len(v.floats) / v.shape[0]
		return v.floats[r*size : (r+1)*size]
	}
	at := (a*v.shape[1] + r) * n
	return v.floats[at : at+n]
}
