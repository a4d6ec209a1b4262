package weights_test

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"lector/engine/weights"
)

// packRow writes codes as one little-endian bit stream, through a number as long as the row.
func packRow(codes []uint32, bits int) []byte {
	stream := new(big.Int)
	for i, code := range codes {
		stream.Or(stream, new(big.Int).Lsh(big.NewInt(int64(code)), uint(bits*i)))
	}
	row := make([]byte, len(codes)*bits/8)
	stream.FillBytes(row)
	for i, j := 0, len(row)-1; i < j; i, j = i+1, j-1 {
		row[i], row[j] = row[j], row[i]
	}
	return row
}

func bf16(values []float32) []byte {
	var data []byte
	for _, v := range values {
		data = append(data, byte(math.Float32bits(v)>>16), byte(math.Float32bits(v)>>24))
	}
	return data
}

// quantised makes a random packed [out, in] and its values. Scales and biases are short fractions, so that
// the values are exact however they are computed.
func quantised(out, in, bits, group int) (weight, scales, biases entry, values []float32) {
	r := rand.New(rand.NewPCG(uint64(bits), uint64(group)))
	var packed []byte
	var ss, bb []float32
	for range out {
		codes := make([]uint32, in)
		for i := range codes {
			if i%group == 0 {
				ss = append(ss, float32(r.IntN(127)-63)/256)
				bb = append(bb, float32(r.IntN(127)-63)/16)
			}
			codes[i] = r.Uint32N(1 << bits)
			values = append(values, ss[len(ss)-1]*float32(codes[i])+bb[len(bb)-1])
		}
		packed = append(packed, packRow(codes, bits)...)
	}
	shape := []int{out, in / group}
	return entry{"U32", []int{out, in * bits / 32}, packed}, entry{"BF16", shape, bf16(ss)}, entry{"BF16", shape, bf16(bb)}, values
}

func TestAffineBits(t *testing.T) {
	for _, bits := range []int{2, 3, 4, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			t.Run(fmt.Sprintf("%d bits, groups of %d", bits, group), func(t *testing.T) {
				config, f := fixture(t, "tiny-mlx-plain")
				name := mlx + "embed_tokens"
				var values []float32
				f[name+".weight"], f[name+".scales"], f[name+".biases"], values = quantised(512, 128, bits, group)
				config = edit(t, config, func(top, _ map[string]any) {
					top["quantization_config"] = top["quantization"]
					delete(top, "quantization")
					top["quantization_config"].(map[string]any)[name] = map[string]any{"bits": bits, "group_size": group}
				})
				m, err := open(t, config, f).Matrix("model.language_model.embed_tokens", 512, 128)
				if err != nil {
					t.Fatal(err)
				}
				if m.DType != weights.U32 || m.Quant.Bits != bits || m.Quant.Group != group || m.Quant.Side != weights.BF16 || m.Stored != name+".weight" {
					t.Errorf("%+v", m.Quant)
				}
				for _, row := range []int{0, 1, 511} {
					if diff := cmp.Diff(values[row*128:(row+1)*128], m.AppendRow(nil, row)); diff != "" {
						t.Errorf("row %d:\n%s", row, diff)
					}
				}
			})
		}
	}
}

// A word-aligned packing, as the format's description has it for 2, 4 and 8 bits, is the same bit stream.
func TestWordsAreTheStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "bits")
		codes := rapid.SliceOfN(rapid.Uint32Max(1<<bits-1), 32, 32).Draw(t, "codes")
		var words []byte
		for per := 32 / bits; len(codes) > 0; codes = codes[per:] {
			var word uint32
			for j, code := range codes[:per] {
				word |= code << (bits * j)
			}
			words = append(words, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
		}
		scale := bf16([]float32{1})
		m := weights.Tensor{DType: weights.U32, Shape: []int{1, 32}, Data: words,
			Quant: &weights.Quant{Bits: bits, Group: 32, Side: weights.BF16, Scales: scale, Biases: bf16([]float32{0})}}
		var back []uint32
		for _, v := range m.AppendRow(nil, 0) {
			back = append(back, uint32(v))
		}
		if !bytes.Equal(packRow(back, bits), words) {
			t.Fatalf("%v from %x", back, words)
		}
	})
}

// The converted fixture dequantises to its bf16 original within half a step of 4 bits.
func TestAffineFixtureIsNearItsSource(t *testing.T) {
	hf, packed := openDir(t, fixtures+"/tiny"), openDir(t, fixtures+"/tiny-mlx-folded")
	name := layer1 + ".ple.key_proj"
	a, err := hf.Matrix(name, 512, 128)
	if err != nil {
		t.Fatal(err)
	}
	b, err := packed.Matrix(name, 512, 128)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for row := range 512 {
		exact, near := a.AppendRow(nil, row), b.AppendRow(nil, row)
		for i := range exact {
			worst = max(worst, math.Abs(float64(exact[i]-near[i])))
		}
	}
	if worst == 0 || worst > 0.05 { // weights of sigma 0.1 span about 0.6 in a group: a step is 0.04
		t.Errorf("worst difference %v", worst)
	}
}

func TestHalf(t *testing.T) {
	for bits, want := range map[uint16]float32{
		0x0000: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: 0x1p-24, 0x03ff: 1023 * 0x1p-24, 0x8400: -0x1p-14,
		0x3555: 0.33325195, 0x7c00: float32(math.Inf(1)), 0xfc00: float32(math.Inf(-1)),
	} {
		if got := weights.Half(bits); got != want {
			t.Errorf("%04x is %v, want %v", bits, got, want)
		}
	}
	if got := weights.Half(0x8000); got != 0 || !math.Signbit(float64(got)) {
		t.Errorf("minus zero is %v", got)
	}
	if got := weights.Half(0x7e00); got == got {
		t.Errorf("not a number is %v", got)
	}
}
