package qwen4exp

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The fast look at words says what a look at every number says, wherever the one that is not finite stands.
func TestFinite(t *testing.T) {
	for name, c := range map[string]struct {
		wide lanes
		size int
		bad  func(bits uint32) bool
	}{
		"f32": {lanes32, 4, func(b uint32) bool { f := float64(math.Float32frombits(b)); return math.IsNaN(f) || math.IsInf(f, 0) }},
		"f16": {lanes16, 2, func(b uint32) bool { return b&0x7c00 == 0x7c00 }},
		"bf16": {lanesB16, 2, func(b uint32) bool {
			f := float64(math.Float32frombits(b << 16))
			return math.IsNaN(f) || math.IsInf(f, 0)
		}},
	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			edge := rapid.SampledFrom([]uint32{0, 1, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffffffff, 0x7bff, 0x7c00, 0xfc00, 0x7f7f, 0x7f80, 0xff80, 0x8000})
			numbers := rapid.SliceOfN(rapid.OneOf(rapid.Uint32(), edge), 0, 40).Draw(t, "bits")
			var data []byte
			want := true
			for _, b := range numbers {
				if c.size == 2 {
					b &= 0xffff
					data = binary.LittleEndian.AppendUint16(data, uint16(b))
				} else {
					data = binary.LittleEndian.AppendUint32(data, b)
				}
				want = want && !c.bad(b)
			}
			if finite(data, c.wide) != want {
				t.Fatalf("finite(%x) = %v", data, !want)
			}
		}))
	}
}
