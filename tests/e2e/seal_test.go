package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lector/cache/s3/s3test"
)

// sealKey makes a key file and returns its name and the key's id.
func (p place) sealKey(args ...string) (file, id string) {
	p.t.Helper()
	file = filepath.Join(p.t.TempDir(), "ring")
	return file, p.must(append([]string{"snapshot", "seal-key", file}, args...)...)
}

// refused wants exit code 2, nothing on standard output and one line that says all of it.
func (p place) refused(o output, says ...string) {
	p.t.Helper()
	if o.code != 2 || o.out != "" || strings.Count(o.err, "\n") != 1 {
		p.t.Errorf("exits with %d, prints %q, says %q", o.code, o.out, o.err)
	}
	for _, s := range says {
		if !strings.Contains(o.err, s) {
			p.t.Errorf("says %q, want %q", o.err, s)
		}
	}
}

// Every command works on a sealed tenant; without its key, or with another, each is refused with the key's id.
func TestSealedTenant(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	ring, id := p.sealKey()
	other, otherID := p.sealKey()
	file := document(t, 600, 3)
	first := p.ingest(file, "--seal-key", ring)
	if again := p.ingest(file, "--seal-key", ring); again.Handle != first.Handle || again.Tokens.Computed != 0 {
		t.Errorf("read again: %+v", again)
	}
	plain := newPlace(t, p.model)
	want := plain.resume(plain.ingest(file).Handle, "--max-tokens", "5")
	if got := p.resume(first.Handle, "--max-tokens", "5", "--seal-key", ring); !slices.Equal(got.IDs, want.IDs) || got.Usage.Restored != 600 {
		t.Errorf("resumed to %v, unsealed %v", got.IDs, want.IDs)
	}
	fork := p.must("snapshot", "fork", first.Handle, "--at", "512", "--seal-key", ring)
	at := t.TempDir()
	for _, c := range [][]string{
		{"ls"}, {"show", first.Handle}, {"verify", "--probe", first.Handle}, {"diff", first.Handle, first.Handle}, {"gc", "--alone"},
		{"tag", "book", fork}, {"tag"}, {"export", first.Handle, filepath.Join(at, "a.safetensors")}, {"export", "book", filepath.Join(at, "folder")},
	} {
		args := append([]string{"snapshot"}, c...)
		p.refused(p.run(args...), id, "--seal-key")
		p.must(append(args, "--seal-key", ring)...)
	}
	p.refused(p.run("snapshot", "ls", "--seal-key", other), id, otherID)
	p.refused(p.run("ingest", "--tokens", file), id)
	p.refused(p.run("resume", first.Handle), id)
	elsewhere := newPlace(t, p.model)
	for _, form := range []string{"a.safetensors", "folder"} {
		elsewhere.must("snapshot", "import", filepath.Join(at, form), "--seal-key", other)
	}
	elsewhere.must("snapshot", "verify", first.Handle, "--seal-key", other)
}

// After a rotation what is new is sealed with the new key, and what is old opens while its key is in the file; stored
// anew, it does without.
func TestSealKeyRotation(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	ring, oldID := p.sealKey()
	file := document(t, 600, 4)
	old := p.ingest(file, "--seal-key", ring)
	newID := p.must("snapshot", "seal-key", "--rotate", ring)
	if a := p.resume(old.Handle, "--max-tokens", "2", "--seal-key", ring); a.Usage.Restored != 600 {
		t.Errorf("old handle: %+v", a.Usage)
	}
	p.must("snapshot", "verify", "--probe", old.Handle, "--seal-key", ring)
	p.refused(p.run("snapshot", "fork", old.Handle, "--at", "512", "--seal-key", ring), "reseal")
	p.refused(p.run("resume", old.Handle, "--keep", "--seal-key", ring), "reseal")
	moved := p.must("snapshot", "reseal", old.Handle, "--seal-key", ring)
	fresh := p.ingest(file, "--seal-key", ring)
	if fresh.Handle == old.Handle || fresh.Handle != moved || fresh.Tokens.Computed != 600 {
		t.Errorf("under the new key: %+v, resealed as %s", fresh, moved)
	}
	text, err := os.ReadFile(ring)
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(t.TempDir(), "ring")
	line, _, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(alone, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	p.must("snapshot", "verify", "--probe", moved, "--seal-key", alone)
	p.refused(p.run("resume", old.Handle, "--max-tokens", "2", "--seal-key", alone), oldID, newID)
}

// A key can lie wrapped: by a master key or for an age recipient.
func TestWrappedSealKey(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	master := filepath.Join(t.TempDir(), "master")
	p.must("snapshot", "master-key", master)
	ring, id := p.sealKey("--seal-identity", master)
	p.refused(p.run("snapshot", "ls", "--seal-key", ring), id, "--seal-identity")
	h := p.ingest(document(t, 30, 5), "--seal-key", ring, "--seal-identity", master).Handle
	p.must("snapshot", "verify", h, "--seal-key", ring, "--seal-identity", master)
	p.refused(p.run("snapshot", "seal-key", filepath.Join(t.TempDir(), "x"), "--recipient", "nobody"), "--recipient")
	p.refused(p.run("snapshot", "seal-key", ring), "exists")
}

// A sealed tenant in a bucket is shared by machines that have the key.
func TestSealedBucket(t *testing.T) {
	server := s3test.Start(t)
	store := "s3://" + server.Bucket(t) + "/sealed?endpoint=" + server.Endpoint
	first := elsewhere(t, fixture(t, "tiny"), store)
	ring, id := first.sealKey()
	h := first.ingest(document(t, 600, 3), "--seal-key", ring).Handle
	other := elsewhere(t, first.model, store)
	if a := other.resume(h, "--tokens", "3,4,5", "--max-tokens", "4", "--seal-key", ring); a.Usage.Restored != 600 {
		t.Errorf("second machine resumes: %+v", a.Usage)
	}
	other.refused(other.run("snapshot", "ls"), id)
	other.must("snapshot", "gc", "--alone", "--seal-key", ring)
	other.must("snapshot", "verify", "--probe", h, "--seal-key", ring)
}
