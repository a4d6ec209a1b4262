package weights

import (
	"fmt"
	"os"
	"path/filepath"
)

// ReadTensors reads every tensor of one safetensors file into memory, under the names that the file gives
// them and without any reading of conventions: for fixtures and exports, not for checkpoints.
func ReadTensors(path string) ([]Tensor, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tensors: %w", err)
	}
	parsed, err := parseSafetensors(filepath.Base(path), data)
	if err != nil {
		return nil, fmt.Errorf("read tensors of %s: %w", path, err)
	}
	out := make([]Tensor, len(parsed))
	for i, s := range parsed {
		out[i] = Tensor{Name: s.name, Stored: s.name, DType: s.dtype, Shape: s.shape, Data: s.data}
	}
	return out, nil
}
