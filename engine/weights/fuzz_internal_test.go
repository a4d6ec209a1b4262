package weights

import (
	"path/filepath"
	"strings"
	"testing"
)

// Whatever an index says, its shards lie in the folder of the checkpoint.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}`))
	f.Add([]byte(`{"weight_map":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		shards, err := parseIndex(b)
		if err != nil {
			return
		}
		for file, tensors := range shards {
			if !filepath.IsLocal(file) || filepath.Base(file) != file || !strings.HasSuffix(file, ".safetensors") || len(tensors) == 0 {
				t.Fatalf("%q holds %v", file, tensors)
			}
		}
	})
}

// A packing that is read is one that tensors can have, and reading it again gives the same.
func FuzzQuant(f *testing.F) {
	f.Add([]byte(`{"quantization":{"group_size":64,"bits":4,"mode":"affine","model.layers.0.mlp.gate":{"group_size":64,"bits":8},"lm_head":false}}`))
	f.Add([]byte(`{"quantization_config":{"group_size":32,"bits":8}}`))
	f.Add([]byte(`{"quantization":{"group_size":-1,"bits":1e9}}`))
	f.Add([]byte(`{"quantization":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseQuant(b)
		if err != nil {
			return
		}
		again, err := parseQuant(b)
		if err != nil || again.def != q.def || len(again.modules) != len(q.modules) {
			t.Fatalf("%+v, then %+v, %v", q, again, err)
		}
		if !q.present && len(q.modules) > 0 {
			t.Fatalf("nothing is packed, and %d modules are", len(q.modules))
		}
	})
}
