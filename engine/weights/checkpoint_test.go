package weights_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lector/engine/nano"
	"lector/engine/weights"
)

// norm classes whose vectors are stored as w or 1+w.
var trunkNorms = []string{"hc_norm", "k_layernorm", "k_norm", "norm_conv", "norm_key", "norm_query", "q_layernorm", "q_norm"}

func conventions(c *weights.Checkpoint) map[string]string {
	m := map[string]string{}
	for _, f := range c.Findings() {
		word, _, _ := strings.Cut(f.Convention, ":")
		if m[f.Class] != "" {
			word = m[f.Class] + "; " + word
		}
		m[f.Class] = word
	}
	return m
}

func TestFindings(t *testing.T) {
	hf := map[string]string{
		"names": "released", "matrices": "BF16", "experts": "fused", "mtp": "present",
		"conv linear_attn.conv1d": "[C, 1, K]", "conv ple.conv1d": "[C, 1, K]",
		"norm linear_attn.norm": "plain", "norm pre_fc_norm_embedding": "zero-centred", "norm pre_fc_norm_hidden": "zero-centred",
		"n-gram table": "4 shards named shard_N", "n-gram constants": "stored, equal to the formula",
	}
	with := func(base map[string]string, norms string, changes map[string]string) map[string]string {
		m := map[string]string{}
		for k, v := range base {
			m[k] = v
		}
		for _, class := range trunkNorms {
			m["norm "+class] = norms
		}
		for k, v := range changes {
			if m[k] = v; v == "" {
				delete(m, k)
			}
		}
		return m
	}
	for name, want := range map[string]map[string]string{
		"tiny": with(hf, "zero-centred", nil),
		"odd":  with(hf, "zero-centred", map[string]string{"n-gram table": "2 shards named shard_N"}),
		"tiny-mlx-folded": with(hf, "folded", map[string]string{
			"names": "mlx", "experts": "switch_mlp", "conv linear_attn.conv1d": "[C, K, 1]",
			"matrices": "BF16; affine 4-bit, groups of 32, BF16 scales (config.json's default group is 64); affine 4-bit, groups of 64, BF16 scales",
		}),
		"tiny-mlx-plain": with(hf, "zero-centred", map[string]string{
			"names": "mlx", "experts": "switch_mlp", "conv linear_attn.conv1d": "[C, K, 1]", "conv ple.conv1d": "[C, K, 1]",
			"matrices": "BF16; affine 4-bit, groups of 32, BF16 scales", "n-gram table": "4 shards named shards.N",
			"mtp": "", "norm pre_fc_norm_embedding": "", "norm pre_fc_norm_hidden": "",
		}),
	} {
		t.Run(name, func(t *testing.T) {
			c := openDir(t, filepath.Join(fixtures, name))
			if diff := cmp.Diff(want, conventions(c)); diff != "" {
				t.Errorf("conventions (-want +got):\n%s", diff)
			}
			if c.Name() != name || c.HasMTP() != (want["mtp"] == "present") {
				t.Errorf("name %q, head %v", c.Name(), c.HasMTP())
			}
		})
	}
}

func TestNano(t *testing.T) {
	c, err := nano.Open()
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != "nano" || c.Dir() != "" || !c.HasMTP() || !slices.Equal(c.Config().Stops, []int32{4093}) {
		t.Errorf("name %q, dir %q, head %v, stops %v", c.Name(), c.Dir(), c.HasMTP(), c.Config().Stops)
	}
	got := conventions(c)
	for _, class := range trunkNorms {
		if got["norm "+class] != "folded" {
			t.Errorf("norm %s: %s", class, got["norm "+class])
		}
	}
	if got["n-gram constants"] != "the formula's, since those stored went through float32" {
		t.Errorf("n-gram constants: %s", got["n-gram constants"])
	}
	h, err := c.Ngram(layer1, 0)
	if err != nil || h.Multipliers[0] != 2043359076095531 {
		t.Errorf("hash %v, %v", h, err)
	}
	if !json.Valid(nano.Tokenizer()) {
		t.Error("the tokenizer is no JSON")
	}
}

// The digest's expectations were computed by another program from its definition.
func TestDigest(t *testing.T) {
	for name, want := range map[string]string{
		"tiny":            "6b5db1dbab2a82629f6e344cec36a7ef2713054b2f575ab72f3f211050d29faa",
		"tiny-mlx-folded": "4392b478b7c68932682521c64fe68b06bf3874e78eb8c8461f8c7a087beeec49",
	} {
		got, err := openDir(t, filepath.Join(fixtures, name)).Digest()
		if err != nil || got != want {
			t.Errorf("digest of %s: %s, %v", name, got, err)
		}
	}
}

