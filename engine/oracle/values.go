package oracle

import (
	"encoding/binary"
	"math"
	"strings"

	"lector/engine"
)

// Numbers are the values of region i of a state as float32, whatever it is held in: codes of 8 bits are worth what the
// region of their scales, which has the same name and "_scale" behind it, says.
func Numbers(regions []engine.Region, i int) []float32 {
	r := regions[i]
	n := r.ValueBytes()
	out := make([]float32, len(r.Data)/n)
	switch r.DType {
	case "f16":
		for i := range out {
			out[i] = half(binary.LittleEndian.Uint16(r.Data[2*i:]))
		}
	case "bf16":
		for i := range out {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(r.Data[2*i:])) << 16)
		}
	case "i8":
		scales, dim := scalesOf(regions, r.Name), r.Shape[len(r.Shape)-1]
		groups := (dim + scaleGroup - 1) / scaleGroup
		for i := range out {
			out[i] = float32(int8(r.Data[i])) * scales[i/dim*groups+i%dim/scaleGroup]
		}
	default:
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(r.Data[4*i:]))
		}
	}
	return out
}

// scaleGroup is how many codes share a scale.
const scaleGroup = 32

func scalesOf(regions []engine.Region, name string) []float32 {
	for i, r := range regions {
		if r.Name == name+"_scale" {
			return Numbers(regions, i)
		}
	}
	return nil
}

// compared says that a region holds numbers of the model: not ids, and not what is kept beside rounded numbers.
func compared(r engine.Region) bool {
	return r.DType != "i32" && !strings.HasSuffix(r.Name, "_scale") && !strings.HasSuffix(r.Name, "_loss")
}

// half widens an IEEE half.
func half(h uint16) float32 {
	exp, frac := int(h>>10&31), float64(h&1023)
	if exp == 31 {
		return float32(math.Inf(1 - 2*int(h>>15))) // a state with one in it is refused before it gets here
	}
	if exp > 0 {
		frac += 1024
	}
	return float32(math.Copysign(math.Ldexp(frac, max(exp, 1)-25), 1-2*float64(h>>15)))
}
