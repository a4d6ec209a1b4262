package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two tenants with secrets of their own find nothing of one another, even in one store under one name.
func TestSaltedTenants(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	salt := func(fill byte) string {
		path := filepath.Join(t.TempDir(), "salt")
		if err := os.WriteFile(path, bytes.Repeat([]byte{fill}, 32), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := salt(1), salt(2)
	file := document(t, 600, 9)
	first := p.ingest(file, "--salt", one)
	second := p.ingest(file, "--salt", two)
	if second.Tokens.Restored != 0 || second.Tokens.Computed != 600 || second.Handle == first.Handle {
		t.Errorf("another tenant found a prefix: %+v", second)
	}
	if o := p.run("resume", first.Handle, "--max-tokens", "2", "--salt", two); o.code != 2 || !strings.Contains(o.err, "salt") {
		t.Errorf("resume with another salt: %+v", o)
	}
	if a := p.resume(first.Handle, "--max-tokens", "2", "--salt", one); a.Usage.Restored != 600 {
		t.Errorf("resume with the salt: %+v", a.Usage)
	}
	p.must("snapshot", "verify", "--probe", first.Handle, "--salt", one)
	if err := os.Chmod(one, 0o644); err != nil {
		t.Fatal(err)
	}
	if o := p.run("ingest", "--tokens", file, "--salt", one); o.code != 2 || !strings.Contains(o.err, "chmod") {
		t.Errorf("a salt that others may read: %+v", o)
	}
}

// With keys to verify by, only signed handles are used: those that ingest, fork and resume --keep make with a key are.
func TestSignedHandles(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	at := t.TempDir()
	key, keys := filepath.Join(at, "key"), filepath.Join(at, "keys")
	if err := os.WriteFile(keys, []byte("# ours\n"+p.must("snapshot", "key", key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := document(t, 600, 10)
	plain := p.ingest(file)
	believe := []string{"--max-tokens", "2", "--verify-keys", keys}
	if o := p.run(append([]string{"resume", plain.Handle}, believe...)...); o.code != 2 || !strings.Contains(o.err, "not signed") {
		t.Errorf("resume of an unsigned handle: %+v", o)
	}
	p.must("snapshot", "sign", plain.Handle, "--sign-key", key)
	p.resume(plain.Handle, believe...)
	fork := p.must("snapshot", "fork", plain.Handle, "--at", "512", "--sign-key", key)
	kept := p.resume(fork, append(believe, "--keep", "--sign-key", key)...)
	p.resume(kept.Handle, believe...)
	signed := p.ingest(document(t, 30, 11), "--sign-key", key)
	p.must("snapshot", "verify", signed.Handle, "--verify-keys", keys)
	if o := p.run("snapshot", "key", key); o.code != 2 {
		t.Errorf("a key was overwritten: %+v", o)
	}
}

// Signing keys are changed one after the other: while both are believed nothing stops, and what only the old key signed is
// refused, by the ids that were looked for, once its line is gone.
func TestSigningKeysAreChanged(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	at := t.TempDir()
	before, after, keys := filepath.Join(at, "before"), filepath.Join(at, "after"), filepath.Join(at, "keys")
	first, second := p.must("snapshot", "key", before), p.must("snapshot", "key", after)
	believe := func(lines ...string) {
		if err := os.WriteFile(keys, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, both := p.ingest(document(t, 30, 14), "--sign-key", before), p.ingest(document(t, 31, 15), "--sign-key", before)
	p.must("snapshot", "sign", both.Handle, "--sign-key", after)
	believe(first, second)
	p.must("snapshot", "show", old.Handle, "--verify-keys", keys)
	believe("# the new one", second)
	p.must("snapshot", "show", both.Handle, "--verify-keys", keys)
	o := p.run("snapshot", "show", old.Handle, "--verify-keys", keys)
	if o.code != 2 || o.out != "" || !strings.Contains(o.err, "not signed by a known key: looked for ") {
		t.Errorf("signed by a key that is gone: %+v", o)
	}
}

// A signed handle that goes by way of a folder is believed where it arrives.
func TestSignatureTravels(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	at := t.TempDir()
	key, keys, folder := filepath.Join(at, "key"), filepath.Join(at, "keys"), filepath.Join(at, "folder")
	if err := os.WriteFile(keys, []byte(p.must("snapshot", "key", key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	signed := p.ingest(document(t, 30, 11), "--sign-key", key)
	p.must("snapshot", "export", signed.Handle, folder)
	other := newPlace(t, p.model)
	other.must("snapshot", "import", folder)
	other.resume(signed.Handle, "--max-tokens", "2", "--verify-keys", keys)
}
