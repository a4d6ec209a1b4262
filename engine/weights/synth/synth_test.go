package synth_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/weights"
	"lector/engine/weights/synth"
)

func write(t *testing.T, o synth.Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := synth.Write(context.Background(), dir, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, dir string) *weights.Checkpoint {
	t.Helper()
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The digest is the point: another one means that a seed no longer gives the model that measurements were made with.
func TestSeedGivesTheSameBytesEverywhere(t *testing.T) {
	dir := write(t, synth.Options{Preset: "tiny", Seed: 7})
	got, err := open(t, dir).Digest()
	if want := "a95c413d879e9581ff785bc18f455c53088bbc3a1f55b0025038f3a178b1945c"; err != nil || got != want {
		t.Errorf("digest %s, %v; want %s", got, err, want)
	}
	same, _ := open(t, write(t, synth.Options{Preset: "tiny", Seed: 7})).Digest()
	other, _ := open(t, write(t, synth.Options{Preset: "tiny", Seed: 8})).Digest()
	if same != got || other == got {
		t.Errorf("seed 7 gives %s and %s, seed 8 %s", got, same, other)
	}
}

func TestTinyHasTheFixturesShape(t *testing.T) {
	fixture := open(t, "../../../tests/fixtures/tiny")
	c := open(t, write(t, synth.Options{Preset: "tiny"}))
	if c.Config().Digest() != fixture.Config().Digest() {
		t.Errorf("%+v\n%+v", c.Config(), fixture.Config())
	}
	want := fixture.Tensors()
	got := c.Tensors()
	if len(got) != len(want) {
		t.Fatalf("%d tensors, the fixture has %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Name != want[i].Name || len(got[i].Data) != len(want[i].Data) {
			t.Errorf("%s of %d bytes, the fixture has %s of %d", got[i].Name, len(got[i].Data), want[i].Name, len(want[i].Data))
		}
		mean, deviation := spread(got[i])
		wantMean, wantDeviation := spread(want[i])
		if n := len(got[i].Data) / 2; n >= 1000 && !strings.Contains(got[i].Name, "fc_embedding") && got[i].DType == weights.BF16 {
			if math.Abs(mean-wantMean) > 0.15*wantDeviation || math.Abs(deviation/wantDeviation-1) > 0.15 {
				t.Errorf("%s: mean %.3f deviation %.3f, the fixture has %.3f and %.3f", got[i].Name, mean, deviation, wantMean, wantDeviation)
			}
		}
	}
}

func spread(t weights.Tensor) (mean, deviation float64) {
	t.Shape = []int{1, len(t.Data) * 8 / t.DType.Bits()}
	values := t.AppendRow(nil, 0)
	for _, v := range values {
		mean += float64(v) / float64(len(values))
	}
	for _, v := range values {
		deviation += (float64(v) - mean) * (float64(v) - mean) / float64(len(values))
	}
	return mean, math.Sqrt(deviation)
}

func TestShardsHoldTheSameModel(t *testing.T) {
	whole := open(t, write(t, synth.Options{Preset: "tiny", Layers: 4, Experts: 5, Seed: 3}))
	dir := write(t, synth.Options{Preset: "tiny", Layers: 4, Experts: 5, Seed: 3, Tokenizer: []byte("{}")}.InShards(1<<20))
	shards, _ := filepath.Glob(filepath.Join(dir, "model-*.safetensors"))
	if len(shards) < 3 {
		t.Fatalf("shards %v", shards)
	}
	c := open(t, dir)
	a, _ := whole.Digest()
	b, _ := c.Digest()
	if a != b || c.Config().Layers != 4 || c.Config().Experts != 5 {
		t.Errorf("%s in one file, %s in shards; %d layers, %d experts", a, b, c.Config().Layers, c.Config().Experts)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json")); err != nil || !bytes.Equal(text, []byte("{}")) {
		t.Errorf("tokenizer %q, %v", text, err)
	}
}

func TestPresets(t *testing.T) {
	for preset, want := range map[string][2]int64{ // parameters at least, at most
		"nano": {10e6, 20e6}, "tiny": {3e6, 6e6}, "mid": {0.7e9, 1.2e9}, "real-shape": {2e9, 5e9},
	} {
		n, vocabulary, err := synth.Options{Preset: preset}.Shape()
		if err != nil || n < want[0] || n > want[1] || vocabulary < 512 {
			t.Errorf("%s has %d parameters, vocabulary %d, %v", preset, n, vocabulary, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		o    synth.Options
		want string
	}{
		{full, synth.Options{Preset: "tiny"}, "not empty"},
		{t.TempDir(), synth.Options{Preset: "huge"}, `preset "huge"`},
		{t.TempDir(), synth.Options{Preset: "tiny", Layers: 3}, "at least 4"},
		{t.TempDir(), synth.Options{Preset: "tiny", Experts: 1}, "num_experts_per_tok is 2"},
	} {
		if err := synth.Write(context.Background(), c.dir, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v\nwant %q", c.o, err, c.want)
		}
	}
}

func TestCancelledLeavesNothingThatLoads(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	o := synth.Options{Preset: "tiny", Progress: func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}}
	if err := synth.Write(ctx, dir, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := weights.Open(dir); err == nil {
		t.Error("half a model opens")
	}
}

// The drawn numbers are written down, so that a machine that fuses or rounds otherwise is noticed.
func TestNumbersAreFixed(t *testing.T) {
	h := sha256.New()
	for _, kind := range []string{"normal", "around", "decays"} {
		h.Write(synth.Draw(11, kind, 4096))
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != "321571541ad9fbb46aa808be09c90feec8e634912609c507bdff3fe8d0b15152" {
		t.Errorf("digest of the numbers is %s", got)
	}
	for _, x := range []float64{0.05, 0.3, 0.5, 1, 2, 3.7, 7.05} {
		if got := synth.Logarithm(x); math.Abs(got-math.Log(x)) > 1e-14 {
			t.Errorf("log %v = %v, want %v", x, got, math.Log(x))
		}
	}
}
