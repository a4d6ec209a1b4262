package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A node that another host computed otherwise is an alarm with both digests, never an overwrite: the ingest says so and
// fails, and what stands stays. The other host is this one with its node's probe edited, as a whole node.
func TestHostsThatDisagree(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	file := document(t, 40, 8)
	p.ingest(file)
	node := p.stored("nodes")[0]
	edit(t, node, func(b []byte) []byte {
		i := bytes.LastIndex(b, []byte(`,"sum":`))
		at := bytes.Index(b, []byte(`"next":`)) + len(`"next":`)
		b[at] = map[bool]byte{true: '2', false: '1'}[b[at] == '1']
		sum := sha256.Sum256(append(bytes.Clone(b[:i]), '}'))
		return append(b[:i:i], `,"sum":"`+hex.EncodeToString(sum[:])+`"}`...)
	})
	for _, name := range p.stored("blobs") {
		remove(t, name) // so that nothing can be restored, and the host computes the node itself
	}
	before, err := os.ReadFile(node)
	if err != nil {
		t.Fatal(err)
	}
	other := newPlace(t, p.model)
	o := other.run("ingest", "--json", "--tokens", file, "--store", filepath.Join(p.data, "store"))
	stored := sha256.Sum256(before)
	if o.code != 1 || o.out != "" {
		t.Errorf("exits with %d and prints %q", o.code, o.out)
	}
	for _, want := range []string{"ALARM: two computations differ", filepath.Base(node), "tokens [0, 40), probe", "stored " + hex.EncodeToString(stored[:]), "computed on"} {
		if !strings.Contains(o.err, want) {
			t.Errorf("says %q, want %q", o.err, want)
		}
	}
	if after, err := os.ReadFile(node); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the standing node was changed: %v", err)
	}
	if !json.Valid(before) {
		t.Error("the edited node is no JSON")
	}
}
