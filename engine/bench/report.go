package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"lector/engine"
)

// Report is the result of one run, with every sample as it was taken.
type Report struct {
	Version int       `json:"version"` // ReportVersion
	Kind    string    `json:"kind"`    // "prefill", "decode", "snapshot" or "peer"
	Date    time.Time `json:"date"`
	Host    Host      `json:"host"`
	Model   Model     `json:"model"`
	Seed    uint64    `json:"seed"`             // of random tokens
	Text    string    `json:"text,omitempty"`   // name of the text that the tokens are of, instead
	State   string    `json:"state,omitempty"`  // how the state at a position was made: "prefilled" or "synthetic"
	Peer    string    `json:"peer,omitempty"`   // the other engine and its version
	Ceiling Ceiling   `json:"ceiling,omitzero"` // of the same run
	Rows    []Row     `json:"rows"`
}

// ReportVersion is the form of a report. 1: first.
const ReportVersion = 1

// Host is the machine and the program that measured.
type Host struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Device string `json:"device"` // that computes: "cpu", or a GPU's name
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Go     string `json:"go"`
	Commit string `json:"commit,omitempty"` // "+" behind it: of a changed tree; empty where the build does not know
	Load   string `json:"load,omitempty"`   // the machine's load average when the run began
}

// Model is what was measured.
type Model struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // of the weights
	Class  string `json:"class"`  // numeric class
}

// Row is one setting with its samples.
type Row struct {
	Name    string    `json:"name"` // names the setting: rows of two reports are compared by it
	Unit    string    `json:"unit"` // "tokens/s" (more is better) or "s" (less is better)
	Samples []float64 `json:"samples"`

	Length   int    `json:"length,omitempty"` // tokens that one sample reads
	Chunk    int    `json:"chunk,omitempty"`
	Position int    `json:"position,omitempty"` // tokens before the sample's first
	Drafts   int    `json:"drafts,omitempty"`
	Series   string `json:"series,omitempty"` // line of the plot

	FLOP      FLOP                `json:"flop,omitzero"`       // of one sample
	Reads     Reads               `json:"reads,omitzero"`      // of all samples
	Spent     float64             `json:"spent,omitempty"`     // seconds of all samples, where Reads are counted
	Bytes     int64               `json:"bytes,omitempty"`     // that one sample moved
	Drafted   int                 `json:"drafted,omitempty"`   // drafts of all samples
	Accepted  int                 `json:"accepted,omitempty"`  // of them
	Committed int                 `json:"committed,omitempty"` // tokens of all samples
	Steps     int                 `json:"steps,omitempty"`     // of all samples
	Stats     []engine.ChunkStats `json:"stats,omitempty"`     // one a sample
	Profile   *Profile            `json:"profile,omitempty"`   // of one more sample
}

// The units of a row.
const (
	TokensPerSecond = "tokens/s"
	Seconds         = "s"
)

// Median is the middle sample, the mean of the middle two, or 0 without samples.
func (r Row) Median() float64 { return median(r.Samples) }

// median is that of a list; 0 of none.
func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Range is the smallest and the largest sample, 0 and 0 without samples.
func (r Row) Range() (low, high float64) {
	if len(r.Samples) == 0 {
		return 0, 0
	}
	return slices.Min(r.Samples), slices.Max(r.Samples)
}

// FLOPs is the rate of operations of the median sample, in operations a second.
func (r Row) FLOPs() float64 {
	if r.Length == 0 {
		return 0
	}
	return float64(r.FLOP.Total()) * r.Median() / float64(r.Length)
}

// BytesPerSecond is the rate at which the bytes of Reads were read.
func (r Row) BytesPerSecond() float64 {
	if r.Spent == 0 {
		return 0
	}
	return float64(r.Reads.Total()) / r.Spent
}

// Sum adds the statistics of all samples.
func (r Row) Sum() (s engine.ChunkStats) {
	for _, one := range r.Stats {
		s = s.Add(one)
	}
	return s
}

// Encode writes the report as indented JSON.
func (r Report) Encode(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// ParseReport reads what Encode wrote. It refuses another version, and rows without a name or samples, or of an
// unknown unit.
func ParseReport(data []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return Report{}, fmt.Errorf("read report: %w", err)
	}
	if r.Version != ReportVersion {
		return Report{}, fmt.Errorf("read report: it has version %d, and this program reads %d", r.Version, ReportVersion)
	}
	names := map[string]bool{}
	for i, row := range r.Rows {
		switch {
		case row.Name == "" || len(row.Samples) == 0:
			return Report{}, fmt.Errorf("read report: row %d has no name or no samples", i)
		case row.Unit != TokensPerSecond && row.Unit != Seconds:
			return Report{}, fmt.Errorf("read report: row %s has the unit %.20q", row.Name, row.Unit)
		case names[row.Name]:
			return Report{}, fmt.Errorf("read report: two rows are called %s", row.Name)
		}
		names[row.Name] = true
	}
	return r, nil
}
