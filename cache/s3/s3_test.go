package s3_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/s3"
	"lector/cache/s3/s3test"
)

// options are those of a new bucket on the server.
func options(t *testing.T, server *s3test.Server) s3.Options {
	t.Helper()
	return s3.Options{
		Bucket: server.Bucket(t), Endpoint: server.Endpoint, PathStyle: true,
		AccessKey: server.AccessKey, SecretKey: server.SecretKey, Backoff: time.Millisecond,
	}
}

func open(t *testing.T, opt s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) {
	server := s3test.Start(t)
	for _, c := range []struct {
		name string
		set  func(*s3.Options)
	}{
		{"whole bucket", func(*s3.Options) {}},
		{"prefix, compatible, small parts", func(o *s3.Options) { o.Prefix, o.Compatible, o.Part = "a/b", true, 100_000 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cachetest.Run(t, func(t *testing.T) cache.Store {
				opt := options(t, server)
				c.set(&opt)
				return open(t, opt)
			})
		})
	}
}

// Two stores of one bucket under two prefixes do not see each other.
func TestPrefixesAreApart(t *testing.T) {
	opt := options(t, s3test.Start(t))
	opt.Prefix = "one"
	one := open(t, opt)
	opt.Prefix = "/on/"
	two := open(t, opt)
	put(t, one, "t/a", "of one")
	for o, err := range two.List(t.Context(), "") {
		t.Errorf("the other store lists %+v, %v", o, err)
	}
	if _, err := two.Stat(t.Context(), "t/a"); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("Stat: %v", err)
	}
}

func TestProbeFindsAFitBucket(t *testing.T) {
	s := open(t, options(t, s3test.Start(t)))
	if err := s.Probe(t.Context()); err != nil {
		t.Errorf("Probe: %v", err)
	}
	for o := range s.List(t.Context(), "") {
		t.Errorf("Probe left %s", o.Name)
	}
}

func TestProbeNamesTheFault(t *testing.T) {
	server := s3test.Start(t)
	bad := options(t, server)
	bad.SecretKey = "wrong"
	none := options(t, server)
	none.Bucket = "no-such-bucket"
	for want, opt := range map[string]s3.Options{"credentials": bad, "bucket does not exist": none} {
		err := open(t, opt).Probe(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, cache.ErrNotFound) {
			t.Errorf("Probe: %v, want it to say %q", err, want)
		}
	}
}

// An object of many parts comes back whole, from any place, and gives up when its reader does.
func TestManyParts(t *testing.T) {
	opt := options(t, s3test.Start(t))
	opt.Part, opt.Parallel = 1000, 3
	s := open(t, opt)
	body := make([]byte, 25_500)
	rand.Read(body)
	put(t, s, "t/a", string(body))
	for _, c := range [][2]int64{{0, -1}, {0, 25_500}, {999, 1002}, {1, 24_999}, {20_000, -1}, {24_500, 1000}} {
		got, err := read(s, "t/a", c[0], c[1])
		want := body[c[0]:]
		if c[1] >= 0 {
			want = want[:c[1]]
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("Get(%d, %d): %d bytes, %v; want %d", c[0], c[1], len(got), err, len(want))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := s.Get(ctx, "t/a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("read after cancel: %v", err)
	}
}

// Presigned requests work from a client that knows nothing of S3, and a second put finds the name taken.
func TestPresigned(t *testing.T) {
	for _, compatible := range []bool{false, true} {
		opt := options(t, s3test.Start(t))
		opt.Compatible = compatible
		s := open(t, opt)
		up, err := s.PresignPut(t.Context(), "t/a", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if code, _ := send(t, up, "the body"); code != http.StatusOK {
			t.Errorf("put answers %d", code)
		}
		if code, _ := send(t, up, "another"); code != http.StatusPreconditionFailed {
			t.Errorf("second put answers %d", code)
		}
		down, err := s.PresignGet(t.Context(), "t/a", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if code, got := send(t, down, ""); code != http.StatusOK || got != "the body" {
			t.Errorf("get answers %d %q", code, got)
		}
		if _, err := s.PresignGet(t.Context(), "t/a", 8*24*time.Hour); err == nil {
			t.Error("a life of eight days was taken")
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, opt := range map[string]s3.Options{
		"no bucket": {Region: "r"}, "bucket with a path": {Bucket: "a/b", Region: "r"}, "prefix": {Bucket: "a", Prefix: "x//y", Region: "r"},
	} {
		if _, err := s3.Open(t.Context(), opt); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func send(t *testing.T, p s3.Presigned, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), p.Method, p.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range p.Header {
		req.Header[k] = v
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

func put(t *testing.T, s cache.Store, name, body string) {
	t.Helper()
	if err := s.Put(t.Context(), name, strings.NewReader(body), int64(len(body)), cache.IfAbsent); err != nil {
		t.Fatalf("Put(%s): %v", name, err)
	}
}

func read(s cache.Store, name string, off, n int64) ([]byte, error) {
	r, err := s.Get(context.Background(), name, off, n)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
