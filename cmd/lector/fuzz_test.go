package main

import (
	"net/url"
	"strings"
	"testing"
)

// An address of a bucket names one, or is refused in one line that holds no password.
func FuzzParseBucket(f *testing.F) {
	for _, s := range []string{
		"s3://bucket/prefix?region=eu-1", "s3://bucket?endpoint=http://127.0.0.1:7070&path_style=true&compatible=false", "s3://u:secret@bucket",
		"s3://b?region=x&region=y", "s3://b?path_style=maybe", "s3:///x", "s3://b#f", "s3://b?endpoint=ftp://x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		opt, err := parseBucket(address)
		if err == nil && (opt.Bucket == "" || strings.HasPrefix(opt.Prefix, "/") || strings.HasSuffix(opt.Prefix, "/")) {
			t.Fatalf("%q is %+v", address, opt)
		}
		u, perr := url.Parse(address)
		if err == nil || perr != nil || u.User == nil {
			return
		}
		if p, set := u.User.Password(); set && len(p) > 6 && strings.Contains(err.Error(), p) {
			t.Fatalf("%q: the message holds the password: %v", address, err)
		}
	})
}

// Token ids are numbers of 32 bits, or an error that quotes little.
func FuzzParseTokens(f *testing.F) {
	for _, s := range []string{"1,2,3", "[1, 2]", "1 2\n3", "[1.5]", "99999999999", "[null]", ",", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := parseTokens(s)
		if err != nil && len(ids) > 0 || len(ids) > len(s) {
			t.Fatalf("%q: %d ids, %v", s, len(ids), err)
		}
	})
}
