package jetstream

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

var update = flag.Bool("update", false, "rewrite the stream and consumer definitions in deploy/nats")

// definitions is what deploy/nats holds: every stream as `lector queue init` creates it, and the consumers that workers
// make for a model.
func definitions(t *testing.T) map[string][]byte {
	files := map[string][]byte{}
	add := func(name string, v any) {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		files[name+".json"] = append(b, '\n')
	}
	for _, s := range topology(Config{}) {
		add(strings.ToLower("stream_"+strings.TrimPrefix(s.Name, "LECTOR_")), s)
	}
	var consumers []jetstream.ConsumerConfig
	for _, kind := range []queue.Kind{queue.Ingest, queue.Resume} {
		for _, priority := range (Config{}).withDefaults().Priorities {
			consumers = append(consumers, consumerConfig(consumerKey{kind, priority}, "MODEL", (Config{}).withDefaults().AckWait))
		}
	}
	add("consumers", consumers)
	return files
}

// The files say what the code does: golden, made by this test with -update.
func TestDefinitions(t *testing.T) {
	dir := filepath.Join("..", "..", "deploy", "nats")
	want := definitions(t)
	for name, body := range want {
		path := filepath.Join(dir, name)
		if *update {
			if err := os.WriteFile(path, body, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, body) {
			t.Errorf("%s is not what the code creates (-update rewrites it): %s", path, cmp.Diff(string(have), string(body)))
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if want[filepath.Base(f)] == nil {
			t.Errorf("%s defines what no code creates", f)
		}
	}
}

// Migration changes what promises hang on and the limits that are asked for, and leaves what the operator chose.
func TestMigrated(t *testing.T) {
	want := topology(Config{})[0]
	have := want
	have.Subjects, have.Discard, have.MaxMsgs, have.Replicas = []string{"lector.jobs.>"}, jetstream.DiscardOld, 5, 3
	have.Placement = &jetstream.Placement{Cluster: "eu"}
	have.Metadata = map[string]string{"owner": "ops"}
	got := migrated(want, have, Config{})
	if d := differences(want, got, Config{}); len(d) > 0 {
		t.Fatalf("after migration still %v", d)
	}
	if got.MaxMsgs != 5 || got.Replicas != 3 || got.Placement.Cluster != "eu" || got.Metadata["owner"] != "ops" || got.Metadata[versionKey] != "1" {
		t.Fatalf("migrated to %+v", got)
	}
	if len(have.Metadata) != 1 {
		t.Fatal("migration changed what it was given")
	}
	cfg := Config{MaxJobs: 9, Dedupe: time.Minute, Replicas: 1}
	got = migrated(topology(cfg)[0], have, cfg)
	if got.MaxMsgs != 9 || got.Duplicates != time.Minute || got.Replicas != 1 {
		t.Fatalf("limits that were asked for became %+v", got)
	}
}
