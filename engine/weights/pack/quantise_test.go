package pack_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lector/engine/weights"
	"lector/engine/weights/pack"
)

// tiny and tiny-mlx-folded are the same drawn weights; the reference quantised the latter (make_fixtures.py). Every
// code, scale and bias is the same: no rounding case differs, ties of the codes included.
func TestFourBitsAreTheReferences(t *testing.T) {
	want := map[string]weights.Tensor{}
	parts(t, open(t, filepath.Join(fixtures, "tiny-mlx-folded")), func(key string, tensor weights.Tensor) { want[key] = tensor })
	quantised, plain := 0, 0
	c := open(t, packed(t, filepath.Join(fixtures, "tiny"), bits(4)))
	parts(t, c, func(key string, tensor weights.Tensor) {
		switch {
		case tensor.Quant != nil:
			quantised++
		case len(tensor.Shape) == 2:
			plain++
		default:
			return // norms are folded there, convolutions turned
		}
		if diff := differ(want[key], tensor); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	})
	n := 0
	for _, tensor := range want {
		if tensor.Quant != nil {
			n++
		}
	}
	if quantised != n || n < 300 || plain < 10 {
		t.Errorf("%d quantised and %d plain matrices, the reference has %d quantised", quantised, plain, n)
	}
}

// bf16 decodes by definition.
func bf16(data []byte) float32 {
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(data)) << 16)
}

// Every precision stays within the rule's own error, plus what rounding scale and bias to bf16 costs.
func TestPrecisions(t *testing.T) {
	for _, b := range []int{2, 3, 4, 6, 8} {
		want := map[string]weights.Tensor{}
		source := filepath.Join(fixtures, "odd")
		parts(t, open(t, source), func(key string, tensor weights.Tensor) { want[key] = tensor })
		dir := packed(t, source, pack.Settings{Bits: b, ExpertsBits: b, Group: 64})
		n := 0
		parts(t, open(t, dir), func(key string, tensor weights.Tensor) {
			q := tensor.Quant
			if q == nil {
				if diff := differ(want[key], tensor); diff != "" {
					t.Errorf("%d bits: %s: %s", b, key, diff)
				}
				return
			}
			if q.Bits != b || tensor.Shape[0] != want[key].Shape[0] {
				t.Fatalf("%s: %d bits, %v", key, q.Bits, tensor.Shape)
			}
			n++
			withinBound(t, key, tensor, want[key])
		})
		if n < 100 {
			t.Errorf("%d bits: %d matrices were quantised", b, n)
		}
	}
}

func withinBound(t *testing.T, key string, got, source weights.Tensor) {
	t.Helper()
	q := got.Quant
	groups := got.Shape[1] / q.Group
	for r := range got.Shape[0] {
		a, b := got.AppendRow(nil, r), source.AppendRow(nil, r)
		for g := range groups {
			at := 2 * (r*groups + g)
			was, is := b[g*q.Group:(g+1)*q.Group], a[g*q.Group:(g+1)*q.Group]
			bound := ruleBound(was, bf16(q.Scales[at:]), bf16(q.Biases[at:]), q.Bits)
			for i := range is {
				if d := math.Abs(float64(is[i] - was[i])); d > bound {
					t.Fatalf("%s: row %d, value %d: %v became %v, more than %v off", key, r, g*q.Group+i, was[i], is[i], bound)
				}
			}
		}
	}
}

// ruleBound is half a step, or what the codes do not reach since the scale was fitted to the edge; bf16 keeps 8 bits
// of scale and bias.
func ruleBound(group []float32, scale, bias float32, bits int) float64 {
	step := math.Abs(float64(scale))
	codes := step * float64(int(1)<<bits-1)
	spread := float64(slices.Max(group) - slices.Min(group))
	return max(0.5*step, spread-codes) + (codes+math.Abs(float64(bias)))/256 + 1e-6
}

// rule is the quantiser as the format's description has it, in float64 where that is exact and one value at a time.
func rule(group []float32, bits int) (codes []uint32, scale, bias float32) {
	lo, hi := group[0], group[0]
	for _, v := range group {
		lo, hi = min(lo, v), max(hi, v)
	}
	top := float32(int(1)<<bits - 1)
	scale = max((hi-lo)/top, 1e-7)
	edge := hi
	if math.Abs(float64(lo)) > math.Abs(float64(hi)) {
		edge = lo
	} else {
		scale = -scale
	}
	if q0 := float32(math.RoundToEven(float64(edge / scale))); q0 != 0 {
		scale, bias = edge/q0, edge
	}
	for _, v := range group {
		code := math.RoundToEven(float64((v - bias) / scale))
		codes = append(codes, uint32(max(0, min(code, float64(top)))))
	}
	return codes, scale, bias
}

func TestRowsFollowTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom([]int{2, 3, 4, 6, 8}).Draw(t, "bits")
		group := rapid.SampledFrom([]int{32, 64, 128}).Draw(t, "group")
		n := group * rapid.IntRange(1, 3).Draw(t, "groups")
		values := make([]float32, n)
		small := rapid.SliceOfN(rapid.IntRange(-40, 40), n, n).Draw(t, "values") // few values: ties and equal groups
		for i := range values {
			values[i] = float32(small[i]) / 16
		}
		m := weights.PackedMatrix{DType: weights.U32, Bits: b, Group: group, Side: weights.F32}
		width, side := m.RowBytes(n)
		codes, scales, biases := make([]byte, width), make([]byte, side), make([]byte, side)
		if err := pack.QuantiseRow(values, m, codes, scales, biases); err != nil {
			t.Fatal(err)
		}
		stream := 0
		for g := 0; g < n; g += group {
			want, scale, bias := rule(values[g:g+group], b)
			gotScale := math.Float32frombits(binary.LittleEndian.Uint32(scales[4*g/group:]))
			gotBias := math.Float32frombits(binary.LittleEndian.Uint32(biases[4*g/group:]))
			if gotScale != scale || gotBias != bias {
				t.Fatalf("group %d: scale %v bias %v, want %v %v", g, gotScale, gotBias, scale, bias)
			}
			for i := range want {
				code := uint32(0)
				for k := range b {
					code |= uint32(codes[stream/8]>>(stream%8)&1) << k
					stream++
				}
				if code != want[i] {
					t.Fatalf("value %d: code %d, want %d", g+i, code, want[i])
				}
			}
		}
	})
}

func TestWhatCannotBeQuantised(t *testing.T) {
	m := weights.PackedMatrix{DType: weights.U32, Bits: 4, Group: 32, Side: weights.BF16}
	for want, value := range map[string]float32{"NaN cannot": float32(math.NaN()), "+Inf cannot": float32(math.Inf(1)), "too far apart": math.MaxFloat32} {
		values := make([]float32, 64)
		values[40], values[41] = value, -value
		err := pack.QuantiseRow(values, m, make([]byte, 32), make([]byte, 4), make([]byte, 4))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "value 32") {
			t.Errorf("%v: %v", value, err)
		}
	}
}

// A half is the nearest of all halves, the even one of two.
func TestHalves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := float32(rapid.Float64Range(-70000, 70000).Draw(t, "v") * math.Pow(2, float64(-rapid.IntRange(0, 40).Draw(t, "shift"))))
		got := pack.ToHalf(v)
		value := func(h uint16) float64 {
			exp, frac := int(h>>10&31), float64(h&1023)
			x := math.Ldexp(1024+frac, exp-25)
			if exp == 0 {
				x = math.Ldexp(frac, -24)
			}
			return x * (1 - 2*float64(h>>15))
		}
		if math.Abs(float64(v)) >= 65520 {
			if got&0x7fff != 0x7c00 {
				t.Fatalf("%v became %#x", v, got)
			}
			return
		}
		d := math.Abs(value(got) - float64(v))
		for _, near := range []uint16{got - 1, got + 1} {
			if near&0x7fff < 0x7c00 && near>>15 == got>>15 {
				if other := math.Abs(value(near) - float64(v)); other < d || other == d && got&1 == 1 {
					t.Fatalf("%v became %v, %v is nearer", v, value(got), value(near))
				}
			}
		}
	})
}

// What the settings say about a tensor is what the store holds.
func TestWhatStays(t *testing.T) {
	c := open(t, packed(t, filepath.Join(fixtures, "tiny"), pack.Settings{Bits: 8, ExpertsBits: 3, Group: 128}))
	parts(t, c, func(key string, tensor weights.Tensor) {
		want := 8
		last := tensor.Shape[len(tensor.Shape)-1]
		switch {
		case strings.Contains(key, " expert "):
			want = 3
			if last%128 != 0 { // the inner width of 64
				want = 0
			}
		case strings.HasPrefix(key, "table"): // rows of 32 fall back to groups of 32
			if tensor.Quant == nil || tensor.Quant.Group != 32 {
				t.Errorf("%s: %+v", key, tensor.Quant)
			}
		case len(tensor.Shape) != 2, strings.HasSuffix(key, ".mlp.gate.weight"), strings.Contains(key, "shared_expert_gate"), last%128 != 0:
			want = 0
		}
		got := 0
		if tensor.Quant != nil {
			got = tensor.Quant.Bits
		}
		if got != want {
			t.Errorf("%s %v: %d bits, want %d", key, tensor.Shape, got, want)
		}
	})
}

// A store that was quantised has the digest of a checkpoint that holds the same tensors: its identity is what it
// holds, not how it came about.
func TestQuantisedDigest(t *testing.T) {
	a := packed(t, filepath.Join(fixtures, "tiny"), bits(4))
	b := packed(t, filepath.Join(fixtures, "tiny"), bits(4))
	c := packed(t, filepath.Join(fixtures, "tiny"), bits(3))
	if digest(t, open(t, a)) != digest(t, open(t, b)) || digest(t, open(t, a)) == digest(t, open(t, c)) {
		t.Error("equal stores have other digests, or other stores equal ones")
	}
	if !bytes.Equal(readFile(t, a, "pack.json"), readFile(t, b, "pack.json")) {
		t.Error("two runs wrote other manifests")
	}
}
