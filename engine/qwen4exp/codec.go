package qwen4exp

import (
	"fmt"

	"lector/engine/ops"
)

// KV says how rows of keys and values are held in memory, and exported: attention reads what it says.
type KV string

const (
	KVF32 KV = "f32" // as computed (default)
	KVF16 KV = "f16" // halves: half the bytes
	KVQ8  KV = "q8"  // codes of 8 bits and a half for every 32 of them: lossy, with the loss in the state
)

// exact names the codec of a state whose regions hold everything in float32, as computed.
const exact = "exact-f32"

// rows is the format of the backend's caches.
func (kv KV) rows() (ops.RowFormat, error) {
	switch kv {
	case KVF32, "":
		return ops.RowsF32, nil
	case KVF16:
		return ops.RowsF16, nil
	case KVQ8:
		return ops.RowsQ8, nil
	}
	return 0, fmt.Errorf("kv %q: it is %s, %s or %s", kv, KVF32, KVF16, KVQ8)
}

// Codec names how a state's regions hold it: the value of the identity's field of that name.
func (o Options) Codec() string {
	if o.KV == KVF32 || o.KV == "" {
		return exact
	}
	return "kv-" + string(o.KV)
}
