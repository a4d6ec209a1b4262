package pack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"lector/engine/weights"
)

// arraysOf are the stored arrays of a tensor: its values, or codes, scales and biases.
func arraysOf(t weights.Tensor) [][]byte {
	if t.Quant == nil {
		return [][]byte{t.Data}
	}
	return [][]byte{t.Data, t.Quant.Scales, t.Quant.Biases}
}

// partsOf describes the tensors that a tensor is stored as in a precision, under canonical names, without digests.
func partsOf(t weights.Tensor, want weights.PackedMatrix) []weights.PackedDigest {
	if want.DType != weights.U32 {
		return []weights.PackedDigest{{Name: t.Name, DType: want.DType, Shape: t.Shape}}
	}
	base, last := strings.TrimSuffix(t.Name, ".weight"), len(t.Shape)-1
	with := func(n int) []int { return append(slices.Clone(t.Shape[:last]), n) }
	name := t.Name
	if t.Quant == nil {
		name = base + ".weight"
	}
	cols := t.Shape[last]
	return []weights.PackedDigest{
		{Name: name, DType: weights.U32, Shape: with(cols * want.Bits / 32)},
		{Name: base + ".scales", DType: want.Side, Shape: with(cols / want.Group)},
		{Name: base + ".biases", DType: want.Side, Shape: with(cols / want.Group)},
	}
}

// storedName is the source's spelling of a part's canonical name.
func storedName(t weights.Tensor, part string) string {
	if part == t.Name {
		return t.Stored
	}
	return strings.TrimSuffix(t.Stored, ".weight") + strings.TrimPrefix(part, strings.TrimSuffix(t.Name, ".weight"))
}

// byteCount is the size of a tensor by type and shape.
func byteCount(d weights.PackedDigest) int64 {
	n := int64(d.DType.Bits())
	for _, s := range d.Shape {
		n *= int64(s)
	}
	return n / 8
}

// rowsOf is the view of rows [from, to) of a matrix.
func rowsOf(t weights.Tensor, from, to int) weights.Tensor {
	cut := func(data []byte) []byte {
		width := len(data) / t.Shape[0]
		return data[from*width : to*width]
	}
	t.Data = cut(t.Data)
	if t.Quant != nil {
		q := *t.Quant
		q.Scales, q.Biases = cut(q.Scales), cut(q.Biases)
		t.Quant = &q
	}
	t.Shape = []int{to - from, t.Shape[1]}
	return t
}

// quantiseRows writes the arrays of a plain matrix.
func quantiseRows(t weights.Tensor, want weights.PackedMatrix, codes, scales, biases []byte) error {
	cols := t.Shape[1]
	width, side := want.RowBytes(cols)
	values := make([]float32, 0, cols)
	for r := range t.Shape[0] {
		values = t.AppendRow(values[:0], r)
		err := quantiseRow(values, want, codes[r*width:(r+1)*width], scales[r*side:(r+1)*side], biases[r*side:(r+1)*side])
		if err != nil {
			return fmt.Errorf("quantise row %d of %s: %w", r, t.Name, err)
		}
	}
	return nil
}

// headerDigest tells a source from others by what its headers say: config, and every tensor's name, type and shape.
func headerDigest(c *weights.Checkpoint) string {
	h := sha256.New()
	fmt.Fprintf(h, "lector source 1\n%s\n", c.Config().Digest())
	for _, t := range c.Tensors() {
		fmt.Fprintf(h, "%q %q %v %v\n", t.Name, t.Stored, t.Shape, weights.PackedMatrixOf(t))
	}
	return hex.EncodeToString(h.Sum(nil))
}
