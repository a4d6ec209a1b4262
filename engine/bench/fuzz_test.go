package bench_test

import (
	"bytes"
	"testing"

	"lector/engine/bench"
)

// A report that is read can be written and read again.
func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"version":1,"rows":[{"name":"prefill","unit":"tokens/s","samples":[1,2]}]}`))
	f.Add([]byte(`{"version":1,"rows":[{"name":"","unit":"s","samples":[]}]}`))
	f.Add([]byte(`{"version":9}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := bench.ParseReport(b)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := r.Encode(&out); err != nil {
			t.Fatal(err)
		}
		if again, err := bench.ParseReport(out.Bytes()); err != nil || len(again.Rows) != len(r.Rows) {
			t.Fatalf("%s: %v", out.Bytes(), err)
		}
	})
}
