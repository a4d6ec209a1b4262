package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/weights"
	"lector/engine/weights/pack"
)

// packedTiny packs a fixture.
func packedTiny(t *testing.T) string {
	t.Helper()
	c, err := weights.Open("../../tests/fixtures/tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := filepath.Join(t.TempDir(), "store")
	if _, err := pack.Run(context.Background(), c, dir, pack.Options{Settings: pack.Settings{Group: 64}}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBenchIO(t *testing.T) {
	dir := packedTiny(t)
	var out, errs bytes.Buffer
	io := streams{in: strings.NewReader(""), out: &out, err: &errs}
	if code := run(context.Background(), []string{"bench", "io", "--model", dir, "--turn", "10ms", "--rounds", "2", "--memory", "3M", "--json"}, io); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var r ioReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Records != 72 || len(r.StoreTurns) != 2 || len(r.PlainTurns) != 2 || r.Store <= 0 || r.Plain <= 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Chunks) != 4 {
		t.Fatalf("%d chunk sizes", len(r.Chunks))
	}
	for i, c := range r.Chunks {
		if c.Tokens != 512<<i || c.Records != 72 || c.Pooled >= c.PerToken {
			t.Errorf("%+v", c)
		}
		if i > 0 && c.PerToken*2 != r.Chunks[i-1].PerToken {
			t.Errorf("a chunk of %d reads %g a token, one of half its size %g", c.Tokens, c.PerToken, r.Chunks[i-1].PerToken)
		}
	}
	out.Reset()
	if code := run(context.Background(), []string{"bench", "io", "--model", dir, "--turn", "5ms", "--rounds", "1"}, io); code != exitOK || !strings.Contains(out.String(), "bytes a token") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
	for _, args := range [][]string{{"--model", "../../tests/fixtures/tiny"}, {"--model", dir, "--rounds", "0"}, {"--model", dir, "--memory", "much"}} {
		if code := run(context.Background(), append([]string{"bench", "io", "--turn", "1ms"}, args...), io); code != exitInput {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

// The least budget that is too small says so, and a packed folder opens by --model like any other.
func TestPackedModelRunsInABudget(t *testing.T) {
	dir := packedTiny(t)
	var out, errs bytes.Buffer
	io := streams{in: strings.NewReader(""), out: &out, err: &errs}
	if code := run(context.Background(), []string{"check", "--model", dir, "--memory", "71M", "--oracle", "../../tests/fixtures/tiny/oracle.safetensors"}, io); code != exitOK {
		t.Errorf("exit code %d: %s%s", code, errs.String(), out.String())
	}
	errs.Reset()
	if code := run(context.Background(), []string{"check", "--model", dir, "--memory", "65M", "--oracle", "../../tests/fixtures/tiny/oracle.safetensors"}, io); code != exitInput ||
		!strings.Contains(errs.String(), "the least that runs is") || !strings.Contains(errs.String(), "raise --memory") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
