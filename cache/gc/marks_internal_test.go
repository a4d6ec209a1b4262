package gc

import (
	"maps"
	"testing"
	"time"

	"lector/cache"
)

func TestMarksRoundTrip(t *testing.T) {
	marks := map[string]time.Time{"t/blobs/x": time.Unix(3, 7).UTC(), "t/a": time.Unix(-5, 0).UTC()}
	got, err := parseMarks(formatMarks(marks))
	if err != nil || !maps.Equal(got, marks) {
		t.Errorf("%v, %v", got, err)
	}
}

// One damaged byte makes the marks none: a time that is wrong could end a grace early.
func TestDamagedMarks(t *testing.T) {
	whole := formatMarks(map[string]time.Time{"t/blobs/x": time.Unix(3_000_000, 7).UTC(), "t/a": time.Unix(5, 0).UTC()})
	for i := range whole {
		b := append([]byte(nil), whole...)
		b[i] ^= 1
		if marks, err := parseMarks(b); err == nil {
			t.Errorf("byte %d changed: %v", i, marks)
		}
	}
	for i := range whole {
		if marks, err := parseMarks(whole[:i]); err == nil {
			t.Errorf("cut at %d: %v", i, marks)
		}
	}
}

// Any bytes are marks or an error, and what is read is written to the same marks.
func FuzzMarks(f *testing.F) {
	f.Add([]byte(marksHead))
	f.Add([]byte(marksHead + "12 t/blobs/x\n13 t/y\n"))
	f.Add([]byte(marksHead + "12 ../x\n"))
	f.Add(formatMarks(map[string]time.Time{"t/a": time.Unix(9, 0)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		marks, err := parseMarks(b)
		if err != nil { // hardly any bytes end with their digest
			marks, err = parseMarks(append(b[:len(b):len(b)], marksSum+cache.Sum(b).String()+"\n"...))
		}
		if err != nil {
			return
		}
		again, err := parseMarks(formatMarks(marks))
		if err != nil || !maps.Equal(again, marks) {
			t.Errorf("%q: %v, then %v, %v", b, marks, again, err)
		}
	})
}
