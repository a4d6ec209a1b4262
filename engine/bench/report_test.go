package bench_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lector/engine"
	"lector/engine/bench"
)

// example is a report with every field set.
func example() bench.Report {
	row := bench.Row{
		Name: "prefill length=512 chunk=256", Unit: bench.TokensPerSecond, Samples: []float64{100, 120, 90}, Length: 512, Chunk: 256,
		Position: 1, Drafts: 2, Series: "chunk 256", FLOP: bench.FLOP{Dense: 5120, Draft: 1}, Reads: bench.Reads{Weights: 3, Cache: 4}, Spent: 2,
		Bytes: 6, Drafted: 7, Accepted: 8, Committed: 9, Steps: 10, Stats: []engine.ChunkStats{{Tokens: 512, Seconds: 5.12, Delta: 1, Other: 4.12}},
	}
	return bench.Report{
		Version: bench.ReportVersion, Kind: "prefill", Date: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		Host:  bench.Host{CPU: "A & B <x>", Cores: 2, Device: "cpu", OS: "linux", Arch: "amd64", Go: "go1.26", Commit: "abc+", Load: "0.1 0.2 0.3"},
		Model: bench.Model{Name: "tiny", Digest: "d1", Class: "cpu-f32"}, Seed: 1, Text: "book.txt", State: "synthetic", Peer: "other 1",
		Ceiling: bench.Ceiling{GEMM: []bench.GEMM{{M: 1, N: 2, K: 3, Samples: []float64{1e9, 2e9}}, {M: 4, N: 5, K: 6, Samples: []float64{3e9, 1e9}}}, Read: []float64{7e9, 8e9}, Workers: 2},
		Rows:    []bench.Row{row},
	}
}

func TestReportRoundTrip(t *testing.T) {
	want := example()
	var b bytes.Buffer
	if err := want.Encode(&b); err != nil {
		t.Fatal(err)
	}
	got, err := bench.ParseReport(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report changed on the way (-wrote +read):\n%s", diff)
	}
}

func TestParseReportRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*bench.Report){
		"version 2":    func(r *bench.Report) { r.Version = 2 },
		"no samples":   func(r *bench.Report) { r.Rows[0].Samples = nil },
		"the unit":     func(r *bench.Report) { r.Rows[0].Unit = "m" },
		"are called p": func(r *bench.Report) { r.Rows = append(r.Rows, r.Rows[0]) },
	} {
		r := example()
		spoil(&r)
		var b bytes.Buffer
		if err := r.Encode(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := bench.ParseReport(b.Bytes()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := bench.ParseReport([]byte("{")); err == nil {
		t.Error("half a report was read")
	}
}

func TestFigures(t *testing.T) {
	r := example()
	row := r.Rows[0]
	low, high := row.Range()
	if m := row.Median(); m != 100 || low != 90 || high != 120 {
		t.Errorf("median %v of %v..%v", m, low, high)
	}
	if m := (bench.Row{Samples: []float64{1, 4, 2, 3}}).Median(); m != 2.5 {
		t.Errorf("median of four is %v", m)
	}
	if f := row.FLOPs(); f != 5121*100/512. {
		t.Errorf("%v operations a second", f)
	}
	if b := row.BytesPerSecond(); b != 3.5 {
		t.Errorf("%v bytes a second", b)
	}
	if r.Ceiling.FLOPs() != 3e9 || r.Ceiling.BytesPerSecond() != 8e9 {
		t.Errorf("ceiling %v and %v", r.Ceiling.FLOPs(), r.Ceiling.BytesPerSecond())
	}
	var none bench.Row
	if none.Median() != 0 || none.FLOPs() != 0 || none.BytesPerSecond() != 0 || (bench.Ceiling{}).FLOPs() != 0 {
		t.Error("nothing measured is not nothing")
	}
}

func TestCompare(t *testing.T) {
	a, b := example(), example()
	a.Rows = []bench.Row{
		{Name: "rate", Unit: bench.TokensPerSecond, Samples: []float64{10, 11, 12}},
		{Name: "time", Unit: bench.Seconds, Samples: []float64{4, 4, 5}},
		{Name: "gone", Unit: bench.Seconds, Samples: []float64{1}},
	}
	b.Rows = []bench.Row{
		{Name: "new", Unit: bench.Seconds, Samples: []float64{1}},
		{Name: "rate", Unit: bench.TokensPerSecond, Samples: []float64{22, 23, 21}},
		{Name: "time", Unit: bench.Seconds, Samples: []float64{8, 4.5, 8}},
	}
	b.Model.Digest, b.Host.Commit = "d2", ""
	b.Ceiling.GEMM[1].Samples = []float64{4e9}
	want := bench.Comparison{
		Deltas: []bench.Delta{
			{Name: "rate", Unit: bench.TokensPerSecond, A: 11, B: 22, Speed: 2},
			{Name: "time", Unit: bench.Seconds, A: 4, B: 8, Speed: 0.5, Overlaps: true},
		},
		OnlyA: []string{"gone"}, OnlyB: []string{"new"},
		Notes: []string{"weights: d1 and d2", "commit: abc+ and none", "ceiling: 3.0 and 4.0 GFLOP/s: the machine was not the same"},
	}
	if diff := cmp.Diff(want, bench.Compare(a, b)); diff != "" {
		t.Errorf("comparison (-want +got):\n%s", diff)
	}
}

func TestWriteSVG(t *testing.T) {
	r := example()
	r.Rows = nil
	for _, length := range []int{512, 2048, 8192} {
		for _, series := range []string{"chunk 512", "chunk < 2048"} {
			r.Rows = append(r.Rows, bench.Row{Name: series, Unit: bench.TokensPerSecond, Length: length, Samples: []float64{250, 310}, Series: series})
		}
	}
	var b bytes.Buffer
	if err := r.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	elements, texts := map[string]int{}, []string{}
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
		case xml.CharData:
			texts = append(texts, strings.TrimSpace(string(token)))
		}
	}
	if elements["svg"] != 1 || elements["circle"] != 6 {
		t.Errorf("elements %v, want one svg with six circles", elements)
	}
	for _, want := range []string{"chunk < 2048", "8192", "500", "tokens read", "tokens/s", "prefill of tiny, A & B <x>, 2 workers"} {
		if !slices.Contains(texts, want) {
			t.Errorf("the plot does not say %q: %q", want, texts)
		}
	}
	if err := (bench.Report{}).WriteSVG(io.Discard); err == nil {
		t.Error("a report without rates was plotted")
	}
}
