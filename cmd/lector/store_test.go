package main

import (
	"bytes"
	"strings"
	"testing"

	"lector/cache/s3"
)

func TestParseBucket(t *testing.T) {
	for address, want := range map[string]s3.Options{
		"s3://b":                             {Bucket: "b"},
		"s3://b/p/q/?region=r":               {Bucket: "b", Prefix: "p/q", Region: "r"},
		"s3://b?endpoint=http://127.0.0.1:9": {Bucket: "b", Endpoint: "http://127.0.0.1:9", PathStyle: true, Compatible: true},
		"s3://b?endpoint=https://h&path_style=false&compatible=false": {Bucket: "b", Endpoint: "https://h"},
		"s3://b?path_style=true": {Bucket: "b", PathStyle: true},
	} {
		if got, err := parseBucket(address); err != nil || got != want {
			t.Errorf("%s: %+v, %v", address, got, err)
		}
	}
	for address, says := range map[string]string{
		"s3:///p":                   "no bucket",
		"s3://b?regoin=r":           "regoin",
		"s3://b?region=":            "region",
		"s3://b?region=a&region=b":  "region",
		"s3://b?endpoint=localhost": "endpoint",
		"s3://b?path_style=perhaps": "perhaps",
		"s3://key:secret@b/p":       "credentials",
	} {
		_, err := parseBucket(address)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want it to say %q and no secret", address, err, says)
		}
	}
}

// A store that does not wait for the disk says so, and what cannot be said of a store is one error.
func TestStoreSync(t *testing.T) {
	for _, c := range []struct {
		store, sync, said string
		code              int
	}{
		{t.TempDir(), syncDisk, "", exitOK},
		{t.TempDir(), syncNone, "does not wait for the disk", exitOK},
		{t.TempDir(), "often", "--store-sync often: it is disk or none", exitInput},
		{"s3://bucket/x", syncNone, "a bucket's server says when it has stored", exitInput},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"snapshot", "ls", "--store", c.store, "--store-sync", c.sync}, streams{out: &out, err: &errs})
		if code != c.code || !strings.Contains(errs.String(), c.said) || strings.Contains(errs.String(), "wait") != (c.sync == syncNone && code == exitOK) || code != exitOK && strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("--store %s --store-sync %s: exit code %d, %s", c.store, c.sync, code, &errs)
		}
	}
}
