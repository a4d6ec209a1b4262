package e2e_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lector/cache/s3/s3test"
)

// elsewhere is another machine's view: an empty data folder, and a store in a bucket.
func elsewhere(t *testing.T, model, store string) place {
	t.Setenv("LECTOR_STORE", store)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "testsecret")
	return newPlace(t, model)
}

// A document that one machine reads is known to another by nothing but its handle and the bucket.
func TestBucketIsShared(t *testing.T) {
	server := s3test.Start(t)
	store := "s3://" + server.Bucket(t) + "/snapshots?endpoint=" + server.Endpoint
	model := fixture(t, "tiny")
	file := document(t, 700, 3)
	first := elsewhere(t, model, store).ingest(file)
	if first.Tokens.Computed != 700 {
		t.Errorf("first machine: %+v", first.Tokens)
	}
	other := elsewhere(t, model, store)
	a := other.resume(first.Handle, "--tokens", "3,4,5", "--max-tokens", "4")
	if a.Usage.Restored != 700 || a.Usage.Prefilled != 3 || a.Usage.Generated != 4 {
		t.Errorf("second machine resumes: %+v", a.Usage)
	}
	if again := other.ingest(file); again.Handle != first.Handle || again.Tokens.Computed != 0 || again.WrittenBytes != 0 {
		t.Errorf("second machine reads the same document: %+v", again)
	}
	if entries, err := os.ReadDir(other.data + "/store"); err == nil {
		t.Errorf("a local store was made: %v", entries)
	}
}

// A bucket that is not there is said before any work is done.
func TestBucketIsMissing(t *testing.T) {
	server := s3test.Start(t)
	p := elsewhere(t, fixture(t, "tiny"), "s3://nowhere?endpoint="+server.Endpoint)
	o := p.run("ingest", "--tokens", document(t, 5, 1))
	if o.code == 0 || !strings.Contains(o.err, "bucket does not exist") {
		t.Errorf("exits with %d: %s", o.code, o.err)
	}
}

// A reader that is killed at any moment is followed by another machine, which has the bucket alone: it goes on from
// what was stored, and comes to the handle of a calm run.
func TestKilledAndContinuedElsewhere(t *testing.T) {
	server := s3test.Start(t)
	store := "s3://" + server.Bucket(t) + "/kills?endpoint=" + server.Endpoint
	file := document(t, 4*grid+100, 3)
	calm := newPlace(t, fixture(t, "tiny"))
	began := time.Now()
	want := calm.ingest(file)
	took := time.Since(began)
	r := rand.New(rand.NewPCG(5, 9))
	durable := 0
	for range 4 {
		p := elsewhere(t, calm.model, store)
		c := p.command("ingest", "--json", "--tokens", file)
		var errs bytes.Buffer
		c.Stderr = &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration((0.3 + 0.5*r.Float64()) * float64(took)))
		c.Process.Kill()
		c.Wait()
		durable = p.repeatsAtMostOneChunk(errs.String(), durable)
	}
	p := elsewhere(t, calm.model, store)
	o := p.run("ingest", "--json", "--tokens", file)
	p.repeatsAtMostOneChunk(o.err, durable)
	if o.code != 0 {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	if got := decode[receipt](t, o.out); got.Handle != want.Handle {
		t.Errorf("handle %s, want %s", got.Handle, want.Handle)
	}
	p.must("snapshot", "verify", "--probe", want.Handle)
	p.must("snapshot", "gc", "--alone")
	p.must("snapshot", "verify", want.Handle)
}

// A machine reads again what it has stored from its own disk, also where the bucket's blobs are gone; another one, or
// the same one without --local-cache, says what is missing. Nothing stays in the spool.
func TestCopiesAreNear(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t)
	p := elsewhere(t, fixture(t, "tiny"), "s3://"+bucket+"/near?endpoint="+server.Endpoint)
	first := p.ingest(document(t, 700, 3))
	for folder, want := range map[string]bool{"spool": false, "copies": true} {
		entries, err := os.ReadDir(filepath.Join(p.data, folder))
		if err != nil || len(entries) > 1 != want { // beside its lock
			t.Errorf("%s holds %v (%v)", folder, entries, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(server.Folder(bucket), "near", "default", "blobs")); err != nil {
		t.Fatal(err)
	}
	if got := p.resume(first.Handle, "--tokens", "3,4,5", "--max-tokens", "4"); got.Usage.Restored != 700 {
		t.Errorf("from its own copies: %+v", got.Usage)
	}
	for _, args := range [][]string{{"snapshot", "verify", first.Handle}, {"resume", first.Handle, "--tokens", "3", "--local-cache", "off"}} {
		if o := p.run(args...); o.code == 0 || !strings.Contains(o.err, "missing") {
			t.Errorf("%v exits with %d: %s", args, o.code, o.err)
		}
	}
	if o := p.run("ingest", "--tokens", document(t, 5, 1), "--spool", "1K"); o.code != 2 || !strings.Contains(o.err, "one chunk of model") {
		t.Errorf("a spool that holds no chunk: %d, %s", o.code, o.err)
	}
}
