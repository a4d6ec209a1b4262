package weights_test

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/weights"
)

// vectors replaces every norm of a class by one value.
func vectors(f file, class string, value float32) file {
	f = maps.Clone(f)
	for name, e := range f {
		if strings.HasSuffix(name, "."+class+".weight") {
			f[name] = constant(e.Shape[0], value)
		}
	}
	return f
}

func TestNormReadings(t *testing.T) {
	const class = "q_norm"
	for name, c := range map[string]struct {
		fixture string
		value   float32
		options weights.Options
		want    string // convention, or part of the error
	}{
		"converted near 0":            {"tiny-mlx-plain", 0.25, weights.Options{}, "zero-centred"},
		"converted near 1":            {"tiny-mlx-plain", 0.75, weights.Options{}, "folded"},
		"converted large":             {"tiny-mlx-plain", 3, weights.Options{}, "folded"},
		"converted between":           {"tiny-mlx-plain", 0.5, weights.Options{}, "class q_norm have a mean of 0.500 over 2 vectors"},
		"converted below":             {"tiny-mlx-plain", -0.5, weights.Options{}, "class q_norm have a mean of -0.500"},
		"converted between, folded":   {"tiny-mlx-plain", 0.5, weights.Options{Norms: "folded"}, "folded"},
		"converted between, centred":  {"tiny-mlx-plain", 0.5, weights.Options{Norms: "centred"}, "zero-centred"},
		"the caller cannot overrule":  {"tiny-mlx-plain", 1, weights.Options{Norms: "centred"}, "folded"},
		"nonsense from the caller":    {"tiny-mlx-plain", 1, weights.Options{Norms: "yes"}, `norms "yes"`},
		"released between":            {"tiny", 0.5, weights.Options{}, "zero-centred"},
		"released, folded all alike":  {"tiny", 1, weights.Options{}, "class q_norm have a mean of 1.000"},
		"released, the caller's word": {"tiny", 1, weights.Options{Norms: "centred"}, "zero-centred"},
	} {
		t.Run(name, func(t *testing.T) {
			config, f := fixture(t, c.fixture)
			ck, err := weights.OpenBytesWith("test", config, vectors(f, class, c.value).encode(), c.options)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%v\nwant %q", err, c.want)
				}
				return
			}
			if got := conventions(ck)["norm "+class]; got != c.want {
				t.Fatalf("%s, want %s", got, c.want)
			}
			want := c.value
			if c.want == "zero-centred" {
				want++
			}
			v, err := ck.Norm("model.language_model.layers.3.self_attn.q_norm", 32)
			if err != nil || v[0] != want {
				t.Errorf("scale %v, %v; want %v", v, err, want)
			}
			if got := conventions(ck)["norm k_norm"]; got != "zero-centred" {
				t.Errorf("another class became %s", got)
			}
		})
	}
}

func TestTheDigestFollowsTheReading(t *testing.T) {
	config, f := fixture(t, "tiny-mlx-plain")
	f = vectors(f, "q_norm", 0.5)
	a, _ := open(t, config, f, weights.Options{Norms: "folded"}).Digest()
	b, _ := open(t, config, f, weights.Options{Norms: "centred"}).Digest()
	if a == b {
		t.Error("the same bytes read otherwise have the same digest")
	}
}

func TestCanonical(t *testing.T) {
	for stored, want := range map[string]string{
		"lm_head.weight":                                "lm_head.weight",
		"language_model.lm_head.scales":                 "lm_head.scales",
		"language_model.lm_head":                        "lm_head",
		"model.language_model.embed_tokens.weight":      "model.language_model.embed_tokens.weight",
		"language_model.model.layers.3.mlp.gate.weight": "model.language_model.layers.3.mlp.gate.weight",
		"model.layers.3.mlp.gate.weight":                "model.language_model.layers.3.mlp.gate.weight",
		"language_model.mtp.fc_hidden.weight":           "mtp.fc_hidden.weight",
		"mtp.fc_hidden.weight":                          "mtp.fc_hidden.weight",
		"language_model.model.layers.1.ple.ple_embedding.ngram_embedding.shards.12":        "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_12",
		"language_model.model.layers.1.ple.ple_embedding.ngram_embedding.shards.12.scales": "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_12.scales",
	} {
		if got, vision := weights.Canonical(stored); got != want || vision {
			t.Errorf("%s is called %s (vision %v), want %s", stored, got, vision, want)
		}
	}
	for _, name := range []string{"model.visual.pos_embed.weight", "vision_tower.merger.norm.weight", "visual.x"} {
		if _, vision := weights.Canonical(name); !vision {
			t.Errorf("%s is not taken for vision", name)
		}
	}
}

func TestVisionIsIgnored(t *testing.T) {
	config, f := fixture(t, "tiny")
	f["model.visual.pos_embed.weight"] = entry{"F8_E4M3", []int{3}, make([]byte, 3)}
	f["model.language_model.norm.weight"] = constant(128, 1)
	got := map[string]string{}
	for _, finding := range open(t, config, f).Findings() {
		got[finding.Class] = finding.Evidence
	}
	if got["vision"] != "1 tensors of the vision tower" || got["ignored"] != "1 tensors, e.g. model.language_model.norm.weight" {
		t.Errorf("vision %q, ignored %q", got["vision"], got["ignored"])
	}
	dir := write(t, config, f, "a.safetensors", "b.safetensors") // the index lists vision tensors as well
	if c := openDir(t, dir); c.Name() != filepath.Base(dir) {
		t.Errorf("name %s", c.Name())
	}
}
