package house_test

import (
	"strings"
	"testing"

	"lector/tests/house"
)

// tree is a small module "m" that keeps to the table; each case adds import lines that may break it.
func tree(extra map[string][]string) []house.Package {
	imports := map[string][]string{
		"m/queue":             {"context"},
		"m/queue/jetstream":   {"m/queue", "github.com/nats-io/nats.go"},
		"m/cache":             {"context"},
		"m/cache/dir":         {"m/cache"},
		"m/cache/s3":          {"m/cache", "github.com/aws/aws-sdk-go-v2/service/s3"},
		"m/engine":            {"context"},
		"m/engine/ops":        nil,
		"m/engine/weights":    nil,
		"m/engine/token":      {"m/engine"},
		"m/engine/qwen4exp":   {"m/engine", "m/engine/ops", "m/engine/weights"},
		"m/engine/cpu":        {"m/engine/ops"},
		"m/engine/enginetest": {"m/engine", "testing"},
		"m/worker":            {"m/queue", "m/cache", "m/engine", "golang.org/x/sync/errgroup"},
		"m/metal":             nil,
		"m/metal/soft":        {"m/metal", "github.com/ebitengine/purego"},
		"m/cmd/m":             {"m/worker", "m/queue/jetstream", "m/cache/dir", "m/engine/qwen4exp", "m/engine/cpu", "go.uber.org/zap"},
		"m/tests/e2e":         {"m/worker", "m/queue/jetstream"},
	}
	pkgs := []house.Package{
		{ImportPath: "context", Standard: true}, {ImportPath: "testing", Standard: true}, {ImportPath: "log", Standard: true},
		{ImportPath: "net", Standard: true}, {ImportPath: "net/http", Standard: true, Imports: []string{"net"}},
		{ImportPath: "github.com/nats-io/nats.go", Imports: []string{"net"}},
		{ImportPath: "github.com/aws/aws-sdk-go-v2/service/s3", Imports: []string{"net/http"}},
		{ImportPath: "example.com/innocent", Imports: []string{"github.com/nats-io/nats.go"}},
	}
	for path, lines := range extra {
		imports[path] = append(imports[path], lines...)
	}
	for path, lines := range imports {
		pkgs = append(pkgs, house.Package{ImportPath: path, Imports: lines})
	}
	return pkgs
}

func TestCheckImportsAcceptsTheDesign(t *testing.T) {
	report(t, house.CheckImports("m", tree(nil), house.Edges(), house.Free()))
}

// One forbidden import a row, and what the finding must say.
func TestCheckImportsSeesEveryKindOfEdge(t *testing.T) {
	for _, c := range []struct{ from, to, say string }{
		{"m/queue", "m/cache", "m/queue -> m/cache"},
		{"m/engine", "m/engine/ops", "m/engine -> m/engine/ops"},
		{"m/cache", "example.com/innocent", "m/cache -> example.com/innocent"},
		{"m/worker", "m/cache/dir", "m/worker -> m/cache/dir"},
		{"m/worker", "m/metal", "m/worker -> m/metal"},
		{"m/queue/jetstream", "m/worker", "m/queue/jetstream -> m/worker"},
		{"m/queue/jetstream", "m/cache", "m/queue/jetstream -> m/cache"},
		{"m/cache/dir", "m/engine", "m/cache/dir -> m/engine"},
		{"m/cache/dir", "m/cache/s3", "m/cache/dir -> m/cache/s3"},
		{"m/cache/dir", "github.com/nats-io/nats.go", "only package that knows NATS"},
		{"m/cmd/m", "github.com/nats-io/nats.go", "only package that knows NATS"},
		{"m/cmd/m", "github.com/aws/aws-sdk-go-v2/service/s3", "knows an object storage service"},
		{"m/worker", "example.com/innocent", "m/worker -> example.com/innocent -> github.com/nats-io/nats.go"},
		{"m/engine/weights", "m/engine/ops", "m/engine/weights -> m/engine/ops"},
		{"m/engine/ops", "m/engine/weights", "m/engine/ops -> m/engine/weights"},
		{"m/engine/token", "m/engine/weights", "m/engine/token -> m/engine/weights"},
		{"m/engine/qwen4exp", "m/engine/token", "m/engine/qwen4exp -> m/engine/token"},
		{"m/engine/qwen4exp", "m/engine/cpu", "m/engine/qwen4exp -> m/engine/cpu"},
		{"m/engine/cpu", "m/engine/qwen4exp", "m/engine/cpu -> m/engine/qwen4exp"},
		{"m/engine/cpu", "net/http", "never by network"},
		{"m/engine/cpu", "log", "log are cmd's"},
		{"m/cache/dir", "go.uber.org/zap", "only the worker tells"},
		{"m/engine/cpu", "github.com/ebitengine/purego", "foreign code"},
		{"m/engine/cpu", "m/engine/enginetest", "no test code"},
		{"m/metal/soft", "m/engine/ops", "m/metal/soft -> m/engine/ops"},
		{"m/worker", "testing", "no test code"},
		{"m/cmd/m", "m/tests/e2e", "no test code"},
		{"m/newcomer", "context", "no row of the table"},
	} {
		found := house.CheckImports("m", tree(map[string][]string{c.from: {c.to}}), house.Edges(), house.Free())
		text := strings.Builder{}
		for _, f := range found {
			text.WriteString(f.String() + "\n")
		}
		if !strings.Contains(text.String(), c.say) || !strings.Contains(text.String(), c.from) {
			t.Errorf("%s importing %s: want a finding with %q, got:\n%s", c.from, c.to, c.say, text.String())
		}
	}
}

func TestCheckImportsReportsWhatDoesNotLoad(t *testing.T) {
	pkgs := append(tree(nil), house.Package{ImportPath: "m/engine/gpu", Error: "no such file"})
	found := house.CheckImports("m", pkgs, house.Edges(), house.Free())
	if len(found) != 1 || !strings.Contains(found[0].String(), "no such file") {
		t.Errorf("want the load error alone, got %v", found)
	}
}

// Every row says why.
func TestEveryEdgeHasAReason(t *testing.T) {
	for _, e := range house.Edges() {
		if len(e.Why) < 20 || len(e.From) == 0 || len(e.To) == 0 {
			t.Errorf("row %+v is not whole", e)
		}
	}
}
