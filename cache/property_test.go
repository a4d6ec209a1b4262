package cache_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lector/cache"
	"lector/cache/cachetest"
)

// drawLayout makes any layout: types, ranks, sizes of zero, lags, with and without the token ids.
func drawLayout(t *rapid.T) cache.Layout {
	var l cache.Layout
	if rapid.Bool().Draw(t, "has tokens") {
		l = append(l, cache.Spec{Name: cache.TokensRegion, DType: "i32", Shape: []int{}, Kind: cache.Rows})
	}
	for i := range rapid.IntRange(len(l), 6).Draw(t, "regions") { // ids alone are no state
		s := cache.Spec{
			Name:  fmt.Sprintf("region.%d", i),
			DType: rapid.SampledFrom([]string{"f32", "i32", "f16", "bf16", "i8"}).Draw(t, "dtype"),
			Shape: rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape"),
			Kind:  rapid.SampledFrom([]cache.Kind{cache.Rows, cache.Fixed}).Draw(t, "kind"),
		}
		if s.Kind == cache.Rows {
			s.Lag = rapid.IntRange(0, 3).Draw(t, "lag")
		}
		l = append(l, s)
	}
	return l
}

// drawDocument makes a document of any length, cut anywhere.
func drawDocument(t *rapid.T) *document {
	tokens := rapid.SliceOfN(rapid.Int32Range(0, 1<<18), 1, 60).Draw(t, "tokens")
	d := newDocument(cachetest.NewMemory(), tokens)
	d.layout = drawLayout(t)
	d.cuts = nil
	for at := 0; at < len(tokens); {
		at = min(at+rapid.IntRange(1, 20).Draw(t, "chunk"), len(tokens))
		d.cuts = append(d.cuts, at)
	}
	kept := rapid.SliceOfN(rapid.Bool(), len(d.cuts), len(d.cuts)).Draw(t, "kept")
	d.keep = func(i int) bool { return kept[i] || i == len(d.cuts)-1 }
	d.space.CutBlobs(rapid.Int64Range(1, 400).Draw(t, "blob limit"))
	return d
}

// Law: what is restored is what was stored, for any layout and any cut.
func TestRestoreGivesTheSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		d := drawDocument(t)
		m, _, err := d.read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := blank(d.layout, len(d.tokens))
		bytes, err := d.space.Restore(ctx, m, "", d.tokens, got)
		if err != nil {
			t.Fatal(err)
		}
		want := state(d.layout, d.tokens)
		total := int64(0)
		for i := range want {
			total += int64(len(want[i].Data))
			if !slices.Equal(got[i].Data, want[i].Data) {
				t.Errorf("region %s came back as other bytes", want[i].Name)
			}
		}
		if bytes != total || m.Bytes != total {
			t.Errorf("restored %d bytes, manifest says %d, state has %d", bytes, m.Bytes, total)
		}
		report, err := d.space.Verify(ctx, m)
		if err != nil || report.Bytes != total || report.Nodes != len(d.cuts) || report.NodesMissing != 0 || report.Tokens != len(d.tokens) {
			t.Errorf("Verify: %+v, %v", report, err)
		}
	})
}

// Law: every boundary that Deepest names can be restored, for any cut and any choice of what is kept.
func TestDeepestCanBeRestored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		d := drawDocument(t)
		stop := rapid.IntRange(0, len(d.cuts)).Draw(t, "stored chunks")
		for i := range stop {
			if _, _, err := d.space.PutStep(ctx, d.args(i)); err != nil {
				t.Fatal(err)
			}
		}
		job := rapid.SampledFrom([]string{"", d.job, "another"}).Draw(t, "job")
		n, nodes, err := d.space.Deepest(ctx, job, d.keys())
		if err != nil || len(nodes) != n || n > stop || job == d.job && n != stop {
			t.Fatalf("Deepest = %d, %d nodes, %v; %d chunks stored", n, len(nodes), err, stop)
		}
		if n == 0 {
			return
		}
		m, err := cache.NewManifest(d.id, nodes)
		if err != nil {
			t.Fatal(err)
		}
		got := blank(d.layout, d.cuts[n-1])
		if _, err := d.space.Restore(ctx, m, job, d.tokens[:d.cuts[n-1]], got); err != nil {
			t.Fatal(err)
		}
		if !sameData(got, state(d.layout, d.tokens[:d.cuts[n-1]])) {
			t.Errorf("the state at token %d came back as other bytes", d.cuts[n-1])
		}
	})
}

