package cache_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"lector/cache"
	"lector/cache/dir"
)

// largeState is a state of as many bytes of rows and of recurrent state, as a real model lays it out.
func largeState(b *testing.B, rows, fixed int) cache.StepArgs {
	const layers, tokens = 12, 1024
	var regions []cache.Region
	fill := func(r cache.Region) {
		rand.Read(r.Data)
		regions = append(regions, r)
	}
	for l := range layers {
		width := rows / layers / tokens / 4
		fill(cache.Region{Name: fmt.Sprint("layers.", l, ".k"), DType: "f32", Shape: []int{width}, Kind: cache.Rows, Data: make([]byte, 4*width*tokens)})
		n := fixed / layers / 4
		fill(cache.Region{Name: fmt.Sprint("layers.", l, ".s"), DType: "f32", Shape: []int{n}, Kind: cache.Fixed, Data: make([]byte, 4*n)})
	}
	ids := count(1, tokens)
	id := identity()
	return cache.StepArgs{Identity: id, Key: cache.Keys(id.Producer, ids, []int{tokens})[0], To: tokens, Tokens: ids, Regions: regions, Keep: true}
}

func sizesOf(b *testing.B, run func(b *testing.B, a cache.StepArgs, size int64)) {
	for _, c := range []struct{ rows, fixed int }{{32 << 20, 2 << 20}, {8 << 20, 112 << 20}} {
		b.Run(fmt.Sprintf("rows=%dM/fixed=%dM", c.rows>>20, c.fixed>>20), func(b *testing.B) {
			a := largeState(b, c.rows, c.fixed)
			size := int64(0)
			for _, r := range a.Regions {
				size += int64(len(r.Data))
			}
			b.SetBytes(size)
			run(b, a, size)
		})
	}
}

func plainWrite(folder string, regions []cache.Region) error {
	f, err := os.Create(filepath.Join(folder, "plain"))
	if err != nil {
		return err
	}
	for _, r := range regions {
		if _, err = f.Write(r.Data); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// BenchmarkSave stores a state in a folder; BenchmarkPlainWrite writes and syncs the same bytes.
func BenchmarkSave(b *testing.B) {
	sizesOf(b, func(b *testing.B, a cache.StepArgs, _ int64) {
		defer cpu(b)()
		for b.Loop() {
			b.StopTimer()
			store, err := dir.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			space := &cache.Space{Store: store}
			b.StartTimer()
			n, _, err := space.PutStep(context.Background(), a)
			if err == nil {
				_, _, err = space.PutManifest(context.Background(), a.Identity, []cache.Node{n})
			}
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			store.Close()
			b.StartTimer()
		}
	})
}

func BenchmarkPlainWrite(b *testing.B) {
	sizesOf(b, func(b *testing.B, a cache.StepArgs, _ int64) {
		defer cpu(b)()
		for b.Loop() {
			b.StopTimer()
			folder := b.TempDir()
			b.StartTimer()
			if err := plainWrite(folder, a.Regions); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRestore restores a state from a folder; BenchmarkPlainRead reads the same bytes.
func BenchmarkRestore(b *testing.B) {
	sizesOf(b, func(b *testing.B, a cache.StepArgs, _ int64) {
		store, err := dir.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		defer store.Close()
		space := &cache.Space{Store: store}
		n, _, err := space.PutStep(context.Background(), a)
		if err != nil {
			b.Fatal(err)
		}
		m, err := cache.NewManifest(a.Identity, []cache.Node{n})
		if err != nil {
			b.Fatal(err)
		}
		defer cpu(b)()
		for b.Loop() {
			if _, err := space.Restore(context.Background(), m, "", nil, a.Regions); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkPlainRead(b *testing.B) {
	sizesOf(b, func(b *testing.B, a cache.StepArgs, size int64) {
		folder := b.TempDir()
		if err := plainWrite(folder, a.Regions); err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, size)
		defer cpu(b)()
		for b.Loop() {
			f, err := os.Open(filepath.Join(folder, "plain"))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(f, buf); err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
}
