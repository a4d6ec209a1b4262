package stream_test

import (
	"bytes"
	"context"
	"testing"

	"lector/engine/ops"
	"lector/engine/stream"
)

// A layer is resident once every one of its records is in a slot and as long as none leaves it.
func TestResident(t *testing.T) {
	p := packedTiny(t)
	r := newRig(t, p, stream.Records(p), stream.Options{Ring: 16})
	defer r.Close()
	resident := func(layer int) []ops.Expert {
		return r.Layer(context.Background(), layer, true).(ops.Resident).Resident(2)
	}
	for layer := range p.Layers() {
		if resident(layer) != nil {
			t.Fatalf("layer %d is resident before it was read", layer)
		}
		if _, err := r.run(t, context.Background(), layer, false, r.all(layer, one)); err != nil {
			t.Fatal(err)
		}
	}
	before := r.Stats()
	first := resident(0)
	if len(first) != p.Experts(0) || &resident(0)[0] != &first[0] || r.Stats().Sub(before) != (stream.Stats{Hits: 4}) {
		t.Errorf("%d of %d experts are resident, and were counted as %+v", len(first), p.Experts(0), r.Stats().Sub(before))
	}
	for e, x := range first {
		if want := r.record(0, e); !bytes.Contains(want, x.Gate.Data) {
			t.Errorf("expert %d is another one's record", e)
		}
	}
	r.Limit(stream.MinSlots)
	gone := 0
	for layer := range p.Layers() {
		if resident(layer) == nil {
			gone++
		}
	}
	if gone == 0 {
		t.Error("every layer is still resident after the slots became few")
	}
}
