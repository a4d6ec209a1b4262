package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// sink is a collector that keeps what it is sent.
type sink struct {
	*testing.T
	mu    sync.Mutex
	spans []*otlp.Span
	names []string // of services
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			s.Error(err)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(b, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		s.Errorf("%s: %v", r.URL.Path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range request.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				s.names = append(s.names, a.Value.GetStringValue())
			}
		}
		for _, ss := range rs.ScopeSpans {
			s.spans = append(s.spans, ss.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// The standard variables alone turn traces on, and a command's whole story is one trace.
func TestTracesByStandardVariables(t *testing.T) {
	s := &sink{T: t}
	server := httptest.NewServer(s)
	defer server.Close()
	args := []string{"ingest", "--tokens", writeTokens(t, 600), "--data", t.TempDir()}
	ingest := func(code int, says string) {
		t.Helper()
		var errs bytes.Buffer
		if got := run(context.Background(), args, streams{in: strings.NewReader(""), out: io.Discard, err: &errs}); got != code || !strings.Contains(errs.String(), says) {
			t.Fatalf("exit code %d: %s", got, errs.String())
		}
	}
	ingest(exitOK, "")
	if len(s.spans) != 0 {
		t.Fatalf("%d spans though nobody asked", len(s.spans))
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_SERVICE_NAME", "reader-7")
	args[2] = writeTokens(t, 1100)
	ingest(exitOK, "")
	count := map[string]int{}
	traces := map[string]bool{}
	for _, span := range s.spans {
		count[span.Name]++
		traces[string(span.TraceId)] = true
	}
	if len(traces) != 1 || count["submit"] != 1 || count["ingest"] != 1 || count["prefill"] == 0 || count["store put"] == 0 || count["restore"] != 1 || count["store get"] == 0 {
		t.Errorf("%d traces of spans %v", len(traces), count)
	}
	if len(s.names) == 0 || s.names[0] != "reader-7" {
		t.Errorf("services %v", s.names)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	ingest(exitInput, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	ingest(exitInput, "OTEL_TRACES_EXPORTER=zipkin")
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	ingest(exitOK, "")
}
