package weights_test

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lector/engine/weights"
)

// raw builds a file from a header text and a body.
func raw(header string, body int) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, body)...)
}

func TestDamagedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":               {nil, "0 bytes"},
		"no header":           {[]byte{9, 0, 0, 0, 0, 0, 0, 0}, "cut short"},
		"huge header":         {binary.LittleEndian.AppendUint64(nil, 100_000_001), "limit of 100000000"},
		"not JSON":            {raw("garbage", 0), "not a JSON object"},
		"list":                {raw("[]", 0), "not a JSON object"},
		"cut JSON":            {raw(`{"a":{"dtype":"F32"`, 0), "read header"},
		"text after":          {raw(`{} {}`, 0), "more text"},
		"no dtype":            {raw(`{"a":{"shape":[1],"data_offsets":[0,4]}}`, 4), "tensor a: needs dtype"},
		"no offsets":          {raw(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "tensor a: needs dtype"},
		"unknown type":        {raw(`{"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}`, 4), `type "F33"`},
		"negative size":       {raw(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), "tensor a: shape [-1]"},
		"overflowing size":    {raw(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}`, 4), "too large"},
		"beyond the end":      {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4), "cut short"},
		"backwards":           {raw(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4), "outside"},
		"negative offset":     {raw(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, 4), "tensor a"},
		"size and shape":      {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "takes 64 bits, data_offsets give 4 bytes"},
		"half a byte":         {raw(`{"a":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}}`, 0), "takes 4 bits"},
		"overlap":             {raw(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6), "tensor b in test.safetensors starts at byte 2, inside a"},
		"gap":                 {raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), "before tensor b, belong to no tensor"},
		"bytes after the end": {raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 3), "after the last tensor"},
		"twice":               {raw(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), `"a" stands twice`},
	} {
		if _, err := weights.ParseSafetensors(c.data); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "test.safetensors") {
			t.Errorf("%s: %v\nwant %q", name, err, c.want)
		}
	}
}

func TestSoundFiles(t *testing.T) {
	data := raw(`{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[],"data_offsets":[4,6]},"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},"z":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}}   `, 6)
	tensors, err := weights.ParseSafetensors(data)
	if err != nil || len(tensors) != 3 || tensors[0].Name != "a" || tensors[1].Name != "z" || tensors[2].Name != "b" {
		t.Errorf("%v, %v", tensors, err)
	}
}

