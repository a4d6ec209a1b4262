package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"lector/queue"
)

// keepState is what of a state a handle is to hold, as a person says it: all or none.
type keepState string

const keepAll keepState = "all"

// keepStateHelp is what the flag says wherever it is.
const keepStateHelp = "`what` of the state the handle holds: all, or none: token ids alone, 4 bytes each, which every resume reads again where their state is not stored"

func (k *keepState) flag(fs *pflag.FlagSet) {
	fs.StringVar((*string)(k), "keep-state", string(keepAll), keepStateHelp)
}

// order is what an order says for it.
func (k keepState) order() (string, error) {
	switch k {
	case keepAll, "":
		return "", nil
	case queue.KeepNone:
		return queue.KeepNone, nil
	}
	return "", badInput(fmt.Errorf("--keep-state %q: all or none", string(k)))
}

// none says that token ids are all that is kept.
func (k keepState) none() bool { return k == queue.KeepNone }

// idsBytes is what token ids take.
func idsBytes(tokens int) int64 { return 4 * int64(tokens) }
