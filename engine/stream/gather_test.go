package stream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"lector/engine/stream"
	"lector/engine/stream/streamtest"
	"lector/engine/weights"
	"lector/engine/weights/pack"
)

const ngram = weights.PackedNgramFile

func drawIDs(p *weights.Packed, n int) []int64 {
	src := rand.New(rand.NewPCG(5, 6))
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = src.Int64N(p.NgramRows(0))
		if i%3 == 2 {
			ids[i] = ids[i/2]
		}
	}
	return ids
}

// Every row that was asked for is in the smaller table, and each distinct one is read once.
func TestGatherReadsEachRowOnce(t *testing.T) {
	for name, settings := range map[string]pack.Settings{"tiny": {Group: 64}, "tiny-mlx-folded": {Group: 64}, "odd": {Group: 32, Bits: 4}} {
		p := packedFixture(t, name, settings)
		r := newRig(t, p, stream.Records(p), stream.Options{})
		whole, err := weights.Open(p.Dir())
		if err != nil {
			t.Fatal(err)
		}
		defer whole.Close()
		cfg := whole.Config()
		table := p.Manifest().Ngram[0]
		shards, err := whole.NgramTable(table.Layer, cfg.NgramShards, table.Shards*table.Rows, table.Dim)
		if err != nil {
			t.Fatal(err)
		}
		same := func(ids []int64, rows stream.Rows) {
			for i, id := range ids {
				from, to := &shards[id/int64(table.Rows)], &rows.Shards[rows.IDs[i]/int64(rows.Each)]
				for j, pair := range [][2][]byte{{from.Data, to.Data}, side(from, 0, to), side(from, 1, to)} {
					if !bytes.Equal(cutRow(pair[0], table.Rows, id%int64(table.Rows)), cutRow(pair[1], rows.Each, rows.IDs[i]%int64(rows.Each))) {
						t.Fatalf("%s: part %d of row %d differs", name, j, id)
					}
				}
			}
		}
		for _, n := range []int{300, 0, 1, 40} {
			ids := drawIDs(p, n)
			r.disk.Set()
			same(ids, gathered(t, r.Store, ids))
			if got := len(r.disk.Reads(ngram)); got != distinct(ids) {
				t.Errorf("%s: %d reads for %d rows", name, got, distinct(ids))
			}
		}
		plain := newRig(t, p, stream.Records(p), stream.Options{Wrap: func(_ string, file io.ReaderAt) io.ReaderAt { return file }})
		for _, n := range []int{1, 12, 40, 300, 12} {
			before, ids := plain.Stats().Rows, drawIDs(p, n)
			same(ids, gathered(t, plain.Store, ids))
			if got := plain.Stats().Rows - before; got != distinct(ids) {
				t.Errorf("%s: %d rows counted, there were %d", name, got, distinct(ids))
			}
		}
	}
}

func distinct(ids []int64) int {
	seen := map[int64]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}

// gathered reads rows, which stay until the next gathering.
func gathered(t *testing.T, s *stream.Store, ids []int64) stream.Rows {
	t.Helper()
	g := s.Gather(context.Background(), 0, ids)
	defer g.End()
	rows, err := g.Wait()
	if err != nil {
		t.Fatal(err)
	}
	g.End()
	return rows
}

func side(from *weights.Tensor, which int, to *weights.Tensor) [2][]byte {
	if from.Quant == nil {
		return [2][]byte{}
	}
	if which == 0 {
		return [2][]byte{from.Quant.Scales, to.Quant.Scales}
	}
	return [2][]byte{from.Quant.Biases, to.Quant.Biases}
}

func cutRow(data []byte, rows int, row int64) []byte {
	n := int64(len(data) / rows)
	return data[row*n : (row+1)*n]
}

func TestGatherFaults(t *testing.T) {
	p := packedTiny(t)
	var ctx context.Context
	var cancel context.CancelFunc
	for _, f := range faults(func() { cancel() }) {
		ctx, cancel = context.WithCancel(context.Background())
		r := newRig(t, p, stream.MinSlots, stream.Options{})
		f.rule.File = ngram
		r.disk.Set(f.rule)
		g := r.Gather(ctx, 0, drawIDs(p, 400))
		if _, err := g.Wait(); !errors.Is(err, f.want) {
			t.Errorf("%s: %v, want %v", f.name, err, f.want)
		}
		g.End()
		r.disk.Set()
		g = r.Gather(context.Background(), 0, drawIDs(p, 40))
		if _, err := g.Wait(); err != nil {
			t.Errorf("%s, then: %v", f.name, err)
		}
		g.End()
		cancel()
	}
	r := newRig(t, p, stream.MinSlots, stream.Options{})
	r.disk.Set(streamtest.Rule{File: ngram, First: 1, Delay: time.Millisecond})
	r.Gather(context.Background(), 0, drawIDs(p, 400)).End() // given up at once
	if got := len(r.disk.Reads(ngram)); got > 64 {
		t.Errorf("%d rows were read for nobody", got)
	}
}
