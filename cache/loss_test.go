package cache_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"lector/cache"
)

// lossy is the node of a small chunk whose regions lost what they say.
func lossy(losses ...cache.Loss) cache.Node {
	return cache.Node{
		Version: cache.NodeVersion, To: 1, Losses: losses, Layout: cache.Layout{
			{Name: "k", DType: "i8", Shape: []int{4}, Kind: cache.Rows}, {Name: "s", DType: "bf16", Shape: []int{0}, Kind: cache.Fixed},
		},
		Rows: []cache.Blob{{Size: 4}},
	}
}

func TestLossesComeBack(t *testing.T) {
	for _, losses := range [][]cache.Loss{nil, {{"k", 5.5e-3}}, {{"s", 1e-9}}, {{"k", 0.1}, {"s", 1.6789e-3}}} {
		b, err := lossy(losses...).Encode()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "losses") != (losses != nil) {
			t.Errorf("losses %v are written as %s", losses, b)
		}
		n, err := cache.DecodeNode(b)
		if err != nil || len(n.Losses) != len(losses) {
			t.Fatalf("losses %v came back as %v, %v", losses, n.Losses, err)
		}
		for i := range losses {
			if n.Losses[i] != losses[i] {
				t.Errorf("losses %v came back as %v", losses, n.Losses)
			}
		}
	}
}

func TestLossesAreChecked(t *testing.T) {
	for name, losses := range map[string][]cache.Loss{
		"zero": {{"k", 0}}, "negative": {{"k", -1}}, "another region": {{"x", 1}}, "twice": {{"k", 1}, {"k", 1}}, "another order": {{"s", 1}, {"k", 1}},
	} {
		b, err := lossy(losses...).Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cache.DecodeNode(b); !errors.Is(err, cache.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := lossy(cache.Loss{Region: "k", L2: float32(math.Inf(1))}).Encode(); err == nil {
		t.Error("an infinite loss is written")
	}
}
