package weights_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/weights"
)

// one by one: the experts of tiny, whose inner width is 64 and hidden width 128, under names of their own.
func perExpert(f file) {
	for name, e := range f {
		base, ok := strings.CutSuffix(name, "experts.gate_up_proj")
		if !ok {
			continue
		}
		down := f[base+"experts.down_proj"]
		half := 64 * 128 * 2
		for i := range 8 {
			both := e.Data[2*i*half : 2*(i+1)*half]
			prefix := fmt.Sprintf("%sexperts.%d.", base, i)
			f[prefix+"gate_proj.weight"] = entry{"BF16", []int{64, 128}, both[:half]}
			f[prefix+"up_proj.weight"] = entry{"BF16", []int{64, 128}, both[half:]}
			f[prefix+"down_proj.weight"] = entry{"BF16", []int{128, 64}, down.Data[i*half : (i+1)*half]}
		}
		delete(f, name)
		delete(f, base+"experts.down_proj")
	}
}

func TestExpertsFusedAndOneByOne(t *testing.T) {
	config, f := fixture(t, "tiny")
	fused := open(t, config, f)
	perExpert(f)
	single := open(t, config, f)
	if got := conventions(single)["experts"]; got != "per expert" {
		t.Errorf("stored %s", got)
	}
	for _, layer := range []string{layer0, "model.language_model.layers.7", "mtp.layers.0"} {
		a, err := fused.Experts(layer, 8, 64, 128)
		if err != nil {
			t.Fatal(err)
		}
		b, err := single.Experts(layer, 8, 64, 128)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			ga, ua, da := a.At(i)
			gb, ub, db := b.At(i)
			for j, pair := range [][2]weights.Tensor{{ga, gb}, {ua, ub}, {da, db}} {
				if pair[0].Name != pair[1].Name || !bytes.Equal(pair[0].Data, pair[1].Data) || fmt.Sprint(pair[0].Shape) != fmt.Sprint(pair[1].Shape) {
					t.Errorf("expert %d of %s, part %d: %s %v and %s %v", i, layer, j, pair[0].Name, pair[0].Shape, pair[1].Name, pair[1].Shape)
				}
			}
		}
	}
	delete(f, layer0+".mlp.experts.5.up_proj.weight")
	if _, err := weights.OpenBytes("test", config, f.encode()); err == nil || !strings.Contains(err.Error(), "layers.0.mlp.experts.5.up_proj.weight") {
		t.Errorf("a missing expert: %v", err)
	}
}

func TestExpertsOfMLX(t *testing.T) {
	c := openDir(t, filepath.Join(fixtures, "tiny-mlx-folded"))
	_, f := fixture(t, "tiny-mlx-folded")
	e, err := c.Experts("mtp.layers.0", 8, 64, 128)
	if err != nil {
		t.Fatal(err)
	}
	if e.N != 8 || e.Inner != 64 || e.Hidden != 128 {
		t.Errorf("%d experts, %d inner, %d hidden", e.N, e.Inner, e.Hidden)
	}
	name := "mtp.layers.0.mlp.switch_mlp.down_proj"
	_, _, down := e.At(5)
	if down.Quant == nil || down.Quant.Bits != 4 || down.Quant.Group != 64 || fmt.Sprint(down.Shape) != "[128 64]" {
		t.Fatalf("%v %+v", down.Shape, down.Quant)
	}
	if want := f[name+".weight"].Data[5*128*32 : 6*128*32]; !bytes.Equal(down.Data, want) {
		t.Error("codes of another expert")
	}
	if want := f[name+".scales"].Data[5*128*2 : 6*128*2]; !bytes.Equal(down.Quant.Scales, want) {
		t.Error("scales of another expert")
	}
	if want := f[name+".biases"].Data[5*128*2 : 6*128*2]; !bytes.Equal(down.Quant.Biases, want) {
		t.Error("biases of another expert")
	}
	if _, err := c.Experts("mtp.layers.0", 8, 32, 128); err == nil {
		t.Error("another inner width was accepted")
	}
	if n := testing.AllocsPerRun(10, func() { e.At(3) }); n != 0 {
		t.Errorf("At allocates %v times", n)
	}
}
