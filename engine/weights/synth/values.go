package synth

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"lector/engine/weights"
)

// kind says how the values of a tensor are drawn.
type kind uint8

const (
	normal kind = iota // mean 0, deviation `scale`
	around             // the same about `mean`
	decays             // A_log: the logarithm of a decay between 0.05 and 7.05
	fixed              // integers that the config determines
)

// values is one tensor's stream of numbers. Number i depends on the stream and i alone, so that chunks can be drawn
// in any order.
type values struct {
	stream      uint64
	kind        kind
	scale, mean float32
}

// streamOf tells the streams of tensors and seeds apart.
func streamOf(seed uint64, name string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "lector synth 1 %d %s", seed, name))
	return binary.LittleEndian.Uint64(sum[:])
}

// fill writes numbers [from, from+len(dst)/2) as bf16.
func (v values) fill(dst []byte, from int64) {
	for i := range len(dst) / 2 {
		binary.LittleEndian.PutUint16(dst[2*i:], weights.ToBF16(v.at(uint64(from)+uint64(i))))
	}
}

// at is one number. Every operation is rounded by itself, since a machine that fuses them would draw others.
func (v values) at(i uint64) float32 {
	word := mix(v.stream + i*0x9E3779B97F4A7C15)
	if v.kind == decays {
		return float32(logarithm(float64(float64(word>>11)*0x1p-53*7) + 0.05))
	}
	// The sum of four 16-bit numbers is normal enough, and exact: mean 2*65535, deviation 65536/sqrt(3).
	sum := int32(word&0xffff+word>>16&0xffff+word>>32&0xffff+word>>48) - 131070
	x := float32(sum) * (1.7320508 / 65536)
	x = float32(x * v.scale)
	return x + v.mean
}

// mix is the finalizer of SplitMix64.
func mix(v uint64) uint64 {
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	return v ^ v>>31
}

// logarithm is the natural one, in operations that every machine rounds alike.
func logarithm(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	s := (fraction - 1) / (fraction + 1)
	square := float64(s * s)
	sum, power := 0.0, s
	for n := 1; n < 60; n += 2 {
		sum += power / float64(n)
		power = float64(power * square)
	}
	return float64(2*sum) + float64(float64(exponent)*math.Ln2)
}
