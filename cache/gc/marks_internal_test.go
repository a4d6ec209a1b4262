package gc

import (
	"maps"
	"testing"
	"time"
)

func TestMarksRoundTrip(t *testing.T) {
	marks := map[string]time.Time{"t/blobs/x": time.Unix(3, 7).UTC(), "t/a": time.Unix(-5, 0).UTC()}
	got, err := parseMarks(formatMarks(marks))
	if err != nil || !maps.Equal(got, marks) {
		t.Errorf("%v, %v", got, err)
	}
}

// Any bytes are marks or an error, and what is read is written to the same marks.
func FuzzMarks(f *testing.F) {
	f.Add([]byte(marksHead))
	f.Add([]byte(marksHead + "12 t/blobs/x\n13 t/y\n"))
	f.Add([]byte(marksHead + "12 ../x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		marks, err := parseMarks(b)
		if err != nil {
			return
		}
		again, err := parseMarks(formatMarks(marks))
		if err != nil || !maps.Equal(again, marks) {
			t.Errorf("%q: %v, then %v, %v", b, marks, again, err)
		}
	})
}
