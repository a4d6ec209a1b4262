package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// anonymous is the memory of a process that no file stands behind, in bytes, 0 once it has ended.
func anonymous(process int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// The whole process stays within --memory, its queue and its store included, where the experts are four times what the
// engine has of it. The smallest budget that runs is the one that model show names.
func TestProcessStaysInItsMemory(t *testing.T) {
	const memory = 88 << 20 // of which the engine has 24
	dir := t.TempDir()
	p := newPlace(t, filepath.Join(dir, "packed"))
	source := filepath.Join(dir, "source")
	p.must("model", "new", "--out", source, "--preset", "tiny", "--layers", "4", "--experts", "700")
	p.must("model", "pack", source, "--out", p.model)
	if experts, err := os.Stat(filepath.Join(p.model, "experts.bin")); err != nil || experts.Size() < 4*(24<<20) {
		t.Fatalf("the experts are %v (%v), wanted more than four times the engine's memory", experts, err)
	}
	tokens := make([]string, 1500)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range tokens {
		tokens[i] = strconv.Itoa(random.IntN(250))
	}
	document := filepath.Join(dir, "document.json")
	if err := os.WriteFile(document, []byte("["+strings.Join(tokens, ",")+"]"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := p.command("ingest", document, "--tokens", "--memory", strconv.Itoa(memory), "--device", "cpu", "--capacity", "2048")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	var peak int64
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			if peak == 0 {
				t.Skip("the system does not tell anonymous memory apart")
			}
			if t.Logf("peak %d MiB of %d", peak>>20, memory>>20); peak > memory {
				t.Errorf("%d bytes were in use, the limit is %d", peak, memory)
			}
			return
		case <-time.After(2 * time.Millisecond):
			peak = max(peak, anonymous(c.Process.Pid))
		}
	}
}
