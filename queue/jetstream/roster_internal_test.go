package jetstream

import (
	"encoding/json"
	"testing"
)

// What a worker says comes from another machine.
func FuzzDecodeStatus(f *testing.F) {
	f.Add([]byte(`{"version":1,"host":"a","process":3,"jobs":[{"id":"x","since":"2026-11-30T09:00:00Z"}],"depth":[{"kind":"ingest","waiting":2}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStatus(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			return // a time that JSON does not have
		}
		if same, err := decodeStatus(again); err != nil || same.Host != s.Host || len(same.Jobs) != len(s.Jobs) {
			t.Fatalf("%+v came back as %+v: %v", s, same, err)
		}
	})
}
