package jetstream

import (
	"encoding/json"
	"testing"
)

// A record is read from a bucket that others can write to.
func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"job":{"version":1,"id":"a"},"state":"queued","attempts":2,"generation":1,"sequence":7,"claim":"c"}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"dead":{"class":"x"},"result":{"n":[1,2]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := decodeRecord("a", b)
		if err != nil {
			return
		}
		if rec.Version != recordVersion {
			t.Fatalf("took version %d", rec.Version)
		}
		again, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRecord("a", again); err != nil {
			t.Fatalf("wrote what it does not read: %v", err)
		}
	})
}
