package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Tensor is one stored tensor. Data is a view of the file and stays as stored: little-endian, row-major, not
// aligned to more than a byte.
type Tensor struct {
	Name   string // canonical (released) name, with ".weight" where the release has it
	Stored string // name in the file
	DType  DType  // of Data; U32 where Quant is set
	Shape  []int  // of the values, so [.., out, in] also where Data holds packed codes
	Data   []byte
	Quant  *Quant // nil unless MLX affine
}

// Quant says how Data packs codes: a row is one little-endian bit stream, code i at bits [Bits*i, Bits*i+Bits)
// from the lowest bit of its first byte; value = scale*code + bias, with one scale and bias for Group codes.
type Quant struct {
	Bits   int    // 2, 3, 4, 6 or 8
	Group  int    // 32, 64 or 128, along the last axis
	Side   DType  // of Scales and Biases: BF16, F16 or F32
	Scales []byte // [.., out, in/Group]
	Biases []byte // the same shape
}

// Bytes is the stored size.
func (t Tensor) Bytes() int64 {
	n := int64(len(t.Data))
	if t.Quant != nil {
		n += int64(len(t.Quant.Scales)) + int64(len(t.Quant.Biases))
	}
	return n
}

// Matrix returns the weight of a linear layer or an embedding. name is canonical without ".weight", such as
// "model.language_model.layers.0.linear_attn.in_proj_qkv". With tied embeddings "lm_head" is the embedding.
func (c *Checkpoint) Matrix(name string, out, in int) (Tensor, error) {
	t, _, err := c.matrix(name, out, in)
	return t, err
}

// matrix reads a matrix, or a stack of them with a leading axis, and lists the stored tensors that it is made of.
func (c *Checkpoint) matrix(name string, shape ...int) (Tensor, []*stored, error) {
	if name == "lm_head" && c.config.Tied {
		name = "model.language_model.embed_tokens"
	}
	s := c.find(name)
	if s == nil {
		return Tensor{}, nil, fmt.Errorf("tensor %s.weight %v is missing", name, shape)
	}
	if s.dtype == U32 && c.tensors[name+".scales"] != nil {
		return c.affine(s, name, shape)
	}
	if err := checkFloat(s, shape); err != nil {
		return Tensor{}, nil, err
	}
	return Tensor{Name: s.canonical, Stored: s.name, DType: s.dtype, Shape: slices.Clone(shape), Data: s.data}, []*stored{s}, nil
}

// checkFloat makes sure that a tensor holds plain numbers of the given shape.
func checkFloat(s *stored, shape []int) error {
	if !s.dtype.float() {
		return fmt.Errorf("tensor %s: type %s is not supported here: lector reads BF16, F16, F32 and MLX affine codes (U32 with scales and biases)", s, s.dtype)
	}
	if !slices.Equal(s.shape, shape) {
		return fmt.Errorf("tensor %s: the config calls for shape %v", s, shape)
	}
	return nil
}

// Vector returns n values as float32, such as A_log and dt_bias. The name is canonical, as stored.
func (c *Checkpoint) Vector(name string, n int) ([]float32, error) {
	s, err := c.vector(name, n)
	if err != nil {
		return nil, err
	}
	return s.floats()
}

func (c *Checkpoint) vector(name string, n int) (*stored, error) {
	s := c.find(name)
	if s == nil {
		return nil, fmt.Errorf("tensor %s [%d] is missing", name, n)
	}
	return s, checkFloat(s, []int{n})
}

// Conv returns a depthwise convolution as [channels, taps], oldest tap first, whichever of [C,1,K] and [C,K,1]
// is stored: their bytes are in the same order. The name is without ".weight".
func (c *Checkpoint) Conv(name string, channels, taps int) ([]float32, error) {
	s, err := c.conv(name, channels, taps)
	if err != nil {
		return nil, err
	}
	return s.floats()
}

func (c *Checkpoint) conv(name string, channels, taps int) (*stored, error) {
	s := c.find(name)
	if s == nil {
		return nil, fmt.Errorf("tensor %s.weight [%d 1 %d] is missing", name, channels, taps)
	}
	if slices.Equal(s.shape, []int{channels, taps, 1}) {
		return s, checkFloat(s, s.shape)
	}
	return s, checkFloat(s, []int{channels, 1, taps})
}

// floats decodes short vectors; a value that is not finite is an error, since nothing good follows from it.
func (s *stored) floats() ([]float32, error) {
	values := make([]float32, 0, len(s.data)*8/s.dtype.bits())
	values = appendFloats(values, s.dtype, s.data)
	for i, v := range values {
		if v-v != 0 {
			return nil, fmt.Errorf("tensor %s: value %d is %v", s, i, v)
		}
	}
	return values, nil
}

// appendFloats decodes little-endian numbers exactly.
func appendFloats(dst []float32, d DType, data []byte) []float32 {
	switch d {
	case F32:
		for ; len(data) >= 4; data = data[4:] {
			dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
	case BF16:
		for ; len(data) >= 2; data = data[2:] {
			dst = append(dst, math.Float32frombits(uint32(binary.LittleEndian.Uint16(data))<<16))
		}
	case F16:
		for ; len(data) >= 2; data = data[2:] {
			dst = append(dst, half(binary.LittleEndian.Uint16(data)))
		}
	}
	return dst
}

// half widens an IEEE half.
func half(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch exp {
	case 0: // zero or subnormal: frac * 2^-24 is exact
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// AppendRow appends the values of one row to dst, decoded one by one: the definition of every stored form, for
// tests and inspection. row counts over all leading axes, so it is below the product of Shape without its last.
func (t Tensor) AppendRow(dst []float32, row int) []float32 {
	in := t.Shape[len(t.Shape)-1]
	q := t.Quant
	if q == nil {
		width := in * t.DType.bits() / 8
		return appendFloats(dst, t.DType, t.Data[row*width:(row+1)*width])
	}
	width, side := in*q.Bits/8, in/q.Group*q.Side.bits()/8
	scales := appendFloats(nil, q.Side, q.Scales[row*side:(row+1)*side])
	biases := appendFloats(nil, q.Side, q.Biases[row*side:(row+1)*side])
	codes := t.Data[row*width : (row+1)*width]
	for i := range in {
		code := uint32(0)
		for b := range q.Bits {
			at := q.Bits*i + b
			code |= uint32(codes[at/8]>>(at%8)&1) << b
		}
		dst = append(dst, float32(scales[i/q.Group]*float32(code))+biases[i/q.Group])
	}
	return dst
}
