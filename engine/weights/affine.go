package weights

import (
	"encoding/json"
	"fmt"
	"slices"
)

// quantConfig is what config.json says about packing: a default and exceptions by module.
type quantConfig struct {
	present bool
	def     quantSpec
	modules map[string]quantSpec // by canonical module name
}

// quantSpec is one packing; zero stands for unsaid. plain marks a module that is said to be unpacked.
type quantSpec struct {
	bits, group int
	plain       bool
}

// parseQuant reads "quantization" (or "quantization_config", under which MLX repeats it and others write
// formats that we don't read).
func parseQuant(config []byte) (quantConfig, error) {
	var top struct {
		MLX   json.RawMessage `json:"quantization"`
		Other json.RawMessage `json:"quantization_config"`
	}
	if err := json.Unmarshal(config, &top); err != nil {
		return quantConfig{}, fmt.Errorf("read config.json: %w", err)
	}
	key, raw := "quantization", top.MLX
	if absent(raw) {
		key, raw = "quantization_config", top.Other
	}
	if absent(raw) {
		return quantConfig{}, nil
	}
	q := quantConfig{present: true, modules: map[string]quantSpec{}}
	var err error
	if q.def, err = parseSpec(raw); err != nil {
		return q, fmt.Errorf("config.json: %s: %w", key, err)
	}
	err = members(raw, q.module)
	if err != nil {
		return q, fmt.Errorf("config.json: %s: %w", key, err)
	}
	return q, nil
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// module reads one exception; other members of the object are settings.
func (q *quantConfig) module(key string, value json.RawMessage) error {
	var spec quantSpec
	switch value[0] {
	case '{':
		var err error
		if spec, err = parseSpec(value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	case 't', 'f':
		spec.plain = value[0] == 'f'
		if !spec.plain {
			spec = q.def
		}
	default:
		return nil
	}
	name, _ := canonical(key)
	if other, ok := q.modules[name]; ok && other != spec {
		return fmt.Errorf("%s and another spelling of it disagree", key)
	}
	q.modules[name] = spec
	return nil
}

// parseSpec reads one packing.
func parseSpec(raw json.RawMessage) (quantSpec, error) {
	var s struct {
		Bits   int     `json:"bits"`
		Group  int     `json:"group_size"`
		Mode   *string `json:"mode"`
		Method *string `json:"quant_method"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return quantSpec{}, err
	}
	for _, kind := range []string{or(s.Mode, "affine"), or(s.Method, "affine")} {
		if kind != "affine" && kind != "mlx" {
			return quantSpec{}, fmt.Errorf("%q is not supported: lector reads bf16 and MLX affine", kind)
		}
	}
	return quantSpec{bits: s.Bits, group: s.Group}, nil
}

// affine reads an MLX affine tensor. Bits and group follow from the shapes, because the input width is known;
// the config must agree with them.
func (c *Checkpoint) affine(s *stored, name string, shape []int) (Tensor, []*stored, error) {
	scales, biases := c.tensors[name+".scales"], c.tensors[name+".biases"]
	if biases == nil {
		return Tensor{}, nil, fmt.Errorf("tensor %s.biases is missing: %s has scales", name, s)
	}
	q, err := packing(s, scales, shape)
	if err != nil {
		return Tensor{}, nil, err
	}
	if biases.dtype != scales.dtype || !slices.Equal(biases.shape, scales.shape) {
		return Tensor{}, nil, fmt.Errorf("tensor %s does not match %s", biases, scales)
	}
	if err := c.quant.check(name, q.Bits, q.Group); err != nil {
		return Tensor{}, nil, fmt.Errorf("tensor %s: %w", s, err)
	}
	q.Scales, q.Biases = scales.data, biases.data
	t := Tensor{Name: s.canonical, Stored: s.name, DType: s.dtype, Shape: slices.Clone(shape), Data: s.data, Quant: q}
	return t, []*stored{s, scales, biases}, nil
}

// packing derives bits and group from the shapes of codes and scales; shape is that of the values.
func packing(s, scales *stored, shape []int) (*Quant, error) {
	last := len(shape) - 1
	in := shape[last]
	if len(s.shape) != len(shape) || !slices.Equal(s.shape[:last], shape[:last]) {
		return nil, fmt.Errorf("tensor %s: the config calls for shape %v", s, shape)
	}
	words := s.shape[last]
	bits := 0
	if in > 0 && words*32%in == 0 {
		bits = words * 32 / in
	}
	if !slices.Contains([]int{2, 3, 4, 6, 8}, bits) {
		return nil, fmt.Errorf("tensor %s: %d words are no row of %d codes of 2, 3, 4, 6 or 8 bits", s, words, in)
	}
	if len(scales.shape) != len(shape) || !slices.Equal(scales.shape[:last], shape[:last]) || !scales.dtype.float() {
		return nil, fmt.Errorf("tensor %s does not fit the codes of %s", scales, s)
	}
	group := 0
	if n := scales.shape[last]; n > 0 && in%n == 0 {
		group = in / n
	}
	if !slices.Contains([]int{32, 64, 128}, group) {
		return nil, fmt.Errorf("tensor %s: %d scales for %d inputs: groups must be 32, 64 or 128 long", scales, scales.shape[last], in)
	}
	return &Quant{Bits: bits, Group: group, Side: scales.dtype}, nil
}

// check compares what the shapes say with the config. The default group may differ, as converters fall back to
// a shorter one where rows don't divide without writing it down; the shapes leave no doubt.
func (q quantConfig) check(module string, bits, group int) error {
	spec, explicit := q.modules[module]
	if spec.plain {
		return fmt.Errorf("its shape says %d bits, config.json says that it is not quantised", bits)
	}
	if !explicit {
		spec = quantSpec{bits: q.def.bits}
	}
	if spec.bits != 0 && spec.bits != bits {
		return fmt.Errorf("its shape says %d bits, config.json says %d", bits, spec.bits)
	}
	if spec.group != 0 && spec.group != group {
		return fmt.Errorf("its scales say groups of %d, config.json says %d", group, spec.group)
	}
	return nil
}
