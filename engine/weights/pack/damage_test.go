package pack_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/weights"
	"lector/engine/weights/pack"
)

func readFile(t testing.TB, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyDir copies a folder, so that a store is packed once and damaged often.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// edit changes the manifest through its decoded form, with a digest that fits again.
func edit(t testing.TB, dir string, change func(m *weights.PackedManifest)) {
	t.Helper()
	m, err := weights.ParsePacked(readFile(t, dir, "pack.json"))
	if err != nil {
		t.Fatal(err)
	}
	change(m)
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "pack.json", text)
}

func replace(t testing.TB, dir, name, from, to string) {
	t.Helper()
	data := readFile(t, dir, name)
	if !bytes.Contains(data, []byte(from)) {
		t.Fatalf("%s lacks %q", name, from)
	}
	writeFile(t, dir, name, bytes.Replace(data, []byte(from), []byte(to), 1))
}

// Damage that the lengths or the manifest show is an error of Open, which names it.
func TestDamageThatOpenSees(t *testing.T) {
	store := packed(t, filepath.Join(fixtures, "tiny"), keep())
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"cut dense":         {func(t *testing.T, dir string) { cut(t, dir, "dense.bin") }, "dense.bin has"},
		"cut records":       {func(t *testing.T, dir string) { cut(t, dir, "experts.bin") }, "experts.bin has"},
		"cut rows":          {func(t *testing.T, dir string) { cut(t, dir, "ngram.bin") }, "ngram.bin has"},
		"missing records":   {func(t *testing.T, dir string) { remove(t, dir, "experts.bin") }, "experts.bin is missing"},
		"missing rows":      {func(t *testing.T, dir string) { remove(t, dir, "ngram.bin") }, "ngram.bin is missing"},
		"missing manifest":  {func(t *testing.T, dir string) { remove(t, dir, "pack.json") }, "pack.json is missing: the store was not packed to its end"},
		"missing tokenizer": {func(t *testing.T, dir string) { remove(t, dir, "config.json") }, "config.json is missing"},
		"other config":      {func(t *testing.T, dir string) { replace(t, dir, "config.json", "1e-06", "2e-06") }, "config.json is not the file that was packed"},
		"flipped manifest": {func(t *testing.T, dir string) {
			replace(t, dir, "pack.json", `"hc_norm":"centred"`, `"hc_norm":"folded" `)
		}, "the manifest is damaged"},
		"other version": {func(t *testing.T, dir string) { replace(t, dir, "pack.json", `"version":1`, `"version":2`) }, "version 2 is not supported"},
		"other format":  {func(t *testing.T, dir string) { replace(t, dir, "pack.json", "lector pack", "lector pork") }, "not a packed store"},
		"cut manifest":  {func(t *testing.T, dir string) { cut(t, dir, "pack.json") }, "read pack.json"},
		"missing tensor": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *weights.PackedManifest) { m.Dense = m.Dense[1:] })
		}, "missing"},
		"missing layer": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *weights.PackedManifest) { m.Experts = m.Experts[:len(m.Experts)-1] })
		}, "experts of mtp.layers.0 are missing"},
		"missing table": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *weights.PackedManifest) { m.Ngram = nil })
		}, "n-gram table of model.language_model.layers.1 is missing"},
		"fewer experts": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *weights.PackedManifest) {
				l := &m.Experts[2]
				l.N, l.SHA256, l.CRC = 7, l.SHA256[:7], l.CRC[:7]
			})
		}, "experts of model.language_model.layers.2: 7 of"},
		"no reading": {func(t *testing.T, dir string) {
			edit(t, dir, func(m *weights.PackedManifest) { delete(m.Norms, "q_norm") })
		}, "norms of class q_norm"},
	} {
		dir := copyDir(t, store)
		c.damage(t, dir)
		opened, err := weights.Open(dir)
		if err == nil {
			opened.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v\nwant %q", name, err, c.want)
		}
	}
}

func cut(t *testing.T, dir, name string) {
	data := readFile(t, dir, name)
	writeFile(t, dir, name, data[:len(data)-3])
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// change edits a file's bytes in place.
func change(t testing.TB, dir, name string, edit func(data []byte)) {
	t.Helper()
	data := readFile(t, dir, name)
	edit(data)
	writeFile(t, dir, name, data)
}

// Damaged bytes open, since nothing has read them yet; whoever reads them gets an error that names the section.
func TestDamagedBytes(t *testing.T) {
	store := packed(t, filepath.Join(fixtures, "tiny-mlx-folded"), keep())
	p, err := weights.OpenPacked(store)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m := p.Manifest()
	record, stride := p.RecordOffset(3, 5), p.RecordStride(3)
	row, rowBytes := p.NgramRowOffset(0, 700), int64(p.NgramRowBytes(0))
	dense := m.Dense[40]
	for name, c := range map[string]struct {
		file   string
		damage func(data []byte)
		want   []string
	}{
		"flipped tensor": {"dense.bin", func(d []byte) { d[dense.Offset+dense.Bytes-1] ^= 4 }, []string{dense.Name}},
		"flipped record": {"experts.bin", func(d []byte) { d[record+1000] ^= 1 }, []string{"expert 5 of model.language_model.layers.3"}},
		"swapped records": {"experts.bin", func(d []byte) { swap(d[record:record+stride], d[record+stride:record+2*stride]) },
			[]string{"expert 5 of model.language_model.layers.3", "expert 6 of model.language_model.layers.3"}},
		"flipped row":  {"ngram.bin", func(d []byte) { d[row+2] ^= 128 }, []string{"row 700 of the n-gram table"}},
		"swapped rows": {"ngram.bin", func(d []byte) { swap(d[row:row+rowBytes], d[row+rowBytes:row+2*rowBytes]) }, []string{"row 700 of the n-gram table"}},
	} {
		dir := copyDir(t, store)
		change(t, dir, c.file, c.damage)
		_, err := pack.Verify(context.Background(), dir, weights.Options{}, nil)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, weights.ErrDamaged) {
				t.Errorf("%s: verify says %v\nwant %q", name, err, want)
			}
		}
		if err := readersErr(t, dir); err == nil || !strings.Contains(err.Error(), c.want[0]) || !errors.Is(err, weights.ErrDamaged) {
			t.Errorf("%s: its reader says %v\nwant %q", name, err, c.want[0])
		}
	}
	if err := readersErr(t, store); err != nil {
		t.Errorf("the sound store: %v", err)
	}
}

