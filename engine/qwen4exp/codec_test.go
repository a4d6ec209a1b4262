package qwen4exp_test

import (
	"maps"
	"math"
	"testing"

	"lector/engine/cpu"
	"lector/engine/qwen4exp"
)

// codecs are the settings that say how a state is held, but for the default.
func codecs() []qwen4exp.Options {
	return []qwen4exp.Options{{KV: qwen4exp.KVF16}, {KV: qwen4exp.KVQ8}}
}

// Whatever holds the rows, every law of an engine stands: a restored state goes on as if it had not stopped, and cuts
// leave no trace, bit for bit.
func TestLawsOfCodecs(t *testing.T) {
	for _, opt := range codecs() {
		t.Run(opt.Codec(), func(t *testing.T) { laws(t, "tiny", opt) })
	}
}

// The identity of the default says what it always said, so that states stored before stay readable; a setting changes
// one field, which a refused restore names.
func TestCodecInIdentity(t *testing.T) {
	fields := func(opt qwen4exp.Options) map[string]string {
		e := open(t, "tiny", cpu.New(cpu.Options{}), opt)
		defer e.Close()
		id, err := e.Identity()
		if err != nil {
			t.Fatal(err)
		}
		out, names := map[string]string{}, ""
		for _, f := range id.Fields {
			out[f.Name], names = f.Value, names+f.Name+" "
		}
		if names != "weights config tokenizer mtp_hidden_norm codec " {
			t.Fatalf("fields are %s", names)
		}
		return out
	}
	plain := fields(qwen4exp.Options{})
	if plain["codec"] != "exact-f32" {
		t.Fatalf("codec of the default is %s, which is another identity", plain["codec"])
	}
	if got := fields(qwen4exp.Options{KV: qwen4exp.KVF32}); !maps.Equal(got, plain) {
		t.Errorf("naming the default changes %v to %v", plain, got)
	}
	seen := map[string]bool{plain["codec"]: true}
	for _, opt := range codecs() {
		got := fields(opt)
		if seen[got["codec"]] {
			t.Errorf("%+v has the codec of another setting, %s", opt, got["codec"])
		}
		seen[got["codec"]] = true
		got["codec"] = plain["codec"]
		if !maps.Equal(got, plain) {
			t.Errorf("%+v changes more than the codec: %v", opt, got)
		}
	}
	if _, err := qwen4exp.Open(checkpoint(t, "tiny"), cpu.New(cpu.Options{}), qwen4exp.Options{KV: "q4"}); err == nil {
		t.Error("kv q4 opens")
	}
}

// What a sequence takes of a memory budget, and what a token adds to its state, are the bytes of its rows.
func TestBytesOfCodecs(t *testing.T) {
	// tiny: two attention layers and the head's, each with K and V of 2 heads of 32 and an index key of 32, and a token id
	for kv, want := range map[qwen4exp.KV]int{
		qwen4exp.KVF32: 3*(2*64*4+32*4) + 4,
		qwen4exp.KVF16: 3*(2*64*2+32*4) + 4,
		qwen4exp.KVQ8:  3*(2*(64+2*2+8)+32*4) + 4, // codes, two scales, the loss
	} {
		e := open(t, "tiny", cpu.New(cpu.Options{}), qwen4exp.Options{KV: kv})
		if got := e.Info().BytesPerToken; got != want {
			t.Errorf("%s: %d bytes a token, want %d", kv, got, want)
		}
		const rows = 1 << 14
		small, err := qwen4exp.StateBytes(e, rows)
		if err != nil {
			t.Fatal(err)
		}
		large, err := qwen4exp.StateBytes(e, 2*rows)
		if err != nil {
			t.Fatal(err)
		}
		held := want - 4 + 3*32*4/4 // the ids are not on the device; a block key for every 4 tokens is
		if got := float64(large-small) / rows; math.Abs(got-float64(held)) > 4 {
			t.Errorf("%s: a sequence holds %.1f bytes a token, want about %d", kv, got, held)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
