package main

import (
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
