package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"lector/cache/s3/s3test"
)

// remote is a line of snapshot urls --json.
type remote struct {
	Object, Digest, URL string
	Bytes               int64
	Header              http.Header
}

// fetch reads a URL as a client does that knows nothing of the store, and returns the digest of its bytes.
func (r remote) fetch(t *testing.T) (int, string, int64) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = r.Header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h := sha256.New()
	n, err := io.Copy(h, resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, hex.EncodeToString(h.Sum(nil)), n
}

// The URLs of a snapshot read all of it without credentials, every object with its digest, until they expire.
func TestSnapshotURLs(t *testing.T) {
	server := s3test.Start(t)
	p := elsewhere(t, fixture(t, "tiny"), "s3://"+server.Bucket(t)+"/u?endpoint="+server.Endpoint)
	handle := p.ingest(document(t, 600, 5)).Handle
	kinds, bytes := map[string]int{}, int64(0)
	dec := json.NewDecoder(strings.NewReader(p.must("snapshot", "urls", handle, "--json")))
	for dec.More() {
		var r remote
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if status, digest, n := r.fetch(t); status != http.StatusOK || digest != r.Digest || n != r.Bytes {
			t.Errorf("%s %s of %d bytes: answers %d with %d bytes of %s", r.Object, r.Digest, r.Bytes, status, n, digest)
		}
		kinds[r.Object]++
		if r.Object == "blob" {
			bytes += r.Bytes
		}
		r.URL = strings.Replace(r.URL, r.Digest[:4], "0000", 1)
		if status, _, _ := r.fetch(t); status != http.StatusForbidden {
			t.Errorf("the signature of %s reads another object: %d", r.Digest, status)
		}
	}
	shown := decode[struct{ Bytes int64 }](t, p.must("snapshot", "show", handle, "--json"))
	if kinds["handle"] != 1 || kinds["manifest"] != 1 || kinds["blob"] < 3 || bytes != shown.Bytes {
		t.Errorf("URLs of %v read %d bytes of a state of %d", kinds, bytes, shown.Bytes)
	}
	if o := p.run("snapshot", "urls", handle, "--expires", "200h"); o.code != 2 || !strings.Contains(o.err, "--expires") {
		t.Errorf("200 hours: exits with %d: %s", o.code, o.err)
	}
}

// A folder has no URLs, and what lies compressed in a bucket is no object of that digest.
func TestSnapshotURLsRefused(t *testing.T) {
	model, file := fixture(t, "tiny"), document(t, 40, 6)
	p := newPlace(t, model)
	if o := p.run("snapshot", "urls", p.ingest(file).Handle); o.code != 2 || !strings.Contains(o.err, "snapshot export") {
		t.Errorf("a folder: exits with %d: %s", o.code, o.err)
	}
	server := s3test.Start(t)
	q := elsewhere(t, model, "s3://"+server.Bucket(t)+"?endpoint="+server.Endpoint)
	handle := q.ingest(file, "--compress").Handle
	if o := q.run("snapshot", "urls", handle); o.code != 2 || !strings.Contains(o.err, "compressed") {
		t.Errorf("compressed: exits with %d: %s", o.code, o.err)
	}
	key := t.TempDir() + "/key"
	q.must("snapshot", "seal-key", key)
	if o := q.run("snapshot", "urls", handle, "--seal-key", key); o.code != 2 || !strings.Contains(o.err, "sealed") {
		t.Errorf("sealed: exits with %d: %s", o.code, o.err)
	}
	if _, err := os.Stat(key); err != nil {
		t.Error(err)
	}
}
