package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A tag stands for its handle wherever one is named, moves, and keeps its handle from being removed.
func TestTag(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	first, second := p.ingest(document(t, 30, 1)), p.ingest(document(t, 40, 2))
	p.must("snapshot", "tag", "book", first.Handle)
	if a := p.resume("book", "--max-tokens", "2"); a.Usage.Restored != 30 {
		t.Errorf("resume book: %+v", a.Usage)
	}
	p.must("snapshot", "tag", "book", second.Handle)
	if a := p.resume("book", "--max-tokens", "2"); a.Usage.Restored != 40 {
		t.Errorf("resume book again: %+v", a.Usage)
	}
	if o := p.run("snapshot", "rm", second.Handle); o.code != 2 || !strings.Contains(o.err, "book") {
		t.Errorf("rm of a tagged handle: %+v", o)
	}
	if o := p.run("resume", "nobody"); o.code != 2 || !strings.Contains(o.err, "no tag") {
		t.Errorf("resume of no tag: %+v", o)
	}
	p.must("snapshot", "tag", "--delete", "book")
	p.must("snapshot", "rm", second.Handle)
	if o := p.run("resume", second.Handle, "--max-tokens", "2"); o.code != 2 {
		t.Errorf("resume of a removed handle: %+v", o)
	}
}

// A fork goes on as if the document had ended there, and the two are told apart.
func TestForkAndDiff(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	ids := make([]int, 1400)
	for i := range ids {
		ids[i] = (i*7 + i/13) % 300
	}
	whole := p.ingest(writeIDs(t, ids))
	fork := p.must("snapshot", "fork", whole.Handle, "--at", "1024")
	if o := p.run("snapshot", "fork", whole.Handle, "--at", "1000"); o.code != 2 || !strings.Contains(o.err, "512, 1024, 1400") {
		t.Errorf("fork where nothing is kept: %+v", o)
	}
	p.must("snapshot", "verify", "--probe", fork)
	branched := p.resume(fork, "--tokens", "3,4,5", "--max-tokens", "6", "--keep")
	if branched.Usage.Restored != 1024 || branched.Usage.Prefilled != 3 {
		t.Errorf("resume of the fork: %+v", branched.Usage)
	}
	apart := newPlace(t, p.model)
	alone := apart.ingest(writeIDs(t, append(slices.Clone(ids[:1024]), 3, 4, 5)))
	if want := apart.resume(alone.Handle, "--max-tokens", "6"); !slices.Equal(branched.IDs, want.IDs) {
		t.Errorf("the branch says %v, a document that ends so says %v", branched.IDs, want.IDs)
	}
	o := p.run("snapshot", "diff", "--json", whole.Handle, branched.Handle)
	var c struct {
		Shared int `json:"shared"`
		Differ []struct {
			Region string `json:"region"`
			From   int    `json:"from"`
		} `json:"differ"`
	}
	if err := json.Unmarshal([]byte(o.out), &c); err != nil || o.code != 1 || c.Shared < 1023 || c.Shared > 1024 || len(c.Differ) == 0 {
		t.Errorf("diff: %+v, %v", o, err)
	}
	if o := p.run("snapshot", "diff", whole.Handle, whole.Handle); o.code != 0 {
		t.Errorf("diff of one handle: %+v", o)
	}
}

