package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	common "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"lector/cache/s3/s3test"
)

// deployed reads a file of deploy.
func deployed(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rule is an alert.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(deployed(t, "prometheus/alerts.yml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// panel is one of a dashboard.
type panel struct {
	ID      int    `json:"id"`
	Title   string `json:"title"`
	Type    string `json:"type"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct {
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(deployed(t, "grafana/lector.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

// shownByPrometheus are labels and metrics that a Prometheus adds to a scrape.
func shownByPrometheus() []string { return []string{"instance", "job", "up"} }

// exposition is all that processes have shown: the labels of each metric with their values.
type exposition map[string]map[string]map[string]bool

func (x exposition) add(families map[string]*dto.MetricFamily) {
	for name, f := range families {
		names := []string{name}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
		}
		for _, n := range names {
			if x[n] == nil {
				x[n] = map[string]map[string]bool{}
			}
			for _, m := range f.Metric {
				for _, l := range m.Label {
					x.label(n, l.GetName())[l.GetValue()] = true
				}
			}
			if strings.HasSuffix(n, "_bucket") {
				x.label(n, "le")
			}
		}
	}
}

func (x exposition) label(metric, label string) map[string]bool {
	if x[metric][label] == nil {
		x[metric][label] = map[string]bool{}
	}
	return x[metric][label]
}

// queries checks queries against an exposition.
type queries struct {
	fault   func(format string, args ...any)
	shown   exposition
	classes []string // of fates, which a healthy scrape does not show
}

// check parses a query, and wants every metric, label and value of it to be one that is shown.
func (q queries) check(where, query string) {
	query = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(query)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		q.fault("%s: %v in %s", where, err, query)
		return
	}
	known := map[string]bool{}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			q.selector(where, s, known)
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				if !known[label] {
					q.fault("%s: groups by %s, which none of its metrics has: %s", where, label, query)
				}
			}
		}
		return nil
	})
}

func (q queries) selector(where string, s *parser.VectorSelector, known map[string]bool) {
	for _, l := range shownByPrometheus() {
		known[l] = true
	}
	shown, ok := q.shown[s.Name]
	if !ok && !slices.Contains(shownByPrometheus(), s.Name) {
		q.fault("%s: nobody shows %s", where, s.Name)
		return
	}
	for label := range shown {
		known[label] = true
	}
	for _, m := range s.LabelMatchers {
		if m.Name == common.MetricNameLabel || slices.Contains(shownByPrometheus(), m.Name) {
			continue
		}
		values, ok := shown[m.Name]
		if !ok {
			q.fault("%s: %s has no label %s but %v", where, s.Name, m.Name, slices.Sorted(maps.Keys(shown)))
			continue
		}
		for _, v := range strings.Split(m.Value, "|") {
			if !values[v] && !(m.Name == "class" && slices.Contains(q.classes, v)) && !lazy(m.Name, v) {
				q.fault("%s: label %s of %s is never %q but %v", where, m.Name, s.Name, v, slices.Sorted(maps.Keys(values)))
			}
		}
	}
}

// lazy says that a value shows only once something has gone wrong.
func lazy(label, value string) bool {
	return label == "result" && value == "error" || label == "state" && value == "failed"
}

// classes are those that fates have, by their one table.
func classes(t *testing.T) (out []string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "worker", "fate.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`Class: "([a-z-]+)"`).FindAllSubmatch(source, -1) {
		out = append(out, string(m[1]))
	}
	if len(out) < 10 {
		t.Fatalf("worker/fate.go shows the classes %v only", out)
	}
	return out
}

// Every query of the dashboard and the alerts is one that real processes answer: a document read into an S3 server
// through spool and copies, and a text that goes on from it.
func TestQueriesAreAnswered(t *testing.T) {
	server := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	base := []string{
		"--store", "s3://" + server.Bucket(t) + "/x?endpoint=" + server.Endpoint, "--model", "../../tests/fixtures/tiny",
		"--data", t.TempDir(), "--metrics", "127.0.0.1:0", "--json",
	}
	s, out := scraped(t, append([]string{"ingest", "--tokens", writeTokens(t, 1100)}, base...))
	shown := exposition{}
	shown.add(s.families)
	s, _ = scraped(t, append([]string{"resume", receiptOf(t, out).Handle, "--max-tokens", "4"}, base...))
	shown.add(s.families)
	q := queries{t.Errorf, shown, classes(t)}
	for _, r := range alerts(t) {
		q.check("alert "+r.Alert, r.Expr)
	}
	ids := map[int]bool{}
	for _, p := range panels(t) {
		if ids[p.ID] || len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("panel %q has an id of another, or no query", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			q.check("panel "+p.Title, target.Expr)
		}
	}
	// The check itself finds what is wrong.
	for _, wrong := range []string{
		`lector_none_total`, `rate(lector_tokens_total{kind="ingest",source="guessed"}[5m])`, `sum by (colour) (lector_queue_jobs)`,
		`lector_queue_stuck{priority="high"}`, `sum(`, `lector_attempts_total{class="bored"}`,
	} {
		faults := 0
		queries{func(string, ...any) { faults++ }, shown, q.classes}.check("wrong", wrong)
		if faults != 1 {
			t.Errorf("%d faults in %s", faults, wrong)
		}
	}
}

// Each alert has an entry in the runbook, and each entry an alert.
func TestRunbook(t *testing.T) {
	var names []string
	for _, r := range alerts(t) {
		if r.Annotations["summary"] == "" || !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("alert %s has no summary or no severity", r.Alert)
		}
		names = append(names, r.Alert)
	}
	var entries []string
	_, text, _ := strings.Cut(string(deployed(t, "RUNBOOK.md")), "\n## Alerts\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllStringSubmatch(text, -1) {
		entries = append(entries, m[1])
	}
	if !slices.Equal(names, entries) {
		t.Errorf("alerts\n%v\nand entries of the runbook\n%v", names, entries)
	}
	// A command that it names is one that there is.
	root, _ := newRoot(streams{})
	for _, m := range regexp.MustCompile("`lector ([a-z]+)(?: ([a-z]+))?").FindAllStringSubmatch(string(deployed(t, "RUNBOOK.md")), -1) {
		c, _, err := root.Find([]string{m[1]})
		if err == nil && m[2] != "" && c.HasSubCommands() {
			c, _, err = c.Find([]string{m[2]})
			if err == nil && c.Name() != m[2] {
				t.Errorf("the runbook names %q", m[0])
			}
		}
		if err != nil {
			t.Errorf("the runbook names %q: %v", m[0], err)
		}
	}
}

// The compose file starts commands that exist, at the versions that the tests run against.
func TestCompose(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Build   struct{ Target, Dockerfile string }
			Command []string
		}
	}
	if err := yaml.Unmarshal(deployed(t, "compose/compose.yml"), &file); err != nil {
		t.Fatal(err)
	}
	docker := string(deployed(t, "compose/Dockerfile"))
	for name, s := range file.Services {
		if !strings.Contains(docker, " AS "+s.Build.Target+"\n") || s.Build.Dockerfile != "deploy/compose/Dockerfile" {
			t.Errorf("service %s is built as %+v", name, s.Build)
		}
	}
	w := file.Services["worker"].Command
	if len(w) == 0 || w[0] != "worker" {
		t.Fatalf("the worker runs %v", w)
	}
	if err := checkWorkerFlags(w[1:]); err != nil {
		t.Error(err)
	}
	init := file.Services["queue"].Command
	root, _ := newRoot(streams{})
	if c, flags, err := root.Find(init); err != nil || c.CommandPath() != "lector queue init" || c.ParseFlags(flags) != nil {
		t.Errorf("the queue is made by %v: %v", init, err)
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("../../tests/run")
	if err != nil {
		t.Fatal(err)
	}
	nats := regexp.MustCompile(`nats-server/v2 (v\S+)`).FindSubmatch(module)
	s3 := regexp.MustCompile(`cmd/versitygw@(v\S+);`).FindSubmatch(program)
	if nats == nil || s3 == nil || !strings.Contains(docker, "nats-server/v2@"+string(nats[1])+"\n") || !strings.Contains(docker, "versitygw@"+string(s3[1])+"\n") {
		t.Errorf("the Dockerfile has other versions than NATS %s and versitygw %s", nats, s3)
	}
}

// The bucket policy allows what the store asks for, and nothing else.
func TestBucketPolicy(t *testing.T) {
	var policy struct {
		Statement []struct {
			Effect   string
			Action   any
			Resource string
		}
	}
	if err := json.Unmarshal(deployed(t, "s3/bucket-policy.json"), &policy); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, s := range policy.Statement {
		if one, ok := s.Action.(string); ok {
			allowed[one] = s.Effect == "Allow"
			continue
		}
		for _, a := range s.Action.([]any) {
			allowed[a.(string)] = s.Effect == "Allow"
		}
	}
	actions := map[string]string{"GetObject": "s3:GetObject", "HeadObject": "s3:GetObject", "PutObject": "s3:PutObject", "DeleteObject": "s3:DeleteObject", "ListObjectsV2": "s3:ListBucket"}
	needed := map[string]bool{}
	files, err := filepath.Glob("../../cache/s3/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil || strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`s3\.(?:New)?([A-Za-z0-9]+?)(?:Input|Paginator)\b`).FindAllSubmatch(source, -1) {
			action := actions[string(m[1])]
			if action == "" {
				t.Errorf("%s asks for %s, of which the test knows no action", f, m[1])
			}
			needed[action] = true
		}
	}
	if !maps.Equal(allowed, needed) {
		t.Errorf("the policy allows %v, the store asks for %v", allowed, needed)
	}
}
