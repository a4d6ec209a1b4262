package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"lector/engine/weights"
)

func TestHalf(t *testing.T) {
	for _, test := range []struct {
		v    float32
		want uint16
	}{
		{0, 0}, {1, 0x3c00}, {-2, 0xc000}, {65504, 0x7bff}, {65536, 0x7c00}, {float32(math.Inf(-1)), 0xfc00},
		{0x1p-24, 1}, {0x1p-14, 0x400}, {0x1.ff8p-15, 0x3ff}, {0x1.ffcp-15, 0x400}, {1 + 0x1p-11, 0x3c00}, {1 + 3*0x1p-11, 0x3c02}, {float32(1.0 / 3), 0x3555},
	} {
		if got := half(test.v); got != test.want {
			t.Errorf("half(%v) is %#04x, want %#04x", test.v, got, test.want)
		}
	}
}

// The value of the largest size becomes code 0, so -8 and its opposite 15 at most; 0 is code 8.
func TestBlock(t *testing.T) {
	values := make([]float32, block)
	values[0], values[1], values[16], values[31] = 4, -4, 2, -0.5
	got := appendBlock(nil, values)
	want := append([]byte{0x00, 0xb8}, bytes.Repeat([]byte{0x88}, 16)...) // d = -0.5
	want[2] = 0x40                                                        // 4: code 0, 2: code 4
	want[3] = 0x8f                                                        // -4: 16, capped
	want[17] = 0x98                                                       // -0.5: code 9
	if !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	if zeros := appendBlock(nil, make([]float32, block)); len(zeros) != blockBytes || zeros[2] != 0x88 {
		t.Errorf("zeros are % x", zeros)
	}
}

// Tensors of a written file lie back to back on aligned offsets, and fill it.
func TestWrite(t *testing.T) {
	c, err := weights.Open("../../fixtures/tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := describe(c, q40)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.write(&b); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	if string(data[:4]) != "GGUF" || binary.LittleEndian.Uint64(data[8:]) != uint64(len(f.tensors)) || binary.LittleEndian.Uint64(data[16:]) != uint64(f.entries) {
		t.Errorf("the file begins % x", data[:24])
	}
	size := 0
	var names []string
	for _, x := range f.tensors {
		size += aligned(x.bytes())
		names = append(names, x.name)
	}
	if rest := len(data) - size; rest <= len(f.meta) || rest%alignment != 0 {
		t.Errorf("%d bytes are left for a head of more than %d", rest, len(f.meta))
	}
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) {
		t.Error("two tensors have one name")
	}
	at := slices.Index(names, "blk.3.attn_k.weight")
	if at < 0 || !slices.Equal(f.tensors[at].dims, []int{128, 64}) || f.tensors[at].kind != q40 {
		t.Errorf("keys of layer 3: %+v", f.tensors[max(0, at)])
	}
}

// llama.cpp's value head j goes with key head j mod Hk; tiny has two key heads and four value heads.
func TestHeadOrder(t *testing.T) {
	c, err := weights.Open("../../fixtures/tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := describe(c, f32)
	if err != nil {
		t.Fatal(err)
	}
	bias, err := c.Vector(trunk+"layers.0.linear_attn.dt_bias", 4)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(f.tensors, func(x tensor) bool { return x.name == "blk.0.ssm_dt.bias" })
	if got, want := f.tensors[at].row(0), []float32{bias[0], bias[2], bias[1], bias[3]}; !slices.Equal(got, want) {
		t.Errorf("biases %v, want %v", got, want)
	}
}
