package qwen4exp

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"

	"lector/engine"
)

// lanes are numbers of one format side by side in a word: the bits of their exponents.
type lanes uint64

const (
	lanes32  lanes = 0x7f800000_7f800000   // float32
	lanes16  lanes = 0x7c00_7c00_7c00_7c00 // float16
	lanesB16 lanes = 0x7f80_7f80_7f80_7f80 // bfloat16
	signs32  lanes = 0x80000000_80000000   // of float32
	signs16  lanes = 0x8000_8000_8000_8000 // of both halves
)

// signs are the bits above the exponents.
func (l lanes) signs() uint64 {
	if l == lanes32 {
		return uint64(signs32)
	}
	return uint64(signs16)
}

// finite says whether all numbers are finite, which states are read for as fast as memory allows: an exponent of ones
// alone, with its lowest bit added, carries into the place of the sign, and no other does. A rest of less than a word,
// which no region has, is looked at padded with zeros.
func finite(data []byte, l lanes) bool {
	exponents, signs := uint64(l), l.signs()
	lowest := exponents &^ (exponents << 1)
	carried := uint64(0)
	for ; len(data) >= 32; data = data[32:] {
		a, b := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
		c, d := binary.LittleEndian.Uint64(data[16:]), binary.LittleEndian.Uint64(data[24:])
		carried |= ((a & exponents) + lowest) | ((b & exponents) + lowest) | ((c & exponents) + lowest) | ((d & exponents) + lowest)
	}
	for len(data) > 0 {
		var word [8]byte
		data = data[copy(word[:], data):]
		carried |= (binary.LittleEndian.Uint64(word[:]) & exponents) + lowest
	}
	return carried&signs == 0
}

// lanesOf says how a region's numbers lie in words; not all are such numbers.
func lanesOf(dtype string) (l lanes, ok bool) {
	switch dtype {
	case "f32":
		return lanes32, true
	case "f16":
		return lanes16, true
	case "bf16":
		return lanesB16, true
	}
	return 0, false
}

// finiteParts says of every region whether it holds numbers that are all finite. Cores take regions by turns.
func finiteParts(parts []engine.Region) []bool {
	sound := make([]bool, len(parts))
	var next atomic.Int64
	var cores sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		cores.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(parts); i = int(next.Add(1)) - 1 {
				l, ok := lanesOf(parts[i].DType)
				sound[i] = ok && finite(parts[i].Data, l)
			}
		})
	}
	cores.Wait()
	return sound
}
