package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copyFolder copies a checkpoint, so that it can be edited.
func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// edit changes a file in place.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// stored lists the objects of a kind in the place's store, smallest first by name.
func (p place) stored(kind string) []string {
	p.t.Helper()
	var out []string
	err := filepath.WalkDir(filepath.Join(p.data, "store", "default", kind), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		p.t.Fatalf("list %s: %v, %d found", kind, err, len(out))
	}
	return out
}

// Whatever is wrong with a state is refused by name, with exit code 2 and nothing on standard output.
func TestDamageIsRefusedByName(t *testing.T) {
	tiny := fixture(t, "tiny")
	weights := copyFolder(t, tiny)
	edit(t, filepath.Join(weights, "model.safetensors"), func(b []byte) []byte { b[len(b)-2] ^= 1; return b })
	config := copyFolder(t, tiny)
	edit(t, filepath.Join(config, "config.json"), func(b []byte) []byte {
		return []byte(strings.Replace(string(b), `"rope_theta": 10000000.0`, `"rope_theta": 10000001.0`, 1))
	})
	for _, c := range []struct {
		name  string
		model string
		harm  func(p place)
		says  string
		flags []string
	}{
		{name: "an edited weight byte", model: weights, says: "weights: snapshot has"},
		{name: "another config", model: config, says: "config: snapshot has"},
		{name: "another reading of the head", says: "mtp_hidden_norm: snapshot has", flags: []string{"--mtp-hidden-norm", "flat"}},
		{name: "another model", model: fixture(t, "odd"), says: "snapshot has"},
		{name: "a flipped byte", says: "damaged", harm: func(p place) {
			edit(t, p.stored("blobs")[0], func(b []byte) []byte { b[len(b)/2] ^= 4; return b })
		}},
		{name: "a truncated blob", says: "137223 bytes, not 137224", harm: func(p place) {
			edit(t, p.stored("blobs")[0], func(b []byte) []byte { return b[:len(b)-1] })
		}},
		{name: "a missing blob", says: "is missing", harm: func(p place) { remove(t, p.stored("blobs")[0]) }},
		{name: "a damaged manifest", says: "damaged", harm: func(p place) {
			edit(t, p.stored("manifests")[0], func(b []byte) []byte { b[20] ^= 1; return b })
		}},
		{name: "a missing manifest", says: "not found", harm: func(p place) { remove(t, p.stored("manifests")[0]) }},
		{name: "a damaged handle", says: "damaged", harm: func(p place) {
			edit(t, p.stored("handles")[0], func(b []byte) []byte { b[20] ^= 1; return b })
		}},
		{name: "a missing handle", says: "lh1-", harm: func(p place) { remove(t, p.stored("handles")[0]) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t, tiny)
			handle := p.ingest(document(t, 40, 2)).Handle
			if c.harm != nil {
				c.harm(p)
			}
			if c.model != "" {
				p.model = c.model
			}
			o := p.run(append([]string{"resume", handle, "--tokens", "1", "--max-tokens", "2", "--json"}, c.flags...)...)
			if o.code != 2 || o.out != "" || !strings.Contains(o.err, c.says) || strings.Count(o.err, "\n") != 1 {
				t.Errorf("exit code %d, prints %q, says %q, want %q", o.code, o.out, o.err, c.says)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// A checkpoint that computes nonsense says so: nothing of it is stored.
func TestNonFiniteLogitsAreRefused(t *testing.T) {
	model := copyFolder(t, fixture(t, "tiny"))
	path := filepath.Join(model, "model.safetensors")
	edit(t, path, func(b []byte) []byte {
		at := tensorAt(t, b, "lm_head.weight")
		b[at], b[at+1] = 0xc0, 0x7f // a bf16 NaN
		return b
	})
	p := newPlace(t, model)
	o := p.run("ingest", "--tokens", document(t, 20, 4))
	if o.code != 2 || o.out != "" || !strings.Contains(o.err, "not a finite number") {
		t.Errorf("exit code %d, prints %q, says %q", o.code, o.out, o.err)
	}
	if _, err := os.Stat(filepath.Join(p.data, "store", "default", "nodes")); err == nil {
		t.Error("nodes were stored")
	}
}

// tensorAt finds the first byte of a tensor in a safetensors file.
func tensorAt(t *testing.T, b []byte, name string) int {
	t.Helper()
	n := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	var header map[string]struct {
		Offsets []int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	return 8 + n + header[name].Offsets[0]
}
