package qwen4exp

import (
	"fmt"
	"strings"

	"lector/engine/ops"
)

// KV says how rows of keys and values are held in memory, and exported: attention reads what it says.
type KV string

const (
	KVF32 KV = "f32" // as computed (default)
	KVF16 KV = "f16" // halves: half the bytes
	KVQ8  KV = "q8"  // codes of 8 bits and a half for every 32 of them: lossy, with the loss in the state
)

// State says how recurrent states are held at the end of every cell of the class's grid, and exported there. Between
// two such places they are float32, whatever it says.
type State string

const (
	StateF32  State = "f32"  // as computed (default)
	StateBF16 State = "bf16" // rounded at the end of each cell: lossy, with the loss in the state
)

// check refuses what is none of them.
func (s State) check() error {
	if s != "" && s != StateF32 && s != StateBF16 {
		return fmt.Errorf("state %q: it is %s or %s", s, StateF32, StateBF16)
	}
	return nil
}

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
	var parts []string
	if o.KV != KVF32 && o.KV != "" {
		parts = append(parts, kvPrefix+string(o.KV))
	}
	if o.State != StateF32 && o.State != "" {
		parts = append(parts, statePrefix+string(o.State))
	}
	if parts == nil {
		return exact
	}
	return strings.Join(parts, codecSeparator)
}

// The parts of a codec's name.
const (
	kvPrefix       = "kv-"
	statePrefix    = "state-"
	codecSeparator = "+"
)

// ParseCodec reads the settings off a codec's name; ok says that it is one.
func ParseCodec(name string) (kv KV, state State, ok bool) {
	kv, state = KVF32, StateF32
	if name != exact {
		for _, part := range strings.Split(name, codecSeparator) {
			if v, cut := strings.CutPrefix(part, kvPrefix); cut {
				kv = KV(v)
			} else if v, cut := strings.CutPrefix(part, statePrefix); cut {
				state = State(v)
			}
		}
	}
	_, err := kv.rows()
	return kv, state, err == nil && state.check() == nil && Options{KV: kv, State: state}.Codec() == name
}
