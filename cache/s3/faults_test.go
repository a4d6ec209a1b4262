package s3_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
)

// A store that refuses checksum headers takes everything in compatible mode, and none that refuses trailers is ever
// sent one.
func TestChecksumsThatAStoreRefuses(t *testing.T) {
	big := strings.Repeat("0123456789", 1<<18)
	for _, c := range []struct {
		refuses, compatible, works bool
	}{{false, false, true}, {false, true, true}, {true, true, true}, {true, false, false}} {
		server := &strict{noChecksums: c.refuses}
		opt := server.serve(t)
		opt.Compatible, opt.Attempts = c.compatible, 2
		s := open(t, opt)
		for _, body := range []string{"", "x", big} {
			err := s.Put(t.Context(), "t/a", strings.NewReader(body), int64(len(body)), cache.Replace)
			if (err == nil) != c.works {
				t.Errorf("%+v: put of %d bytes: %v", c, len(body), err)
			}
			if got, err := read(s, "t/a", 0, -1); c.works && (err != nil || string(got) != body) {
				t.Errorf("%+v: get of %d bytes: %d bytes, %v", c, len(body), len(got), err)
			}
		}
	}
}

// A presigned request carries no checksum that a strict store refuses, and none of an empty body.
func TestPresignedForAStrictStore(t *testing.T) {
	for _, compatible := range []bool{false, true} {
		server := &strict{noChecksums: true}
		opt := server.serve(t)
		opt.Compatible = compatible
		s := open(t, opt)
		up, err := s.PresignPut(t.Context(), "t/a", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		said := up.URL
		for name := range up.Header {
			said += " " + name
		}
		if strings.Contains(strings.ToLower(said), "checksum") {
			t.Errorf("compatible %v: %s", compatible, said)
		}
		if code, text := send(t, up, "the body"); code != http.StatusOK {
			t.Errorf("compatible %v: put answers %d %s", compatible, code, text)
		}
		down, err := s.PresignGet(t.Context(), "t/a", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if code, got := send(t, down, ""); code != http.StatusOK || got != "the body" {
			t.Errorf("compatible %v: get answers %d %q", compatible, code, got)
		}
	}
}

// Presigned URLs of what a snapshot needs read it from a strict store, every blob with its digest.
func TestPresignedSnapshot(t *testing.T) {
	s := open(t, (&strict{noChecksums: true}).serveCompatible(t))
	_, m, err := (&cachetest.Document{Space: &cache.Space{Store: s}, Tokens: cachetest.Count(3, 20)}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Pieces() {
		url, err := s.PresignGet(t.Context(), "default/blobs/"+p.Blob.Digest.String(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if code, got := send(t, url, ""); code != http.StatusOK || cache.Sum([]byte(got)) != p.Blob.Digest {
			t.Errorf("blob %s: get answers %d with %d bytes", p.Blob.Digest, code, len(got))
		}
	}
}

// said is a body that says a digest.
type said struct {
	*strings.Reader
	digest cache.Digest
}

func (s said) SHA256() (cache.Digest, bool) { return s.digest, true }

// A body's own digest is what the store is told, so that bytes which have changed since are refused and never stored.
func TestBodyThatSaysItsDigest(t *testing.T) {
	server := &strict{}
	opt := server.serve(t)
	opt.Attempts = 2
	s := open(t, opt)
	put := func(name, body, of string) error {
		return s.Put(t.Context(), name, said{strings.NewReader(body), cache.Sum([]byte(of))}, int64(len(of)), cache.IfAbsent)
	}
	if err := put("t/a", "the body", "the body"); err != nil || string(server.objects["t/a"]) != "the body" {
		t.Errorf("put: %v; stored %q", err, server.objects["t/a"])
	}
	for _, damaged := range []string{"the bodY", "the bod", "the body "} {
		if err := put("t/b", damaged, "the body"); err == nil || server.objects["t/b"] != nil {
			t.Errorf("put of %q: %v; stored %q", damaged, err, server.objects["t/b"])
		}
	}
}

// Whatever fails for a passing reason is done again, with the same bytes.
func TestPassingFaults(t *testing.T) {
	body := bytes.Repeat([]byte("body "), 100)
	for _, f := range []fault{
		{method: "PUT", status: 503, code: "SlowDown"},
		{method: "PUT", status: 500, code: "InternalError"},
		{method: "PUT", status: 409, code: "ConditionalRequestConflict"},
		{method: "PUT", status: 400, code: "XAmzContentSHA256Mismatch"},
		{method: "PUT", slow: true},
		{method: "GET", status: 503, code: "SlowDown"},
		{method: "GET", cut: true},
		{method: "GET", short: 3},
		{method: "GET", slow: true},
		{method: "HEAD", status: 503},
		{method: "DELETE", status: 503, code: "SlowDown"},
	} {
		server := &strict{faults: []fault{f}}
		opt := server.serve(t)
		if f.slow {
			opt.Timeout = 100 * time.Millisecond
		}
		s := open(t, opt)
		if err := s.Put(t.Context(), "t/a", bytes.NewReader(body), int64(len(body)), cache.IfAbsent); err != nil {
			t.Errorf("%+v: put: %v", f, err)
		}
		for _, sent := range server.put {
			if !bytes.Equal(sent, body) {
				t.Errorf("%+v: a try sent other bytes", f)
			}
		}
		if got, err := read(s, "t/a", 0, -1); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%+v: get: %d bytes, %v", f, len(got), err)
		}
		if o, err := s.Stat(t.Context(), "t/a"); err != nil || o.Size != int64(len(body)) {
			t.Errorf("%+v: stat: %+v, %v", f, o, err)
		}
		if err := s.Delete(t.Context(), "t/a"); err != nil {
			t.Errorf("%+v: delete: %v", f, err)
		}
		if len(server.faults) != 0 {
			t.Errorf("%+v was not met", f)
		}
	}
}

// A put-if-absent whose answer was lost finds its own object, and says that one is there.
func TestLostAnswer(t *testing.T) {
	server := &strict{faults: []fault{{method: "PUT", status: 503, code: "SlowDown", after: true}}}
	s := open(t, server.serve(t))
	if err := s.Put(t.Context(), "t/a", strings.NewReader("body"), 4, cache.IfAbsent); !errors.Is(err, cache.ErrExists) {
		t.Errorf("put: %v, want ErrExists", err)
	}
	if got, err := read(s, "t/a", 0, -1); err != nil || string(got) != "body" {
		t.Errorf("get: %q, %v", got, err)
	}
}

// What does not pass is not tried for ever, and what cannot pass is tried once.
func TestTriesAreBounded(t *testing.T) {
	for _, c := range []struct {
		f     fault
		tries int
		says  string
	}{
		{fault{method: "PUT", status: 503, code: "SlowDown"}, 3, "3 tries"},
		{fault{method: "PUT", status: 403, code: "AccessDenied"}, 1, "do not allow"},
		{fault{method: "PUT", status: 400, code: "InvalidArgument"}, 1, "InvalidArgument"},
	} {
		server := &strict{faults: []fault{c.f, c.f, c.f, c.f, c.f}}
		opt := server.serve(t)
		opt.Attempts = 3
		err := open(t, opt).Put(t.Context(), "t/a", strings.NewReader("x"), 1, cache.IfAbsent)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "t/a") {
			t.Errorf("%+v: %v", c.f, err)
		}
		if n := server.count(http.MethodPut); n != c.tries {
			t.Errorf("%+v: %d tries, want %d", c.f, n, c.tries)
		}
	}
}

// The caller's end of patience is told from the store's.
func TestSlowStore(t *testing.T) {
	slow := fault{method: "GET", slow: true}
	server := &strict{faults: []fault{slow, slow, slow, slow}}
	opt := server.serve(t)
	opt.Attempts, opt.Timeout = 2, 50*time.Millisecond
	s := open(t, opt)
	_, err := read(s, "t/a", 0, -1)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("get: %v", err)
	}
	opt.Timeout = time.Minute
	s = open(t, opt)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx, "t/a", 0, -1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get with a deadline: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, stop)
	if _, err := s.Get(ctx, "t/a", 0, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled get: %v", err)
	}
}

func TestWrongChecksum(t *testing.T) {
	server := &strict{wrongChecksum: true}
	s := open(t, server.serve(t))
	err := s.Put(t.Context(), "t/a", strings.NewReader("x"), 1, cache.IfAbsent)
	if err == nil || !strings.Contains(err.Error(), "damages") {
		t.Errorf("put: %v", err)
	}
}

// A standing object of megabytes costs no upload.
func TestStandingObjectIsNotSentAgain(t *testing.T) {
	server := &strict{}
	s := open(t, server.serve(t))
	body := strings.Repeat("x", 1<<20)
	put(t, s, "t/a", body)
	if err := s.Put(t.Context(), "t/a", strings.NewReader(body), int64(len(body)), cache.IfAbsent); !errors.Is(err, cache.ErrExists) {
		t.Errorf("second put: %v", err)
	}
	if n := server.count(http.MethodPut); n != 1 {
		t.Errorf("%d uploads", n)
	}
}

// An object that is written again while it is read in parts is an error, never a mixture.
func TestObjectChangesWhileRead(t *testing.T) {
	server := &strict{}
	opt := server.serve(t)
	opt.Part, opt.Parallel = 10, 1
	s := open(t, opt)
	put(t, s, "t/a", strings.Repeat("old", 40))
	r, err := s.Get(t.Context(), "t/a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := s.Put(t.Context(), "t/a", strings.NewReader(strings.Repeat("new", 40)), 120, cache.Replace); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	n := 0
	for err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	if !strings.Contains(err.Error(), "written again") || strings.Contains(string(buf[:n]), "new") {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}

// Probe lists everything that a bucket lacks, by what a user knows it as.
func TestProbeListsWhatIsMissing(t *testing.T) {
	deny := func(method string) fault { return fault{method: method, status: 403, code: "AccessDenied"} }
	for _, c := range []struct {
		server *strict
		says   []string
	}{
		{&strict{noConditions: true}, []string{"put if absent", "If-None-Match"}},
		{&strict{noRanges: true}, []string{"get ranges"}},
		{&strict{faults: []fault{deny("PUT")}}, []string{"cannot put", "do not allow"}},
		{&strict{faults: []fault{deny("DELETE"), deny("GET"), deny("GET")}}, []string{"get ranges", "list", "delete"}},
	} {
		opt := c.server.serve(t)
		err := open(t, opt).Probe(t.Context())
		for _, want := range append(c.says, "s3://bucket") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Probe: %v, want it to say %q", err, want)
			}
		}
	}
}
