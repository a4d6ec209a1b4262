package deploy_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"lector/engine/cpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights/synth"
)

var update = flag.Bool("update", false, "rewrite SIZING.md")

// bytesText is bytes for people, in powers of ten as disks are sold.
func bytesText(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.0f MB", float64(n)/1e6)
}

// sizes are one setting's, of the released model.
type sizes struct {
	kv              qwen4exp.KV
	perToken, fixed int64
	live            []int64 // memory of a sequence, by length
}

// lengths are those of the table, in tokens.
func lengths() []int { return []int{8192, 32768, 131072, 262144} }

// keptStates are how many recurrent states of a document are kept to branch from.
const keptStates = 8

func measure(t *testing.T) (all []sizes, grid int) {
	t.Helper()
	for _, kv := range []qwen4exp.KV{qwen4exp.KVF32, qwen4exp.KVF16, qwen4exp.KVQ8} {
		model, err := synth.Reserve(synth.Options{Preset: synth.Released})
		if err != nil {
			t.Fatal(err)
		}
		be := cpu.New(cpu.Options{})
		e, err := qwen4exp.Open(model.Checkpoint, be, qwen4exp.Options{KV: kv, MaxRows: 512})
		if err != nil {
			t.Fatal(err)
		}
		info := e.Info()
		s := sizes{kv: kv, perToken: int64(info.BytesPerToken), fixed: int64(info.FixedBytes)}
		for _, n := range lengths() {
			live, err := e.SequenceBytes(n)
			if err != nil {
				t.Fatal(err)
			}
			s.live = append(s.live, live)
		}
		all, grid = append(all, s), be.Grid()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := model.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all, grid
}

// The table of sizes is what the engine says of the released model's shapes.
func TestSizing(t *testing.T) {
	all, grid := measure(t)
	var b strings.Builder
	b.WriteString("# Sizes\n\nOf the released model's shapes, as the engine counts them; written by `go test ./deploy -run Sizing -update`.\n" +
		"A handle's state is what a resume reads. Storing a document takes the state of its handle and " + fmt.Sprint(keptStates-1) + " more recurrent\n" +
		"states to branch from; documents that share a beginning share its rows. Memory is that of one live sequence, of which a\n" +
		"worker has one for each document and each resume at once, beside chunks, records and the process (`--memory`).\n")
	for _, s := range all {
		fmt.Fprintf(&b, "\n## `--kv %s`: %d bytes a token and %s fixed\n\n| tokens | a handle's state | stored | memory of a sequence | over a line of 1 Gbit/s |\n|---:|---:|---:|---:|---:|\n",
			s.kv, s.perToken, bytesText(s.fixed))
		for i, n := range lengths() {
			state := s.fixed + int64(n)*s.perToken
			fmt.Fprintf(&b, "| %d | %s | %s | %s | %.0f s |\n", n, bytesText(state), bytesText(state+(keptStates-1)*s.fixed), bytesText(s.live[i]), float64(state)*8/1e9)
		}
	}
	f := all[0]
	fmt.Fprintf(&b, "\nThe spool wants room for two chunks: with a grid of %d tokens, %s.\n", grid, bytesText(2*(f.fixed+int64(grid)*f.perToken)))
	if *update {
		if err := os.WriteFile("SIZING.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("SIZING.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("SIZING.md is not what the engine says: run with -update. It is now\n%s", b.String())
	}
	if f.fixed != 118_079_496 {
		t.Errorf("a fixed state of %d bytes is not the 118,079,496 that the shapes give by hand", f.fixed)
	}
}