// rowBytes is the formula of what tokens [0, n) add to a store.
func rowBytes(l cache.Layout, n int) (sum int) {
	for _, s := range l {
		if s.Kind == cache.Rows {
			sum += unit(s) * max(n-s.Lag, 0)
		}
	}
	return sum
}

func fixedBytes(l cache.Layout) (sum int) {
	for _, s := range l {
		if s.Kind == cache.Fixed {
			sum += unit(s)
		}
	}
	return sum
}

// Law: documents that share a prefix store its rows once. The bytes of all blobs are those of the formula.
func TestSharedPrefixIsStoredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grid := identity().Grid
		shared := rapid.IntRange(0, 4).Draw(t, "shared cells") * grid
		a := rapid.IntRange(1, 40).Draw(t, "rest of a")
		b := rapid.IntRange(1, 40).Draw(t, "rest of b")
		store := cachetest.NewMemory()
		first := newDocument(store, slices.Concat(count(0, shared), count(1000, a)))
		second := newDocument(store, slices.Concat(count(0, shared), count(2000, b)))
		for _, d := range []*document{first, second} {
			d.keep = func(int) bool { return true }
		}
		if _, _, err := first.read(context.Background()); err != nil {
			t.Fatal(err)
		}
		n, _, err := second.space.Deepest(context.Background(), second.job, second.keys())
		if err != nil || n != shared/grid {
			t.Fatalf("Deepest = %d, %v; %d cells are shared", n, err, shared/grid)
		}
		if _, _, err := second.read(context.Background()); err != nil {
			t.Fatal(err)
		}
		states := len(first.cuts) + len(second.cuts) - shared/grid
		want := rowBytes(specs(), shared+a) + rowBytes(specs(), shared+b) - rowBytes(specs(), shared) + states*fixedBytes(specs())
		got := 0
		for _, name := range store.Names() {
			if strings.Contains(name, "/blobs/") {
				body, _ := store.Bytes(name)
				got += len(body)
			}
		}
		if got != want {
			t.Errorf("blobs hold %d bytes, the formula says %d", got, want)
		}
	})
}

// Law: the boundaries of any document rise to its end by steps of at most the grid.
func TestBoundaries(t *testing.T) {
	for _, c := range []struct {
		n, grid int
		want    []int
	}{{0, 4, nil}, {-1, 4, nil}, {1, 4, []int{1}}, {4, 4, []int{4}}, {5, 4, []int{4, 5}}, {1000, 512, []int{512, 1000}}, {7, 0, []int{7}}} {
		if got := cache.Boundaries(c.n, c.grid); !slices.Equal(got, c.want) {
			t.Errorf("Boundaries(%d, %d) = %v, want %v", c.n, c.grid, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n, grid := rapid.IntRange(1, 500).Draw(t, "n"), rapid.IntRange(1, 100).Draw(t, "grid")
		got := cache.Boundaries(n, grid)
		if got[len(got)-1] != n || len(got) != (n+grid-1)/grid {
			t.Fatalf("Boundaries(%d, %d) = %v", n, grid, got)
		}
		for i, b := range got[:len(got)-1] {
			if b != (i+1)*grid {
				t.Fatalf("Boundaries(%d, %d) = %v", n, grid, got)
			}
		}
	})
}

// Law: two documents have the same keys exactly as far as they have the same tokens.
func TestKeysFollowTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Int32(), 1, 50).Draw(t, "tokens")
		other := slices.Clone(tokens)
		at := rapid.IntRange(0, len(tokens)-1).Draw(t, "changed")
		other[at]++
		bounds := cache.Boundaries(len(tokens), rapid.IntRange(1, 10).Draw(t, "grid"))
		p := identity().Producer
		a, b := cache.Keys(p, tokens, bounds), cache.Keys(p, other, bounds)
		for i, to := range bounds {
			if (a[i] == b[i]) != (to <= at) {
				t.Errorf("token %d differs, and the keys at %d are equal: %v", at, to, a[i] == b[i])
			}
		}
	})
	p := identity().Producer
	for _, bad := range [][]int{{3, 3}, {3, 2}, {3, 11}, {3, -1}} {
		if got := cache.Keys(p, count(0, 10), bad); len(got) != 1 {
			t.Errorf("Keys with boundaries %v gave %d keys, want those before the bad one", bad, len(got))
		}
	}
}
