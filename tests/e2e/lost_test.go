package e2e_test

import (
	"slices"
	"strings"
	"testing"
)

// Objects that somebody deleted, as a bucket's lifecycle does, are said by name, and what the message advises helps:
// the same ingest reads the document again, every time, and the old handle works.
func TestDeletedObjectsAreReadAgain(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	file := document(t, 600, 12)
	h := p.ingest(file).Handle
	want := p.resume(h, "--max-tokens", "4")
	for _, kind := range []string{"blobs", "blobs", "manifests", "handles"} {
		for _, name := range p.stored(kind) {
			remove(t, name)
		}
		o := p.run("resume", h, "--max-tokens", "4")
		if o.code != 2 || o.out != "" || !strings.Contains(o.err, "missing") && !strings.Contains(o.err, "not found") && !strings.Contains(o.err, "not known") {
			t.Errorf("without %s: exits with %d, says %q", kind, o.code, o.err)
		}
		again := p.ingest(file)
		if again.Handle != h || kind == "blobs" && again.Tokens.Computed != 600 {
			t.Errorf("without %s: read again: %+v", kind, again)
		}
		if got := p.resume(h, "--max-tokens", "4"); !slices.Equal(got.IDs, want.IDs) {
			t.Errorf("without %s, then read again: %v, want %v", kind, got.IDs, want.IDs)
		}
	}
}

// What a host is given beside the model is no part of a state: capacity, threads, memory, the host's name, how much it says.
func TestSettingsAreNoPartOfTheState(t *testing.T) {
	file := document(t, 600, 13)
	model := fixture(t, "tiny")
	want := newPlace(t, model).ingest(file).Handle
	for _, set := range [][]string{{"--capacity", "700"}, {"--threads", "1"}, {"--memory", "1G"}, {"-v"}, {"--compress"}} {
		if got := newPlace(t, model).ingest(file, set...).Handle; got != want {
			t.Errorf("%v: handle %s, without %s", set, got, want)
		}
	}
}

// The shortest documents have handles, whose state has regions without a row.
func TestShortestDocuments(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	for n := 1; n <= 3; n++ {
		h := p.ingest(document(t, n, uint64(20+n))).Handle
		p.must("snapshot", "verify", "--probe", h)
		if a := p.resume(h, "--tokens", "3,4", "--max-tokens", "3"); a.Usage.Restored != n || a.Usage.Prefilled != 2 {
			t.Errorf("%d tokens: %+v", n, a.Usage)
		}
	}
}
