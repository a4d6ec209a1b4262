package s3_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lector/cache/s3"
)

// strict is a small server of the protocol that refuses what some compatible stores refuse, and misbehaves when told
// to. It checks no signature, but holds every body against what was signed.
type strict struct {
	noChecksums   bool // refuse checksum headers
	noConditions  bool // ignore If-None-Match
	noRanges      bool // ignore Range
	wrongChecksum bool // say that other bytes were kept

	mu      sync.Mutex
	objects map[string][]byte
	faults  []fault
	seen    []string // method and key of every request
	put     [][]byte // every body of a put that came whole
}

// fault is what becomes of the next request with a method. It has one effect.
type fault struct {
	method string
	status int    // answer this instead
	code   string // with this code
	after  bool   // only once the request has taken effect
	cut    bool   // close the connection in the middle of the answer's body
	short  int    // leave so many bytes out of a get's range, and say so
	slow   bool   // answer nothing until the client gives up
}

// serve starts the server, and returns options for it.
func (s *strict) serve(t *testing.T) s3.Options {
	t.Helper()
	s.objects = map[string][]byte{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s3.Options{
		Bucket: "bucket", Endpoint: server.URL, PathStyle: true, AccessKey: "test", SecretKey: "secret",
		Backoff: time.Millisecond, Timeout: 10 * time.Second, Part: 1 << 16,
	}
}

// serveCompatible is serve for a client that leaves checksums out.
func (s *strict) serveCompatible(t *testing.T) s3.Options {
	t.Helper()
	opt := s.serve(t)
	opt.Compatible = true
	return opt
}

// next takes the first fault for a method.
func (s *strict) next(method string) (f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range s.faults {
		if g.method == method {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			return g
		}
	}
	return fault{}
}

func (s *strict) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.seen {
		if strings.HasPrefix(line, method+" ") {
			n++
		}
	}
	return n
}

func (s *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := s.next(r.Method)
	key := strings.TrimPrefix(r.URL.Path, "/bucket/")
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+key)
	s.mu.Unlock()
	if f.slow {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		return
	}
	if f.status != 0 && !f.after {
		refuse(w, f.status, f.code)
		return
	}
	if f.after {
		s.handle(httptest.NewRecorder(), r, key, f)
		refuse(w, f.status, f.code)
		return
	}
	s.handle(w, r, key, f)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as told</Message></Error>", code)
}

func (s *strict) handle(w http.ResponseWriter, r *http.Request, key string, f fault) {
	for name := range r.Header {
		if n := strings.ToLower(name); n == "x-amz-trailer" || s.noChecksums && (strings.HasPrefix(n, "x-amz-checksum-") || strings.HasPrefix(n, "x-amz-sdk-checksum")) {
			refuse(w, http.StatusNotImplemented, "NotImplemented")
			return
		}
	}
	if strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") || r.ContentLength < 0 {
		refuse(w, http.StatusNotImplemented, "NotImplemented")
		return
	}
	switch {
	case r.Method == http.MethodPut:
		s.handlePut(w, r, key)
	case r.URL.Query().Get("list-type") == "2":
		s.handleList(w, r)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		s.handleGet(w, r, key, f)
	}
}

func (s *strict) handlePut(w http.ResponseWriter, r *http.Request, key string) {
	body, err := io.ReadAll(r.Body)
	sum := sha256.Sum256(body)
	presigned := r.URL.Query().Has("X-Amz-Signature") && r.Header.Get("X-Amz-Content-Sha256") == ""
	if err != nil || !presigned && r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]) {
		refuse(w, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
		return
	}
	stated := r.Header.Get("X-Amz-Checksum-Sha256")
	if stated != "" && stated != base64.StdEncoding.EncodeToString(sum[:]) {
		refuse(w, http.StatusBadRequest, "BadDigest")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put = append(s.put, body)
	if _, taken := s.objects[key]; taken && r.Header.Get("If-None-Match") == "*" && !s.noConditions {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	s.objects[key] = body
	if s.wrongChecksum {
		stated = base64.StdEncoding.EncodeToString(make([]byte, 32))
	}
	if stated != "" {
		w.Header().Set("X-Amz-Checksum-Sha256", stated)
	}
}

func (s *strict) handleGet(w http.ResponseWriter, r *http.Request, key string, f fault) {
	s.mu.Lock()
	body, ok := s.objects[key]
	s.mu.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	if want := r.Header.Get("If-Match"); want != "" && want != etag {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	w.Header().Set("Etag", etag)
	w.Header().Set("Last-Modified", "Mon, 30 Nov 2026 07:07:15 GMT")
	status, part := http.StatusOK, body
	var from, last int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &last); n == 2 && !s.noRanges {
		if from >= len(body) {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		part = body[from:min(last+1, len(body))]
		part = part[:len(part)-f.short]
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+len(part)-1, len(body)))
		status = http.StatusPartialContent
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(part)))
	w.WriteHeader(status)
	if f.cut {
		part = part[:len(part)/2]
	}
	if r.Method != http.MethodHead {
		w.Write(part)
	}
}

func (s *strict) handleList(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out bytes.Buffer
	out.WriteString("<ListBucketResult><IsTruncated>false</IsTruncated>")
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		body := s.objects[key]
		if strings.HasPrefix(key, r.URL.Query().Get("prefix")) {
			fmt.Fprintf(&out, "<Contents><Key>%s</Key><Size>%d</Size><LastModified>2026-11-30T07:07:15.5Z</LastModified></Contents>", key, len(body))
		}
	}
	out.WriteString("</ListBucketResult>")
	w.Write(out.Bytes())
}