func TestDamagedCheckpoints(t *testing.T) {
	config, tiny := fixture(t, "tiny")
	mlxConfig, mlxFile := fixture(t, "tiny-mlx-plain")
	quantisation := func(change func(q map[string]any)) []byte {
		return edit(t, mlxConfig, func(top, _ map[string]any) { change(top["quantization"].(map[string]any)) })
	}
	shard := layer1 + ".ple.ple_embedding.ngram_embedding.shard_2.weight"
	qkv := layer0 + ".linear_attn.in_proj_qkv.weight"
	embed := mlx + "embed_tokens"
	for name, c := range map[string]struct {
		config []byte
		change map[string]*entry // nil removes
		want   []string
	}{
		"missing matrix":      {config, map[string]*entry{qkv: nil}, []string{qkv, "[256 128]", "missing"}},
		"missing vector":      {config, map[string]*entry{layer0 + ".linear_attn.dt_bias": nil}, []string{"dt_bias", "missing"}},
		"missing conv":        {config, map[string]*entry{layer0 + ".linear_attn.conv1d.weight": nil}, []string{"conv1d.weight", "missing"}},
		"missing experts":     {config, map[string]*entry{layer0 + ".mlp.experts.gate_up_proj": nil}, []string{"layers.0.mlp.experts.gate_up_proj", "missing"}},
		"missing shard":       {config, map[string]*entry{shard: nil}, []string{shard, "missing"}},
		"wrong shape":         {config, map[string]*entry{qkv: {"BF16", []int{128, 256}, make([]byte, 65536)}}, []string{qkv, "model.safetensors", "[128 256]", "[256 128]"}},
		"wrong type":          {config, map[string]*entry{qkv: {"F8_E4M3", []int{256, 128}, make([]byte, 32768)}}, []string{qkv, "F8_E4M3", "not supported"}},
		"wrong conv":          {config, map[string]*entry{layer0 + ".linear_attn.conv1d.weight": {"BF16", []int{4, 1, 256}, make([]byte, 2048)}}, []string{"conv1d", "[4 1 256]", "[256 1 4]"}},
		"not a number":        {config, map[string]*entry{"mtp.pre_fc_norm_embedding.weight": {"BF16", []int{128}, []byte(strings.Repeat("\xc0\x7f", 128))}}, []string{"pre_fc_norm_embedding", "NaN"}},
		"packed, no scales":   {config, map[string]*entry{qkv: {"U32", []int{256, 16}, make([]byte, 16384)}}, []string{qkv, "U32", "scales"}},
		"bias":                {config, map[string]*entry{layer0 + ".linear_attn.out_proj.bias": {"BF16", []int{128}, make([]byte, 256)}}, []string{"out_proj.bias", "no bias"}},
		"wrong constant type": {config, map[string]*entry{layer1 + ".ple.ple_embedding.layer_multipliers": {"I32", []int{3}, make([]byte, 12)}}, []string{"layer_multipliers", "I64 [3]"}},
		"wrong sizes":         {config, map[string]*entry{layer1 + ".ple.ple_embedding.ngram_heads_vocab_sizes": {"I64", []int{4}, make([]byte, 32)}}, []string{"ngram_heads_vocab_sizes", "value 0 is 0", "503"}},
		"two spellings":       {config, map[string]*entry{"language_model.lm_head.weight": {"BF16", []int{1}, make([]byte, 2)}}, []string{"language_model.lm_head.weight", "both lm_head.weight"}},
		"wrong seed":          {edit(t, config, func(_, text map[string]any) { text["seed"] = 0 }), nil, []string{"layer_multipliers", "value 0", "seed 0"}},

		"missing biases":   {mlxConfig, map[string]*entry{embed + ".biases": nil}, []string{"embed_tokens.biases", "missing"}},
		"missing scales":   {mlxConfig, map[string]*entry{embed + ".scales": nil}, []string{embed, "U32"}},
		"odd words":        {mlxConfig, map[string]*entry{embed + ".weight": {"U32", []int{512, 15}, make([]byte, 30720)}}, []string{embed, "15 words", "128 codes"}},
		"five bits":        {mlxConfig, map[string]*entry{embed + ".weight": {"U32", []int{512, 20}, make([]byte, 40960)}}, []string{embed, "20 words"}},
		"other bits":       {mlxConfig, map[string]*entry{embed + ".weight": {"U32", []int{512, 32}, make([]byte, 65536)}}, []string{embed, "8 bits, config.json says 4"}},
		"groups of 16":     {mlxConfig, map[string]*entry{embed + ".scales": {"BF16", []int{512, 8}, make([]byte, 8192)}}, []string{embed + ".scales", "8 scales for 128 inputs"}},
		"rows of scales":   {mlxConfig, map[string]*entry{embed + ".scales": {"BF16", []int{511, 4}, make([]byte, 4088)}}, []string{embed + ".scales", "does not fit"}},
		"shape of biases":  {mlxConfig, map[string]*entry{embed + ".biases": {"BF16", []int{512, 2}, make([]byte, 2048)}}, []string{embed + ".biases", "does not match"}},
		"type of biases":   {mlxConfig, map[string]*entry{embed + ".biases": {"F16", []int{512, 4}, make([]byte, 4096)}}, []string{embed + ".biases", "does not match"}},
		"type of scales":   {mlxConfig, map[string]*entry{embed + ".scales": {"U8", []int{512, 4}, make([]byte, 2048)}}, []string{embed + ".scales", "does not fit"}},
		"said to be plain": {quantisation(func(q map[string]any) { q[embed] = false }), nil, []string{embed, "not quantised"}},
		"other group":      {quantisation(func(q map[string]any) { q[embed] = map[string]any{"bits": 4, "group_size": 64} }), nil, []string{embed, "groups of 32, config.json says 64"}},
		"other shard bits": {quantisation(func(q map[string]any) {
			q[mlx+"layers.1.ple.ple_embedding.ngram_embedding.shard_3"] = map[string]any{"bits": 8, "group_size": 32}
		}), nil, []string{"shards.3", "config.json says 8"}},
		"two words on one": {quantisation(func(q map[string]any) { q[embed] = false; q["model.embed_tokens"] = true }), nil, []string{"embed_tokens", "disagree"}},
		"other mode":       {quantisation(func(q map[string]any) { q["mode"] = "mxfp4" }), nil, []string{"quantization", `"mxfp4" is not supported`}},
		"other method": {edit(t, config, func(top, _ map[string]any) {
			top["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{128, 128}}
		}), nil, []string{"quantization_config", `"fp8" is not supported`}},
	} {
		f := file{}
		base := tiny
		if c.want[0] == "quantization" || strings.Contains(c.want[0], "embed_tokens") || strings.Contains(c.want[0], "shards.") {
			base = mlxFile
		}
		for name, e := range base {
			f[name] = e
		}
		for name, e := range c.change {
			if e == nil {
				delete(f, name)
			} else {
				f[name] = *e
			}
		}
		_, err := weights.OpenBytes("test", c.config, f.encode())
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nlacks %q", name, err, want)
			}
		}
	}
}