func TestDigestSeesEveryUsedByteAndNoOther(t *testing.T) {
	config, f := fixture(t, "tiny")
	digest := func(f file) string {
		d, err := open(t, config, f).Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := digest(f)
	f["model.visual.blocks.0.attn.qkv.weight"] = constant(4, 1)
	if digest(f) != want {
		t.Error("the vision tower changes the digest")
	}
	for _, name := range []string{"lm_head.weight", layer0 + ".linear_attn.A_log", "mtp.layers.0.mlp.experts.down_proj", layer1 + ".ple.ple_embedding.ngram_embedding.shard_3.weight"} {
		e := f[name]
		changed := bytes.Clone(e.Data)
		changed[len(changed)-2] ^= 1
		f[name] = entry{e.DType, e.Shape, changed}
		if digest(f) == want {
			t.Errorf("a changed bit of %s leaves the digest as it was", name)
		}
		f[name] = e
	}
}

func TestShardsAndNamesDoNotMatter(t *testing.T) {
	config, f := fixture(t, "tiny")
	want, _ := open(t, config, f).Digest()
	dir := write(t, config, f, "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors")
	c := openDir(t, dir)
	if got, err := c.Digest(); err != nil || got != want {
		t.Errorf("digest of three shards %s, of one file %s, %v", got, want, err)
	}
	if c.Dir() != dir {
		t.Errorf("dir %q", c.Dir())
	}
	text := file{}
	for name, e := range f { // the spelling of text-only writers
		text[strings.Replace(name, "model.language_model.", "model.", 1)] = e
	}
	if got, _ := open(t, config, text, weights.Options{}).Digest(); got != want {
		t.Error("a text-only writer's names change the digest")
	}
}

func TestMatrixIsAView(t *testing.T) {
	c := openDir(t, filepath.Join(fixtures, "tiny"))
	_, f := fixture(t, "tiny")
	name := layer0 + ".linear_attn.in_proj_qkv"
	m, err := c.Matrix(name, 256, 128)
	if err != nil {
		t.Fatal(err)
	}
	stored := f[name+".weight"]
	if m.Name != name+".weight" || m.Stored != m.Name || m.DType != weights.BF16 || !bytes.Equal(m.Data, stored.Data) || m.Bytes() != 256*128*2 {
		t.Errorf("%s %s %s, %d bytes", m.Name, m.Stored, m.DType, m.Bytes())
	}
	if diff := cmp.Diff(floats(stored.Data)[128*3:128*4], m.AppendRow(nil, 3)); diff != "" {
		t.Error(diff)
	}
	again, _ := c.Matrix(name, 256, 128)
	if &m.Data[0] != &again.Data[0] {
		t.Error("two reads gave two copies")
	}
	if _, err := c.Matrix(name, 256, 64); err == nil || !strings.Contains(err.Error(), "[256 128]") || !strings.Contains(err.Error(), "[256 64]") {
		t.Errorf("wrong shape: %v", err)
	}
	if _, err := c.Matrix(layer0+".nothing", 1, 1); err == nil {
		t.Error("a missing tensor was found")
	}
	if !c.Has(name) || !c.Has(name+".weight") || c.Has(layer0) {
		t.Error("Has")
	}
}

func TestVectors(t *testing.T) {
	_, f := fixture(t, "tiny")
	_, mlxFile := fixture(t, "tiny-mlx-folded")
	hf, folded := openDir(t, filepath.Join(fixtures, "tiny")), openDir(t, filepath.Join(fixtures, "tiny-mlx-folded"))
	check := func(what string, want []float32, add float32, got []float32, err error) {
		t.Helper()
		for i := range want {
			want[i] += add
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", what, err, diff)
		}
	}
	name := layer0 + ".attn_hyper_connection.hc_norm"
	got, err := hf.Norm(name, 512)
	check("zero-centred", floats(f[name+".weight"].Data), 1, got, err)
	got, err = folded.Norm(name, 512)
	check("folded", floats(mlxFile[mlx+"layers.0.attn_hyper_connection.hc_norm.weight"].Data), 0, got, err)
	got, err = folded.Norm("mtp.pre_fc_norm_hidden", 512)
	check("zero-centred in a folded file", floats(mlxFile["mtp.pre_fc_norm_hidden.weight"].Data), 1, got, err)
	got, err = hf.Norm(layer0+".linear_attn.norm", 32)
	check("plain", floats(f[layer0+".linear_attn.norm.weight"].Data), 0, got, err)
	got, err = hf.Vector(layer0+".linear_attn.A_log", 4)
	check("vector", floats(f[layer0+".linear_attn.A_log"].Data), 0, got, err)
	got, err = hf.Conv(layer0+".linear_attn.conv1d", 256, 4)
	check("conv [C,1,K]", floats(f[layer0+".linear_attn.conv1d.weight"].Data), 0, got, err)
	got, err = folded.Conv(layer0+".linear_attn.conv1d", 256, 4)
	check("conv [C,K,1]", floats(mlxFile[mlx+"layers.0.linear_attn.conv1d.weight"].Data), 0, got, err)
	if _, err := hf.Norm(layer0+".linear_attn.dt_bias", 4); err == nil {
		t.Error("dt_bias was read as a norm")
	}
}

func TestTensorsListsWhatIsUsed(t *testing.T) {
	c := openDir(t, filepath.Join(fixtures, "tiny-mlx-plain"))
	_, f := fixture(t, "tiny-mlx-plain")
	var total, want int64
	for _, tensor := range c.Tensors() {
		total += tensor.Bytes()
	}
	for _, e := range f {
		want += int64(len(e.Data))
	}
	if total != want {
		t.Errorf("the list has %d bytes, the file %d", total, want)
	}
	if !slices.IsSortedFunc(c.Tensors(), func(a, b weights.Tensor) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the list is not sorted")
	}
}

func TestTiedEmbeddings(t *testing.T) {
	config, f := fixture(t, "tiny")
	delete(f, "lm_head.weight")
	if _, err := weights.OpenBytes("test", config, f.encode()); err == nil || !strings.Contains(err.Error(), "lm_head.weight") {
		t.Errorf("no output head: %v", err)
	}
	c := open(t, edit(t, config, func(top, text map[string]any) { delete(text, "tie_word_embeddings"); top["tie_word_embeddings"] = true }), f)
	head, err := c.Matrix("lm_head", 512, 128)
	if err != nil || head.Name != "model.language_model.embed_tokens.weight" {
		t.Errorf("tied head %s, %v", head.Name, err)
	}
}

func TestHeadAbsent(t *testing.T) {
	config, f := fixture(t, "tiny")
	with := open(t, config, f)
	without := open(t, edit(t, config, func(_, text map[string]any) { text["mtp_num_hidden_layers"] = 0 }), f)
	if got := conventions(without)["ignored"]; without.HasMTP() || got != "unknown" {
		t.Errorf("a head that the config leaves out: %v, %q", without.HasMTP(), got)
	}
	for name := range f {
		if strings.HasPrefix(name, "mtp.") {
			delete(f, name)
		}
	}
	gone := open(t, config, f)
	if gone.HasMTP() || conventions(gone)["mtp"] != "absent" {
		t.Errorf("a head that the file leaves out: %v, %q", gone.HasMTP(), conventions(gone)["mtp"])
	}
	if gone.Config().Digest() != without.Config().Digest() || gone.Config().Digest() == with.Config().Digest() {
		t.Error("the config's digest does not follow the head")
	}
	a, _ := gone.Digest()
	if b, _ := without.Digest(); a != b {
		t.Error("an unused head changes the digest of the weights")
	}
	f["mtp.fc_hidden.weight"] = constant(1, 0)
	if _, err := weights.OpenBytes("test", config, f.encode()); err == nil || !strings.Contains(err.Error(), "mtp.pre_fc_norm_embedding") {
		t.Errorf("half a head: %v", err)
	}
}

func TestStopsComeFromGenerationConfig(t *testing.T) {
	config, f := fixture(t, "tiny")
	dir := write(t, config, f)
	if c := openDir(t, dir); !slices.Equal(c.Config().Stops, []int32{1}) {
		t.Errorf("stops %v", c.Config().Stops)
	}
	if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"eos_token_id": [7, 1, 7]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := openDir(t, dir)
	if !slices.Equal(c.Config().Stops, []int32{7, 1}) || c.Config().EOS != 1 {
		t.Errorf("stops %v, n-gram eos %d", c.Config().Stops, c.Config().EOS)
	}
}

func TestCloseTwice(t *testing.T) {
	c, err := weights.Open(filepath.Join(fixtures, "tiny"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
