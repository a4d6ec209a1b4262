package bfp

import (
	"lector/engine/cpu/fma"
	"lector/engine/ops"
)

//go:generate go run ./gen -out kernels_amd64.s -stubs kernels_amd64.go -pkg bfp

// Set names who multiplies.
type Set uint8

const (
	Plain Set = iota // Go
	AVX2             // pairs of products in 16 bits, with FMA
	VNNI             // AVX-512 VNNI
)

func (s Set) String() string { return [...]string{"plain", "avx2", "vnni"}[s] }

// Widest is the fastest of Sets.
func Widest() Set {
	sets := Sets()
	return sets[len(sets)-1]
}

// Here says that this processor has kernels.
func Here() bool { return Widest() != Plain }

// chains is who unpacks.
func (s Set) chains() fma.Set {
	if s == Plain {
		return fma.Plain
	}
	return fma.Widest()
}

const (
	limbs      = 3
	sideBytes  = 8   // behind the limbs of a group: its unit and its sum
	step       = 32  // groups are multiples of it
	mostInputs = 256 // of a group: their sum, and those of limbs times codes, are int32
)

// Suits says that this arithmetic knows weights of this kind. Others are multiplied as in the class cpu-f32-blocked.
func Suits(m *ops.Matrix) bool {
	return m.Format == ops.Affine && m.Group%step == 0 && m.Group > 0 && m.Group <= mostInputs && m.In > 0 && m.In%m.Group == 0 && fma.SuitsCodes(m)
}

// apart is how far apart in memory the inputs are whose codes lie in neighbouring bytes: with codes of 2 and 4 bits those are every
// fourth and every second.
func apart(bits int) int {
	if 32%bits == 0 {
		return 8 / bits
	}
	return 1
}

// orderOf is the inputs of every 16 in the order of their bytes, with codes of so many bits.
func orderOf(bits int) (o [16]byte) {
	apart := apart(bits)
	for i := range o {
		quad, of := i/4, i%4
		o[i] = byte(quad/apart*4*apart + quad%apart + of*apart)
	}
	return o
}