// What one place exports, in either form, another takes in and resumes to the same text.
func TestExportImport(t *testing.T) {
	p := newPlace(t, fixture(t, "odd"))
	file := document(t, 600, 4)
	first := p.ingest(file)
	want := p.resume(first.Handle, "--max-tokens", "5")
	at := t.TempDir()
	for _, form := range []string{filepath.Join(at, "book.safetensors"), filepath.Join(at, "book")} {
		p.must("snapshot", "export", first.Handle, form)
		other := newPlace(t, p.model)
		handle := other.must("snapshot", "import", form)
		if handle != first.Handle {
			t.Errorf("%s gives the handle %s, not %s", form, handle, first.Handle)
		}
		if got := other.resume(handle, "--max-tokens", "5"); !slices.Equal(got.IDs, want.IDs) || got.Usage.Restored != 600 {
			t.Errorf("%s: %+v, want %v", form, got, want.IDs)
		}
		other.must("snapshot", "verify", "--probe", handle)
	}
	asStore := newPlace(t, p.model)
	if got := asStore.resume(first.Handle, "--max-tokens", "5", "--store", filepath.Join(at, "book")); !slices.Equal(got.IDs, want.IDs) {
		t.Errorf("the folder as a store: %+v", got)
	}
	path := filepath.Join(at, "book.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	other := newPlace(t, p.model)
	if o := other.run("snapshot", "import", path); o.code != 2 || !strings.Contains(o.err, "damaged") {
		t.Errorf("import of a damaged file: %+v", o)
	}
	if out := other.must("snapshot", "ls", "--json"); out != "" {
		t.Errorf("a damaged file left %s", out)
	}
}

// gc beside writers only marks; alone it takes what no handle reaches, a killed job's leftovers too, and leaves the
// rest to be resumed.
func TestCollect(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	gone, stays := p.ingest(document(t, 700, 5)), p.ingest(document(t, 600, 6))
	leftover := filepath.Join(p.data, "store", "default", "rolling", "job-that-died", "x")
	if err := os.MkdirAll(filepath.Dir(leftover), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(leftover, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.must("snapshot", "rm", gone.Handle)
	type counts struct {
		Objects int   `json:"objects"`
		Bytes   int64 `json:"bytes"`
	}
	type report struct {
		Live, Waiting, Deleted counts
	}
	marked := decode[report](t, p.must("snapshot", "gc", "--json"))
	if marked.Deleted.Objects != 0 || marked.Waiting.Objects == 0 {
		t.Errorf("gc beside writers: %+v", marked)
	}
	if o := p.run("snapshot", "gc", "--grace", "1h"); o.code != 2 {
		t.Errorf("a grace that is too short: %+v", o)
	}
	dry := decode[report](t, p.must("snapshot", "gc", "--json", "--alone", "--dry-run"))
	did := decode[report](t, p.must("snapshot", "gc", "--json", "--alone"))
	if did.Deleted != dry.Deleted || did.Deleted != marked.Waiting || did.Waiting.Objects != 0 {
		t.Errorf("gc alone: %+v, dry run %+v, marked before %+v", did, dry, marked)
	}
	if _, err := os.Stat(leftover); err == nil {
		t.Error("the leftover of a dead job is still there")
	}
	p.must("snapshot", "verify", "--probe", stays.Handle)
	if a := p.resume(stays.Handle, "--max-tokens", "2"); a.Usage.Restored != 600 {
		t.Errorf("resume: %+v", a.Usage)
	}
	if again := p.ingest(document(t, 700, 5)); again.Handle != gone.Handle || again.Tokens.Computed != 700 {
		t.Errorf("the collected document: %+v", again)
	}
}

// Compressed blobs change what is stored and nothing that is named: the handle, the text and the size of the state stay,
// a command without the flag reads them, and show says what they take. The size is known before anything is read.
func TestCompressedStore(t *testing.T) {
	p, plain := newPlace(t, fixture(t, "tiny")), newPlace(t, fixture(t, "tiny"))
	file := document(t, 600, 7)
	said := decode[struct {
		Tokens     int   `json:"tokens"`
		StateBytes int64 `json:"state_bytes"`
	}](t, p.must("ingest", "--tokens", file, "--dry-run", "--json"))
	ring, _ := p.sealKey()
	h := p.ingest(file, "--compress")
	if want := plain.ingest(file); h.Handle != want.Handle {
		t.Errorf("handle %s, uncompressed %s", h.Handle, want.Handle)
	}
	p.must("snapshot", "verify", "--probe", h.Handle)
	if got, want := p.resume(h.Handle, "--max-tokens", "5"), plain.resume(h.Handle, "--max-tokens", "5"); !slices.Equal(got.IDs, want.IDs) {
		t.Errorf("resumed to %v, uncompressed %v", got.IDs, want.IDs)
	}
	if out := p.must("snapshot", "show", h.Handle); !strings.Contains(out, "compressed: 0.") {
		t.Errorf("show says %s", out)
	}
	if out := plain.must("snapshot", "show", h.Handle); strings.Contains(out, "compressed") || !strings.Contains(out, "blobs") {
		t.Errorf("show of uncompressed blobs says %s", out)
	}
	verified := decode[struct {
		Bytes int64 `json:"bytes"`
	}](t, p.must("snapshot", "verify", "--json", h.Handle))
	if said.Tokens != 600 || said.StateBytes < verified.Bytes || said.StateBytes > verified.Bytes+verified.Bytes/100 {
		t.Errorf("predicted %+v, the state has %d bytes", said, verified.Bytes)
	}
	sealed := p.ingest(file, "--compress", "--seal-key", ring).Handle
	if out := p.must("snapshot", "show", sealed, "--seal-key", ring); !strings.Contains(out, "compressed: 0.") {
		t.Errorf("show of sealed blobs says %s", out)
	}
	p.must("snapshot", "verify", "--probe", sealed, "--seal-key", ring)
}
