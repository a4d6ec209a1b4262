package pack_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"lector/engine/weights"
	"lector/engine/weights/pack"
)

const fixtures = "../../../tests/fixtures"

// sources are all checkpoints that come with the repository.
func sources() map[string]string {
	m := map[string]string{"nano": "../../nano"}
	for _, name := range []string{"tiny", "odd", "tiny-mlx-folded", "tiny-mlx-plain"} {
		m[name] = filepath.Join(fixtures, name)
	}
	return m
}

func open(t testing.TB, dir string) *weights.Checkpoint {
	t.Helper()
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func keep() pack.Settings { return pack.Settings{Group: 64} }

func bits(n int) pack.Settings { return pack.Settings{Bits: n, ExpertsBits: n, Group: 64} }

// packed packs a folder into a new one.
func packed(t testing.TB, source string, s pack.Settings) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	report, err := pack.Run(context.Background(), open(t, source), dir, pack.Options{Settings: s})
	if err != nil {
		t.Fatal(err)
	}
	if report.Reused != 0 || report.Written != report.Bytes || report.Bytes == 0 {
		t.Fatalf("report %+v", report)
	}
	return dir
}

func digest(t testing.TB, c *weights.Checkpoint) string {
	t.Helper()
	d, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// differ says where two tensors are not the same to the byte; names of experts may differ in spelling.
func differ(a, b weights.Tensor) string {
	if fmt.Sprint(a.DType, a.Shape) != fmt.Sprint(b.DType, b.Shape) || (a.Quant == nil) != (b.Quant == nil) {
		return fmt.Sprintf("%s is %s %v, %s is %s %v", a.Name, a.DType, a.Shape, b.Name, b.DType, b.Shape)
	}
	if !bytes.Equal(a.Data, b.Data) {
		return a.Name + ": data"
	}
	if q, p := a.Quant, b.Quant; q != nil {
		if q.Bits != p.Bits || q.Group != p.Group || q.Side != p.Side || !bytes.Equal(q.Scales, p.Scales) || !bytes.Equal(q.Biases, p.Biases) {
			return a.Name + ": scales or biases"
		}
	}
	return ""
}

// parts visits the tensors of a checkpoint by what they are for.
func parts(t testing.TB, c *weights.Checkpoint, visit func(key string, tensor weights.Tensor)) {
	t.Helper()
	cfg := c.Config()
	for _, tensor := range c.Tensors() {
		if !bytes.Contains([]byte(tensor.Name), []byte(".mlp.experts.")) && !bytes.Contains([]byte(tensor.Name), []byte("switch_mlp")) && !bytes.Contains([]byte(tensor.Name), []byte("ngram_embedding")) {
			visit(tensor.Name, tensor)
		}
	}
	names := []string{}
	for i := range cfg.Layers {
		names = append(names, fmt.Sprintf("model.language_model.layers.%d", i))
	}
	if c.HasMTP() {
		names = append(names, "mtp.layers.0")
	}
	for _, name := range names {
		experts, err := c.Experts(name, cfg.Experts, cfg.ExpertInner, cfg.Hidden)
		if err != nil {
			t.Fatal(err)
		}
		for e := range cfg.Experts {
			gate, up, down := experts.At(e)
			for j, tensor := range []weights.Tensor{gate, up, down} {
				visit(fmt.Sprintf("%s expert %d part %d", name, e, j), tensor)
			}
		}
	}
	for l, i := range cfg.PLELayers {
		hash, err := c.Ngram(names[i], l)
		if err != nil {
			t.Fatal(err)
		}
		shards, err := c.NgramTable(names[i], cfg.NgramShards, int(hash.Rows), cfg.NgramDim())
		if err != nil {
			t.Fatal(err)
		}
		for s, tensor := range shards {
			visit(fmt.Sprintf("table %d shard %d", l, s), tensor)
		}
	}
}

func TestKeepIsTheSource(t *testing.T) {
	for name, source := range sources() {
		t.Run(name, func(t *testing.T) {
			dir := packed(t, source, keep())
			a, b := open(t, source), open(t, dir)
			if digest(t, a) != digest(t, b) {
				t.Error("the digest is not the source's")
			}
			if a.Config().Digest() != b.Config().Digest() || fmt.Sprint(a.Config()) != fmt.Sprint(b.Config()) {
				t.Error("the config is not the source's")
			}
			want := map[string]weights.Tensor{}
			parts(t, a, func(key string, tensor weights.Tensor) { want[key] = tensor })
			n := 0
			parts(t, b, func(key string, tensor weights.Tensor) {
				n++
				if diff := differ(want[key], tensor); diff != "" {
					t.Errorf("%s: %s", key, diff)
				}
			})
			if n != len(want) || n < 50 {
				t.Errorf("%d parts, the source has %d", n, len(want))
			}
			if checked, err := pack.Verify(context.Background(), dir, weights.Options{}, nil); err != nil || !checked.Packed || checked.Sections < n/4 {
				t.Errorf("%+v, %v", checked, err)
			}
			if list, _ := os.ReadDir(dir); len(list) < 5 || len(list) > 7 {
				t.Errorf("the folder holds %v", list)
			}
		})
	}
}
