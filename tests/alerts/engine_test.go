package alerts_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// rule is an alert.
type rule struct {
	Alert string        `yaml:"alert"`
	Expr  string        `yaml:"expr"`
	For   time.Duration `yaml:"for"`
}

// rules are those of the file that is deployed.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// sample is a value of a series at a moment.
type sample struct {
	at int64 // milliseconds
	v  float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// series holds the samples of a fleet, one a minute, by the name of the series.
type series map[string]storage.Series

// add reads a line as Prometheus' own tests write it: name{labels} 0+1x60 is 61 values that grow by one, and _ none.
func (s series) add(t *testing.T, line string) {
	t.Helper()
	name, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var samples []chunks.Sample
	for i, v := range values {
		if !v.Omitted {
			samples = append(samples, sample{int64(i) * time.Minute.Milliseconds(), v.Value})
		}
	}
	s[name.String()] = storage.NewListSeries(name, samples)
}

// Querier implements storage.Queryable.
func (s series) Querier(int64, int64) (storage.Querier, error) { return querier{s}, nil }

type querier struct{ series series }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{at: -1}
	for _, one := range q.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.Labels().Get(m.Name)) }) {
			found.all = append(found.all, one)
		}
	}
	slices.SortFunc(found.all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return found
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// fires evaluates a rule every minute, as Prometheus does, and returns the first minute in which it fires; -1: never. The
// condition has to hold for the same labels all through the rule's time.
func (r rule) fires(t *testing.T, engine *promql.Engine, s series, minutes int) int {
	t.Helper()
	query, err := engine.NewRangeQuery(t.Context(), s, nil, r.Expr, time.UnixMilli(0), time.UnixMilli(0).Add(time.Duration(minutes)*time.Minute), time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", r.Alert, err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if result.Err != nil {
		t.Fatalf("%s: %v", r.Alert, result.Err)
	}
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", r.Alert, err)
	}
	first := -1
	for _, one := range matrix {
		since := int64(-1)
		for i, p := range one.Floats {
			if i == 0 || p.T-one.Floats[i-1].T > time.Minute.Milliseconds() {
				since = p.T
			}
			if p.T-since < r.For.Milliseconds() {
				continue
			}
			if at := int(p.T / time.Minute.Milliseconds()); first < 0 || at < first {
				first = at
			}
			break
		}
	}
	return first
}
