package stream_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"lector/engine/ops"
	"lector/engine/stream"
	"lector/engine/stream/streamtest"
	"lector/engine/weights"
	"lector/engine/weights/pack"
	"lector/engine/weights/synth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fixtures = "../../tests/fixtures"

// packedFixture packs a checkpoint; tiny has 9 layers with 8 experts each, and n-gram rows.
func packedFixture(t testing.TB, name string, s pack.Settings) *weights.Packed {
	t.Helper()
	source, err := weights.Open(filepath.Join(fixtures, name))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	dir := filepath.Join(t.TempDir(), "store")
	if _, err := pack.Run(context.Background(), source, dir, pack.Options{Settings: s}); err != nil {
		t.Fatal(err)
	}
	p, err := weights.OpenPacked(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func packedTiny(t testing.TB) *weights.Packed {
	return packedFixture(t, "tiny", pack.Settings{Group: 64})
}

// packedMany packs a random model of 5 layers with 48 small experts each: three times the smallest ring.
func packedMany(t testing.TB) *weights.Packed {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := synth.Write(context.Background(), source, synth.Options{Preset: "tiny", Layers: 4, Experts: 48, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	c, err := weights.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := pack.Run(context.Background(), c, filepath.Join(dir, "store"), pack.Options{Settings: pack.Settings{Group: 64, ExpertsBits: 4}}); err != nil {
		t.Fatal(err)
	}
	p, err := weights.OpenPacked(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// rig is a store over a disk that counts and fails, with the whole file beside it to compare with.
type rig struct {
	*stream.Store
	packed *weights.Packed
	disk   *streamtest.Disk
	slots  ops.Slots
	file   []byte
}

// noView leaves the operands alone: these tests look at bytes.
func noView(int, int, []byte) (ops.Expert, error) { return ops.Expert{}, nil }

func newRig(t testing.TB, p *weights.Packed, slots int, o stream.Options) *rig {
	t.Helper()
	r := &rig{packed: p, disk: &streamtest.Disk{}}
	var err error
	if r.slots, err = stream.Memory(slots, stream.SlotBytes(p)); err != nil {
		t.Fatal(err)
	}
	r.open(t, o)
	return r
}

func (r *rig) open(t testing.TB, o stream.Options) {
	t.Helper()
	if o.Wrap == nil {
		o.Wrap = r.disk.Wrap
	}
	var err error
	if r.Store, err = stream.Open(r.packed, r.slots, noView, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if r.file, err = os.ReadFile(filepath.Join(r.packed.Dir(), weights.PackedExpertsFile)); err != nil {
		t.Fatal(err)
	}
}

// record is an expert's bytes in the file.
func (r *rig) record(layer, expert int) []byte {
	at := r.packed.RecordOffset(layer, expert)
	return r.file[at : at+int64(r.packed.ExpertBytes(layer, expert))]
}

// run goes through a sweep in groups of eight as a backend does, checks every record and returns how many were hits.
func (r *rig) run(t testing.TB, ctx context.Context, layer int, recent bool, wants []ops.Want) (hits int, err error) {
	t.Helper()
	sweep := r.Layer(ctx, layer, recent).Sweep(wants)
	items := sweep.Items()
	if len(items) != len(wants) {
		t.Fatalf("%d items for %d wants", len(items), len(wants))
	}
	for from := 0; from < len(items); from += 8 {
		to := min(from+8, len(items))
		if err := sweep.Wait(to - 1); err != nil {
			if late := sweep.End(); late == nil {
				t.Errorf("Wait failed with %v, End did not", err)
			}
			return hits, err
		}
		for _, item := range items[from:to] {
			want := r.record(layer, item.Expert)
			if got := r.slots.Mem[item.Slot][:len(want)]; !bytes.Equal(got, want) {
				t.Fatalf("layer %d expert %d: slot %d holds something else", layer, item.Expert, item.Slot)
			}
			if item.Hit {
				hits++
			}
		}
		sweep.Done(to - 1)
	}
	return hits, sweep.End()
}

// all wants every expert of a layer, with as many rows as rows says.
func (r *rig) all(layer int, rows func(e int) int) []ops.Want {
	var wants []ops.Want
	for e := range r.packed.Experts(layer) {
		wants = append(wants, ops.Want{Expert: e, Rows: rows(e)})
	}
	return wants
}

func one(int) int { return 1 }

// device uses slots as a GPU does: it waits for tickets and signals them, group by group, on its own.
type device struct {
	fetched, done stream.Counter
	work          sync.WaitGroup
}

func (d *device) run(ctx context.Context, items []ops.Item, look func(ops.Item)) {
	d.work.Go(func() {
		for from := 0; from < len(items); from += 8 {
			group := items[from:min(from+8, len(items))]
			last := group[len(group)-1].Ticket
			if d.fetched.Wait(ctx, last) != nil {
				return
			}
			for _, item := range group {
				look(item)
			}
			d.done.Signal(last)
		}
	})
}