func swap(a, b []byte) {
	was := bytes.Clone(a)
	copy(a, b)
	copy(b, was)
}

// readersErr reads a store as an engine does: the dense part by its digest, record 5 of layer 3, row 700.
func readersErr(t *testing.T, dir string) error {
	t.Helper()
	c := open(t, dir)
	if _, err := c.Digest(); err != nil {
		return err
	}
	p := c.Packed()
	record := make([]byte, p.RecordBytes(3))
	if _, err := p.ExpertsFile().ReadAt(record, p.RecordOffset(3, 5)); err != nil {
		t.Fatal(err)
	}
	if err := p.VerifyRecord(3, 5, record); err != nil {
		return err
	}
	row := make([]byte, p.NgramRowBytes(0))
	if _, err := p.NgramFile().ReadAt(row, p.NgramRowOffset(0, 700)); err != nil {
		t.Fatal(err)
	}
	_, err := p.NgramRow(0, 700, row)
	return err
}

// A manifest that lies about the source's tensors would give the store another identity: verify adds them up.
func TestVerifyAddsUp(t *testing.T) {
	dir := packed(t, filepath.Join(fixtures, "tiny"), keep())
	edit(t, dir, func(m *weights.PackedManifest) { m.Stacks[0].SHA256 = strings.Repeat("0", 64) })
	if _, err := pack.Verify(context.Background(), dir, weights.Options{}, nil); err == nil || !strings.Contains(err.Error(), "as its records hold it") {
		t.Errorf("%v", err)
	}
}

func TestVerifyPlain(t *testing.T) {
	for name, source := range sources() {
		checked, err := pack.Verify(context.Background(), source, weights.Options{}, nil)
		if err != nil || checked.Packed || checked.Sections < 100 {
			t.Errorf("%s: %+v, %v", name, checked, err)
		}
	}
	dir := copyDir(t, filepath.Join(fixtures, "tiny"))
	change(t, dir, "model.safetensors", func(d []byte) { copy(d[len(d)/2&^1:], []byte{0x80, 0x7f}) })
	if _, err := pack.Verify(context.Background(), dir, weights.Options{}, nil); err == nil || !strings.Contains(err.Error(), "not finite") {
		t.Errorf("%v", err)
	}
}

func TestReadersRefuse(t *testing.T) {
	c := open(t, packed(t, filepath.Join(fixtures, "tiny"), keep()))
	p := c.Packed()
	short := make([]byte, 10)
	for name, err := range map[string]error{
		"short record": p.VerifyRecord(0, 0, short), "no layer": p.VerifyRecord(99, 0, short), "no expert": p.VerifyRecord(0, 8, short),
		"no row":    func() error { _, err := p.NgramRow(0, p.NgramRows(0), make([]byte, 1000)); return err }(),
		"short row": func() error { _, err := p.NgramRow(0, 1, short); return err }(),
		"no table":  func() error { _, err := p.NgramRow(1, 0, make([]byte, 1000)); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if p.LayerIndex("mtp.layers.0") != p.Layers()-1 || p.Layers() != 9 || p.LayerIndex("nothing") != -1 {
		t.Errorf("layers %d, the draft head's is %d", p.Layers(), p.LayerIndex("mtp.layers.0"))
	}
	dense := int64(len(readFile(t, p.Dir(), "dense.bin")))
	if got, want := p.MemoryFloor(), dense+16*p.RecordStride(0)+int64(p.NgramRowBytes(0)); got != want {
		t.Errorf("memory floor %d, want %d", got, want)
	}
	for layer := range p.Layers() {
		if p.RecordStride(layer)%weights.PackedPage != 0 || p.RecordOffset(layer, 1)%weights.PackedPage != 0 || int64(p.RecordBytes(layer)) > p.RecordStride(layer) {
			t.Errorf("layer %d: %d bytes at a stride of %d", layer, p.RecordBytes(layer), p.RecordStride(layer))
		}
	}
}
