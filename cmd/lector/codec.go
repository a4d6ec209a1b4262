package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"lector/cache"
	"lector/engine/qwen4exp"
)

// holding says how a state is held, in memory and in snapshots.
type holding struct {
	kv        string // keys and values
	recurrent string // recurrent states
}

func (h *holding) flags(f *pflag.FlagSet) {
	f.StringVar(&h.kv, "kv", envOr("LECTOR_KV", "f32"), "`format` that keys and values are held and stored in: f32, f16 (half the bytes) or q8 (a quarter, rounded); part of a snapshot's identity")
	f.StringVar(&h.recurrent, "state", envOr("LECTOR_STATE", "f32"), "`format` of recurrent states at the end of every cell that is stored: f32, or bf16 (half the bytes, rounded); part of a snapshot's identity")
}

// given are the settings as a command line has them; nothing where they are the default.
func (h *holding) given() string {
	if (qwen4exp.Options{KV: qwen4exp.KV(h.kv), State: qwen4exp.State(h.recurrent)}).Codec() == (qwen4exp.Options{}).Codec() {
		return ""
	}
	return fmt.Sprintf(" --kv %s --state %s", h.kv, h.recurrent)
}

// withSettings adds to the refusal of a snapshot that is held otherwise what to open the model with.
func (a *app) withSettings(err error, snapshot cache.Identity) error {
	if !errors.Is(err, cache.ErrIncompatible) {
		return err
	}
	for _, f := range snapshot.Fields {
		if f.Name != "codec" || f.Value == a.codec().Codec() {
			continue
		}
		if kv, state, ok := qwen4exp.ParseCodec(f.Value); ok {
			return fmt.Errorf("%w: give --kv %s --state %s", err, kv, state)
		}
	}
	return err
}

// codec are the settings of how a state is held.
func (a *app) codec() qwen4exp.Options {
	return qwen4exp.Options{KV: qwen4exp.KV(a.kv), State: qwen4exp.State(a.recurrent)}
}

// lost says what rounding took from a region; nothing where it was not rounded.
func lost(losses []cache.Loss, region string) string {
	for _, l := range losses {
		if l.Region == region {
			return fmt.Sprintf(", rounding took %.1e of it", l.L2)
		}
	}
	return ""
}

// worst is the largest loss of a snapshot; false where nothing was rounded.
func worst(losses []cache.Loss) (cache.Loss, bool) {
	if len(losses) == 0 {
		return cache.Loss{}, false
	}
	return slices.MaxFunc(losses, func(a, b cache.Loss) int { return cmp.Compare(a.L2, b.L2) }), true
}
