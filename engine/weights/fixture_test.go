package weights_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lector/engine/weights"
)

const (
	fixtures = "../../tests/fixtures"
	layer0   = "model.language_model.layers.0"
	layer1   = "model.language_model.layers.1"
	mlx      = "language_model.model."
)

// entry and file are a safetensors file as plain data, read and written by code of the tests' own.
type entry struct {
	DType string
	Shape []int
	Data  []byte
}

type file map[string]entry

type header struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

func decode(t testing.TB, data []byte) file {
	t.Helper()
	n := binary.LittleEndian.Uint64(data)
	var headers map[string]header
	if err := json.Unmarshal(data[8:8+n], &headers); err != nil {
		t.Fatal(err)
	}
	f := file{}
	for name, h := range headers {
		f[name] = entry{h.DType, h.Shape, data[8+int(n)+h.Offsets[0] : 8+int(n)+h.Offsets[1]]}
	}
	return f
}

func (f file) encode() []byte {
	headers, body := map[string]header{}, []byte{}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		e := f[name]
		headers[name] = header{e.DType, e.Shape, [2]int{len(body), len(body) + len(e.Data)}}
		body = append(body, e.Data...)
	}
	text, _ := json.Marshal(headers)
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, body)
}

// fixture is a folder's two files, free to change.
func fixture(t testing.TB, name string) (config []byte, f file) {
	t.Helper()
	return read(t, name, "config.json"), decode(t, read(t, name, "model.safetensors"))
}

func read(t testing.TB, name, base string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures, name, base))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// edit changes a config through its JSON form.
func edit(t testing.TB, config []byte, change func(top, text map[string]any)) []byte {
	t.Helper()
	var top map[string]any
	if err := json.Unmarshal(config, &top); err != nil {
		t.Fatal(err)
	}
	text, _ := top["text_config"].(map[string]any)
	change(top, text)
	out, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t testing.TB, config []byte, f file, options ...weights.Options) *weights.Checkpoint {
	t.Helper()
	options = append(options, weights.Options{})
	c, err := weights.OpenBytesWith("test", config, f.encode(), options[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func openDir(t testing.TB, dir string) *weights.Checkpoint {
	t.Helper()
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// floats decodes BF16 by definition: the upper half of a float32.
func floats(data []byte) (list []float32) {
	for i := 0; i < len(data); i += 2 {
		list = append(list, math.Float32frombits(uint32(data[i])<<16|uint32(data[i+1])<<24))
	}
	return list
}

// constant is a BF16 vector of one value.
func constant(n int, value float32) entry {
	bits := math.Float32bits(value)
	return entry{"BF16", []int{n}, bytes.Repeat([]byte{byte(bits >> 16), byte(bits >> 24)}, n)}
}

// write puts a checkpoint into a folder: the tensors in as many shards as names are given, with an index.
func write(t *testing.T, config []byte, f file, shards ...string) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("config.json", config)
	if len(shards) == 0 {
		put("model.safetensors", f.encode())
		return dir
	}
	index, parts := map[string]string{}, make([]file, len(shards))
	for i, name := range slices.Sorted(maps.Keys(f)) {
		k := i * 7 % len(shards)
		if parts[k] == nil {
			parts[k] = file{}
		}
		parts[k][name], index[name] = f[name], shards[k]
	}
	for i, shard := range shards {
		put(shard, parts[i].encode())
	}
	text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": index})
	put("model.safetensors.index.json", text)
	return dir
}
