package gpu_test

import (
	"context"
	"path/filepath"
	"testing"

	"lector/engine"
	"lector/engine/gpu"
	"lector/engine/weights"
	"lector/engine/weights/pack"
	"lector/metal"
	"lector/metal/record"
)

// What a device holds for chunks is what the layout says, to the byte: before the first chunk nothing, then all of it,
// and nothing again once it is given back. A smaller chunk takes nothing more, a larger one only its difference.
func TestScratchIsWhatTheLayoutSays(t *testing.T) {
	stored := packTiny(t)
	for name, dir := range map[string]string{"experts in memory": filepath.Join(fixtures, "tiny"), "experts in storage": stored, "other shapes": filepath.Join(fixtures, "odd")} {
		t.Run(name, func(t *testing.T) {
			m := openRecorded(t, dir, playRoute(3))
			tokens := make([]engine.Token, 400)
			for i := range tokens {
				tokens[i] = engine.Token(i % 97)
			}
			prefill := func(n int) (held int64) {
				t.Helper()
				if _, err := m.sequence.Prefill(context.Background(), tokens[:n], nil); err != nil {
					t.Fatal(err)
				}
				held = m.device.AllocatedBytes()
				if _, err := m.sequence.Draft(context.Background(), 5, engine.MaxDrafts); err != nil {
					t.Fatal(err)
				}
				if now := m.device.AllocatedBytes(); now != held {
					t.Errorf("drafts took %d bytes", now-held)
				}
				return held
			}
			prefill(130) // weights are copied as they are first used
			m.engine.ReleaseScratch()
			before := m.device.AllocatedBytes()
			for _, n := range []int{40, 17, 130} {
				held := prefill(n) - before
				if want := int64(m.engine.ScratchBytes(max(n, 40), false)); held != want {
					t.Errorf("chunks of up to %d tokens hold %d bytes, the layout says %d", max(n, 40), held, want)
				}
			}
			m.engine.ReleaseScratch()
			if now := m.device.AllocatedBytes(); now != before {
				t.Errorf("%d bytes are held after the release, %d were before", now, before)
			}
		})
	}
}

// What the device recommends bounds a chunk where no budget does, and scratch that is there counts as free.
func TestRowsFitTheDevice(t *testing.T) {
	m := openRecorded(t, filepath.Join(fixtures, "tiny"), playRoute(3))
	all, err := m.engine.RowsFit(0, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.sequence.Prefill(context.Background(), make([]engine.Token, 40), nil); err != nil {
		t.Fatal(err)
	}
	m.room = m.device.AllocatedBytes() + 1<<20 // the device has little left
	fit, err := m.engine.RowsFit(0, false)
	if err != nil {
		t.Fatal(err)
	}
	if fit >= all || fit <= 40 {
		t.Errorf("%d rows fit, %d without a bound, 40 are there", fit, all)
	}
	left := 1<<20 + m.engine.ScratchBytes(40, false)
	if need := m.engine.ScratchBytes(fit, false); need > left {
		t.Errorf("%d rows need %d bytes, %d are left", fit, need, left)
	}
	if need := m.engine.ScratchBytes(fit+1, false); need <= left {
		t.Errorf("%d rows would fit", fit+1)
	}
}

// Matrices of a mapped checkpoint are read where they are: what the device holds for them is vectors.
func TestMappedCheckpointIsReadInPlace(t *testing.T) {
	m := openRecorded(t, filepath.Join(fixtures, "tiny"), playRoute(3))
	if _, err := m.sequence.Prefill(context.Background(), make([]engine.Token, 40), nil); err != nil {
		t.Fatal(err)
	}
	m.engine.ReleaseScratch()
	if err := m.sequence.Close(); err != nil {
		t.Fatal(err)
	}
	if c := m.device.Counts(); c.WrappedBytes < 1<<20 || c.BufferBytes > 1<<20 {
		t.Errorf("%d bytes are read in place, %d are held for weights", c.WrappedBytes, c.BufferBytes)
	}
}

// Slots of records go back as a whole, whatever buffers they lie in.
func TestSlotsAreGivenBack(t *testing.T) {
	d := record.New(record.Options{Properties: metal.Properties{MaxBufferBytes: 1 << 20}})
	b, err := gpu.New(d, gpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	slots, err := b.AllocSlots(40, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	if len(slots.Mem) != 40 || d.AllocatedBytes() < 40*100_000 || d.Counts().Buffers < 4 {
		t.Errorf("%d slots in %d buffers of %d bytes", len(slots.Mem), d.Counts().Buffers, d.AllocatedBytes())
	}
	slots.Free()
	slots.Free()
	if d.AllocatedBytes() != 0 || b.HeldBytes() != 0 {
		t.Errorf("%d bytes are left on the device, %d counted", d.AllocatedBytes(), b.HeldBytes())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// packTiny packs the tiny fixture into a store.
func packTiny(t *testing.T) string {
	t.Helper()
	source, err := weights.Open(filepath.Join(fixtures, "tiny"))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	dir := filepath.Join(t.TempDir(), "store")
	if _, err := pack.Run(context.Background(), source, dir, pack.Options{Settings: pack.Settings{Group: 64}}); err != nil {
		t.Fatal(err)
	}
	return dir
}
