package cache_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"lector/cache"
)

// Digests that are computed together are those of each alone, however many there are, and however their bytes lie.
func TestSumsAreThoseOfEach(t *testing.T) {
	data := bytes.Repeat([]byte("the same bytes at another place are other bytes. "), 20_000)
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(60_000, 140_000)), 1, 5)
		var bodies [][][]byte
		var want []cache.Digest
		for i, sizes := range rapid.SliceOfN(parts, 0, 6).Draw(t, "bodies") {
			var segments [][]byte
			h := sha256.New()
			for j, n := range sizes {
				segments = append(segments, data[7*i+j:][:n])
				h.Write(segments[j])
			}
			bodies, want = append(bodies, segments), append(want, cache.Digest(h.Sum(nil)))
		}
		got, err := cache.SumBodies(context.Background(), bodies, rapid.IntRange(1, 4).Draw(t, "processors"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("body %d of %d: digest %s, alone it has %s", i, len(want), got[i], want[i])
			}
		}
	})
}

// Work that nobody wants any more ends, and says so.
func TestSumsEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	data := make([]byte, 300_000)
	if _, err := cache.SumBodies(ctx, [][][]byte{{data}, {data, data}, {data[:1]}}, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, not that the context was cancelled", err)
	}
}
