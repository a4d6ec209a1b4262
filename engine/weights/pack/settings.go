package pack

import (
	"fmt"
	"slices"
	"strings"

	"lector/engine/weights"
)

// Keep leaves a part in the precision of the source.
const Keep = 0

// Settings say how a store is quantised.
type Settings struct {
	Bits        int // 2, 3, 4, 6 or 8 for everything that is not quantised yet, or Keep
	ExpertsBits int // the same for the routed experts
	Group       int // values that share a scale and a bias: 32, 64 or 128
}

// Check refuses settings that no store can have.
func (s Settings) Check() error {
	for _, bits := range []int{s.Bits, s.ExpertsBits} {
		if !slices.Contains([]int{Keep, 2, 3, 4, 6, 8}, bits) {
			return fmt.Errorf("%d bits: it must be 2, 3, 4, 6 or 8, or keep", bits)
		}
	}
	if !slices.Contains([]int{32, 64, 128}, s.Group) {
		return fmt.Errorf("groups of %d: they must be 32, 64 or 128 long", s.Group)
	}
	return nil
}

// String is what the manifest says of the settings.
func (s Settings) String() string {
	word := func(bits int) string {
		if bits == Keep {
			return "keep"
		}
		return fmt.Sprint(bits)
	}
	return fmt.Sprintf("bits=%s experts=%s group=%d", word(s.Bits), word(s.ExpertsBits), s.Group)
}

// quantised is what a plain tensor with rows of cols values becomes, or what it is where it stays.
func quantised(t weights.Tensor, bits, group int) weights.PackedMatrix {
	cols := t.Shape[len(t.Shape)-1]
	if t.Quant != nil || bits == Keep || cols%group != 0 {
		return weights.PackedMatrixOf(t)
	}
	return weights.PackedMatrix{DType: weights.U32, Bits: bits, Group: group, Side: t.DType}
}

// dense is the precision of a tensor outside of experts and tables. Small tensors that steer the network stay as
// they are: the choice of experts, the gate of the shared one, norms, decays and convolutions.
func (s Settings) dense(t weights.Tensor) weights.PackedMatrix {
	steers := strings.HasSuffix(t.Name, ".mlp.gate.weight") || strings.HasSuffix(t.Name, ".shared_expert_gate.weight")
	if len(t.Shape) != 2 || !strings.HasSuffix(t.Name, ".weight") || steers {
		return weights.PackedMatrixOf(t)
	}
	return quantised(t, s.Bits, s.Group)
}

func (s Settings) expert(t weights.Tensor) weights.PackedMatrix {
	return quantised(t, s.ExpertsBits, s.Group)
}

// ngram falls back to the shortest group where rows don't divide, as the 160 values of the released table.
func (s Settings) ngram(t weights.Tensor) weights.PackedMatrix {
	if t.Shape[1]%s.Group != 0 {
		return quantised(t, s.Bits, 32)
	}
	return quantised(t, s.Bits, s.Group)
}
