package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	promodel "github.com/prometheus/common/model"

	"lector/worker"
)

// scrape is what a process shows while it runs.
type scrape struct {
	t        *testing.T
	families map[string]*dto.MetricFamily
	ready    string
	alive    string
}

// value is one sample; labels are pairs of name and value. What is not there is an error, not 0.
func (s scrape) value(name string, labels ...string) float64 {
	s.t.Helper()
	family := s.families[name]
	if family == nil {
		s.t.Fatalf("no metric %s", name)
	}
	for _, m := range family.Metric {
		if !hasLabels(m, labels) {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue()
		case m.Gauge != nil:
			return m.Gauge.GetValue()
		case m.Histogram != nil:
			return m.Histogram.GetSampleSum()
		}
	}
	s.t.Fatalf("no sample of %s with %v", name, labels)
	return 0
}

func hasLabels(m *dto.Metric, labels []string) bool {
	if len(m.Label)*2 != len(labels) {
		return false
	}
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range m.Label {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// want compares a sample with the figure of a receipt. Sums are made in the same order: they are equal but for
// what the text form rounds.
func (s scrape) want(figure float64, name string, labels ...string) {
	s.t.Helper()
	if got := s.value(name, labels...); math.Abs(got-figure) > 1e-9*max(1, math.Abs(figure)) {
		s.t.Errorf("%s%v is %v, the receipt says %v", name, labels, got, figure)
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", r.StatusCode, b)
}

// take reads everything that the server at this address shows.
func take(t *testing.T, address string) scrape {
	t.Helper()
	text := fetch(t, address+"/metrics")
	body, ok := strings.CutPrefix(text, "200 ")
	if !ok {
		t.Fatal(text)
	}
	parser := expfmt.NewTextParser(promodel.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return scrape{t: t, families: families, ready: fetch(t, address+"/readyz"), alive: fetch(t, address+"/healthz")}
}

// scraped runs a command and scrapes it after its work and before its end: the command's result goes into a pipe, so
// that it waits to be read.
func scraped(t *testing.T, args []string) (scrape, []byte) {
	t.Helper()
	out, in := io.Pipe()
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		code := run(context.Background(), args, streams{in: strings.NewReader(""), out: in, err: &errs})
		in.CloseWithError(fmt.Errorf("lector %v exits with %d", args, code))
		ended <- code
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(out, first); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	at := regexp.MustCompile(`metrics on (http://\S+)/metrics`).FindStringSubmatch(errs.String())
	if at == nil {
		t.Fatalf("no address in %q", errs.String())
	}
	s := take(t, at[1])
	rest, _ := io.ReadAll(out) // ends with the exit code
	if code := <-ended; code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return s, append(first, rest...)
}

// The figures of a scrape are those of the receipts.
func TestMetricsAreTheReceipts(t *testing.T) {
	base := []string{"--model", packedTiny(t), "--data", t.TempDir(), "--memory", "80M", "--metrics", "127.0.0.1:0", "--json"}
	command := func(args ...string) []string { return append(args, base...) }
	file := writeTokens(t, 1300)
	s, out := scraped(t, command("ingest", "--tokens", file))
	r := receiptOf(t, out)
	if r.Tokens.Computed != 1300 || r.Engine.Records == 0 || r.Engine.RecordBytes == 0 {
		t.Fatalf("the ingest shows nothing: %+v", r)
	}
	checkIngest(s, r)
	s.want(0, "lector_lookups_total", "result", "hit")
	s.want(1, "lector_lookups_total", "result", "miss")
	s.want(1300, "lector_lookup_tokens_total", "result", "miss")
	if s.alive != "200 ok\n" || !strings.HasPrefix(s.ready, `200 {"ready":true,"parts":{"model":"ok","queue":"ok","store":"ok"}}`) {
		t.Errorf("healthz says %q, readyz %q", s.alive, s.ready)
	}
	for _, state := range []string{"waiting", "taken"} {
		s.want(0, "lector_queue_jobs", "kind", "ingest", "priority", "normal", "state", state)
	}
	s.want(0, "lector_queue_stuck")

	// A longer document with the same beginning takes that from the store.
	s, out = scraped(t, command("ingest", "--tokens", writeTokens(t, 2000)))
	r = receiptOf(t, out)
	if r.Tokens.Restored == 0 || r.Tokens.Computed == 0 {
		t.Fatalf("%+v", r.Tokens)
	}
	checkIngest(s, r)
	s.want(1, "lector_lookups_total", "result", "hit")
	s.want(float64(r.Tokens.Restored), "lector_lookup_tokens_total", "result", "hit")
	s.want(1, "lector_restores_total", "class", "done")
	if s.value("lector_restore_seconds") <= 0 || s.value("lector_restored_bytes_total") <= 0 {
		t.Error("a restore took no time or no bytes")
	}

	s, out = scraped(t, command("resume", r.Handle, "--tokens", "5 6 7", "--max-tokens", "12", "--drafts", "3"))
	checkResume(t, s, out, r.StateBytes)
}

func receiptOf(t *testing.T, out []byte) worker.Receipt {
	t.Helper()
	var r outcome
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r.Receipt
}

func checkIngest(s scrape, r worker.Receipt) {
	s.t.Helper()
	kind := []string{"kind", "ingest"}
	with := func(more ...string) []string { return append(append([]string{}, kind...), more...) }
	s.want(1, "lector_deliveries_total", kind...)
	s.want(0, "lector_jobs_running", kind...)
	s.want(1, "lector_attempts_total", with("class", "done")...)
	s.want(1, "lector_jobs_total", with("state", "done", "class", "done")...)
	s.want(float64(r.Tokens.Computed), "lector_tokens_total", with("source", "computed")...)
	s.want(float64(r.Tokens.Restored), "lector_tokens_total", with("source", "restored")...)
	s.want(float64(r.Tokens.Deduped), "lector_tokens_total", with("source", "deduped")...)
	s.want(float64(r.WrittenBytes), "lector_state_written_bytes_total")
	s.want(float64(r.ReusedBytes), "lector_state_reused_bytes_total")
	if put := s.value("lector_store_bytes_total", "op", "put"); put < float64(r.WrittenBytes) {
		s.t.Errorf("%v bytes went to the store, the receipt says %d of state alone", put, r.WrittenBytes)
	}
	e := r.Engine
	s.want(float64(e.Tokens), "lector_chunk_tokens_total", kind...)
	s.want(float64(e.Records), "lector_expert_records_total", kind...)
	s.want(float64(e.RecordBytes), "lector_expert_record_bytes_total", kind...)
	s.want(e.RingWait, "lector_ring_wait_seconds_total", kind...)
	s.want(e.Seconds, "lector_chunk_seconds", kind...)
	if sum := e.Delta + e.Attention + e.Experts + e.MTP + e.Ngram + e.Other; math.Abs(sum-e.Seconds) > 1e-9 {
		s.t.Errorf("the chunks took %v s, their parts add up to %v: %+v", e.Seconds, sum, e)
	}
	if sum := r.Seconds.Wait + r.Seconds.Restore + r.Seconds.Prefill + r.Seconds.Store + r.Seconds.Other; math.Abs(sum-r.Seconds.Total) > 1e-9 {
		s.t.Errorf("the parts add up to %v: %+v", sum, r.Seconds)
	}
	for part, seconds := range map[string]float64{
		"delta": e.Delta, "attention": e.Attention, "experts": e.Experts, "mtp": e.MTP, "ngram": e.Ngram, "other": e.Other,
	} {
		s.want(seconds, "lector_chunk_seconds_total", with("part", part)...)
	}
	for part, seconds := range map[string]float64{
		"wait": r.Seconds.Wait, "restore": r.Seconds.Restore, "prefill": r.Seconds.Prefill, "store": r.Seconds.Store, "other": r.Seconds.Other,
	} {
		s.want(seconds, "lector_ingest_seconds_total", "part", part)
	}
}

func checkResume(t *testing.T, s scrape, out []byte, stateBytes int64) {
	t.Helper()
	var res worker.Result
	if err := json.Unmarshal(out, &res); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if res.Usage.Drafted == 0 {
		t.Fatalf("nothing was drafted: %+v", res.Usage)
	}
	u := res.Usage
	s.want(float64(u.Restored), "lector_tokens_total", "kind", "resume", "source", "restored")
	s.want(float64(u.Prefilled), "lector_tokens_total", "kind", "resume", "source", "computed")
	s.want(float64(u.Generated), "lector_tokens_total", "kind", "resume", "source", "generated")
	s.want(float64(u.Accepted), "lector_drafts_total", "result", "accepted")
	s.want(float64(u.Drafted-u.Accepted), "lector_drafts_total", "result", "rejected")
	s.want(float64(stateBytes), "lector_restored_bytes_total")
	s.want(1, "lector_jobs_total", "kind", "resume", "state", "done", "class", "done")
	if s.value("lector_chunks_total", "kind", "resume") < 2 {
		t.Error("neither the prompt nor the decoding was counted")
	}
}

// An address that cannot be served is the input's fault, and says what to do.
func TestMetricsAddress(t *testing.T) {
	var errs bytes.Buffer
	io := streams{in: strings.NewReader(""), out: io.Discard, err: &errs}
	args := []string{"ingest", "--tokens", writeTokens(t, 10), "--data", t.TempDir(), "--metrics", "nowhere"}
	if code := run(context.Background(), args, io); code != exitInput || !strings.Contains(errs.String(), `"nowhere"`) || !strings.Contains(errs.String(), "127.0.0.1:9464") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
