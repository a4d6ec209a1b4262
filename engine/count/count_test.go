package count_test

import (
	"context"
	"testing"

	"lector/engine/count"
	"lector/engine/weights/synth"
)

func open(t *testing.T, preset string, rows int) *count.Counter {
	t.Helper()
	c, err := count.Open(count.Options{Preset: preset, Seed: 1, MaxRows: rows})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func at(t *testing.T, c *count.Counter, chunk, position int) count.Row {
	t.Helper()
	r, err := c.At(context.Background(), chunk, position)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The bounds that the released shapes are held to, at a few places of the table that lector bench count prints.
func TestReleasedBounds(t *testing.T) {
	c := open(t, synth.Released, 8192)
	cost := map[int]float64{} // attention of a token, by position
	for _, p := range []struct{ chunk, position int }{{512, 1024}, {8192, 0}, {512, 16384}, {4096, 20000}, {1024, 40000}} {
		r := at(t, c, p.chunk, p.position)
		t.Logf("%+v", r)
		// a wait a layer for its routing, then the logits, the draft and the state
		if r.Layers != 49 || r.HostWaits != r.Layers+3 {
			t.Errorf("%+v: %d host waits for %d layers", p, r.HostWaits, r.Layers)
		}
		if r.CommandBuffers != r.HostWaits+r.StatusReads {
			t.Errorf("%+v: %d command buffers, of which %d statuses were read", p, r.CommandBuffers, r.HostWaits+r.StatusReads)
		}
		// 512 experts in groups of eight: four dispatches a group, and at most 64 others a layer
		if most := r.Layers * (4*512/8 + 64); r.Dispatches > most {
			t.Errorf("%+v: %d dispatches, want at most %d", p, r.Dispatches, most)
		}
		if r.ExpertBytes != r.UniqueBytes || r.ExpertBytes == 0 {
			t.Errorf("%+v: %d bytes of records are read for %d that are used", p, r.ExpertBytes, r.UniqueBytes)
		}
		over := float64(r.Attention) / float64(r.AttentionLeast)
		padded := float64(r.AttentionPadded) / float64(r.AttentionLeast)
		if over < 1 || padded < over {
			t.Errorf("%+v: attention computes %.3f of what it has to, %.3f with padding", p, over, padded)
		}
		// twelve query heads share a key head, and take sixteen rows of a matrix tile
		if p.position >= 16384 && (over >= 1.3 || padded >= 1.35) {
			t.Errorf("%+v: attention computes %.3f of what it has to, %.3f with padding", p, over, padded)
		}
		cost[p.position] = float64(r.Attention) / float64(r.Chunk)
		if r.Scratch <= 0 || r.SeedScratch <= 0 {
			t.Errorf("%+v: %d bytes of scratch, %d by the formula", p, r.Scratch, r.SeedScratch)
		}
	}
	if flat := cost[40000] / cost[16384]; flat > 1.2 {
		t.Errorf("a token costs %.2f times at 40000 what it costs at 16384", flat)
	}
}

// The same options count the same, whatever was counted before.
func TestCountsRepeat(t *testing.T) {
	c := open(t, "tiny", 256)
	first := at(t, c, 200, 100)
	at(t, c, 7, 0)
	if again := at(t, c, 200, 100); again != first {
		t.Errorf("%+v, then %+v", first, again)
	}
	if again := at(t, open(t, "tiny", 256), 200, 100); again != first {
		t.Errorf("another counter: %+v, then %+v", first, again)
	}
}

func TestRefusals(t *testing.T) {
	if _, err := count.Open(count.Options{Preset: "none"}); err == nil {
		t.Error("shapes that nobody knows")
	}
	c := open(t, "tiny", 64)
	for _, p := range [][2]int{{65, 0}, {0, 0}, {10, 4095}} {
		if _, err := c.At(context.Background(), p[0], p[1]); err == nil {
			t.Errorf("%d tokens at %d are counted", p[0], p[1])
		}
	}
}
