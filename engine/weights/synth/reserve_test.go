package synth_test

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lector/engine/weights"
	"lector/engine/weights/synth"
)

// The reserved model has the released shapes, as the released config.json gives them.
func TestReserveHasTheReleasedShapes(t *testing.T) {
	r, err := synth.Reserve(synth.Options{Preset: synth.Released})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := os.ReadFile("../testdata/released-config.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := weights.ParseConfig(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := *r.Config()
	got.Stops, want.Stops = nil, nil // of no shape
	if diff := cmp.Diff(*want, got); diff != "" {
		t.Errorf("the config differs (-released +reserved):\n%s", diff)
	}
	if m, err := r.Matrix("lm_head", got.Vocab, got.Hidden); err != nil || len(m.Data) != 2*got.Vocab*got.Hidden {
		t.Errorf("the head has %d bytes: %v", len(m.Data), err)
	}
	if err := synth.Write(context.Background(), t.TempDir(), synth.Options{Preset: synth.Released}); err == nil {
		t.Error("352 GB would be written")
	}
}
