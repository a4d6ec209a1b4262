package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lector/cache/s3/s3test"
)

// Documents that lie in a bucket are submitted by name or by prefix, with the settings of the store or with their own, and
// read like any others.
func TestSubmitFromBucket(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t)
	texts := map[string]string{"docs/a.txt": "The first of two.", "docs/deep/b.txt": "The second lies deeper, and is longer."}
	for name, text := range texts {
		file := filepath.Join(server.Folder(bucket), filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := elsewhere(t, "nano", "s3://"+bucket+"/snapshots?endpoint="+server.Endpoint)
	one := p.must("submit", "s3://"+bucket+"/docs/a.txt")
	both := strings.Fields(p.must("submit", "s3://"+bucket+"/docs/"))
	if len(both) != 2 || both[0] != one && both[1] != one {
		t.Fatalf("a prefix gives the jobs %v, one of which is to be %s", both, one)
	}
	again := p.must("submit", "s3://"+bucket+"/docs/deep/b.txt?endpoint="+server.Endpoint)
	if again != both[0] && again != both[1] {
		t.Errorf("the same object by an address of its own is job %s, not one of %v", again, both)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"s3://" + bucket + "/docs/none.txt"}, "fetch s3://" + bucket + "/docs/none.txt"},
		{[]string{"s3://" + bucket + "/nothing/"}, "there is nothing under"},
		{[]string{"s3://nowhere/a.txt"}, "bucket does not exist"},
		{[]string{"s3://" + bucket + "/docs/a.txt", "--max-bytes", "5"}, "more than 5 B"},
	} {
		if o := p.run(append([]string{"submit"}, c.args...)...); o.code != 2 || !strings.Contains(o.err, c.want) {
			t.Errorf("submit %v exits with %d: %s", c.args, o.code, o.err)
		}
	}
	p.worker()
	for _, job := range both {
		if said := p.must("jobs", "wait", "--timeout", "60s", job); !strings.Contains(said, "done: the state of") {
			t.Errorf("the job ends with %q", said)
		}
	}
	if said := p.must("jobs", "show", one); !strings.Contains(said, "read a.txt") {
		t.Errorf("the job is shown as %q", said)
	}
}