func TestDamagedFolders(t *testing.T) {
	config, f := fixture(t, "tiny")
	index := func(shard string) string {
		text, _ := json.Marshal(map[string]any{"weight_map": map[string]string{"lm_head.weight": shard}})
		return string(text)
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"no config":           {"config.json", "", "config.json"},
		"broken config":       {"config.json", "{", "config.json"},
		"no weights":          {"model.safetensors", "", "neither model.safetensors nor model.safetensors.index.json"},
		"cut weights":         {"model.safetensors", string(f.encode()[:100000]), "cut short"},
		"broken generation":   {"generation_config.json", "[]", "generation_config.json"},
		"stop outside":        {"generation_config.json", `{"eos_token_id":512}`, "512 is outside the vocabulary"},
		"broken index":        {"model.safetensors.index.json", "{", "model.safetensors.index.json"},
		"no map":              {"model.safetensors.index.json", "{}", "weight_map"},
		"shard missing":       {"model.safetensors.index.json", index("model-1.safetensors"), "model-1.safetensors"},
		"shard outside":       {"model.safetensors.index.json", index("../model.safetensors"), "must be a .safetensors file of the same folder"},
		"shard below":         {"model.safetensors.index.json", index("a/model.safetensors"), "must be a .safetensors file of the same folder"},
		"shard absolute":      {"model.safetensors.index.json", index("/model.safetensors"), "must be a .safetensors file of the same folder"},
		"shard of other kind": {"model.safetensors.index.json", index("config.json"), "must be a .safetensors file of the same folder"},
		"tensor elsewhere":    {"model.safetensors.index.json", strings.Replace(index("model.safetensors"), "lm_head", "lm_tail", 1), "lm_tail.weight is in model.safetensors, which does not hold it"},
	} {
		dir := write(t, config, f)
		path := filepath.Join(dir, c.file)
		var err error
		if c.text == "" {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, []byte(c.text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := weights.Open(dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v\nwant %q", name, err, c.want)
		}
	}
	if _, err := weights.Open(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("a folder that is not there was opened")
	}
}

func TestTensorInTwoShards(t *testing.T) {
	config, f := fixture(t, "tiny")
	dir := write(t, config, f, "a.safetensors", "b.safetensors")
	both := file{"lm_head.weight": f["lm_head.weight"]}
	for _, shard := range []string{"a.safetensors", "b.safetensors"} {
		data, err := os.ReadFile(filepath.Join(dir, shard))
		if err != nil {
			t.Fatal(err)
		}
		part := decode(t, data)
		part["lm_head.weight"] = both["lm_head.weight"]
		if err := os.WriteFile(filepath.Join(dir, shard), part.encode(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := weights.Open(dir); err == nil || !strings.Contains(err.Error(), "a.safetensors") || !strings.Contains(err.Error(), "b.safetensors") {
		t.Errorf("%v", err)
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add([]byte{})
	f.Add(raw(`{"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[],"data_offsets":[4,6]}}`, 6))
	f.Add(raw(`{"__metadata__":{"x":"y"}}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := weights.ParseSafetensors(data)
		if err != nil {
			return
		}
		total := 0
		for _, tensor := range tensors { // every byte of the data section belongs to exactly one tensor
			total += len(tensor.Data)
		}
		if n := binary.LittleEndian.Uint64(data); total != len(data)-8-int(n) {
			t.Errorf("%d of %d bytes named", total, len(data)-8-int(n))
		}
	})
}
