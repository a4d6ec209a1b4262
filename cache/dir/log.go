package dir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"lector/cache"
)

// logFolder holds the logs of open stores, each with the files that it names. No object has '~' in its name.
const logFolder = "log~"

const (
	logVersion  = 2 // 2: Sum
	inlineBytes = 256 << 10
	logBytes    = 4 << 20         // from then on an empty log is begun anew
	logTime     = time.Second / 2 // how long names may be durable in the log alone
	jointBytes  = 16 << 20        // files of no more are synced beside the record that names them
)

// entry is one object of a record: its bytes, or which file of the log's has them.
type entry struct {
	Name  string `json:"name"`
	File  string `json:"file,omitempty"` // in logFolder
	Sum   string `json:"sum,omitempty"`  // SHA-256 of the file, which may not be durable where the record is; "": it is
	Bytes []byte `json:"bytes,omitempty"`
}

// record is what one PutAll names, in order. A log is lines, each a record behind the digest of its JSON; one without objects
// says that all before it is durable without the log.
type record struct {
	Version int     `json:"version"`
	Objects []entry `json:"objects"`
}

func (r record) line() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append([]byte(cache.Sum(b).String()+" "), append(b, '\n')...), nil
}

// records are those of a log that count: behind the last empty one, up to a line that was not written to its end.
func records(b []byte) (out []record, err error) {
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		sum, body, cut := bytes.Cut(line, []byte(" "))
		if !whole || !cut || cache.Sum(body).String() != string(sum) {
			return out, nil // its PutAll did not return
		}
		var r record
		if err := json.Unmarshal(body, &r); err != nil || r.Version < 1 || r.Version > logVersion {
			return nil, fmt.Errorf("it has a record of version %d, and this lector knows version %d: use a newer lector", r.Version, logVersion)
		}
		if out = append(out, r); len(r.Objects) == 0 {
			out = nil
		}
		b = rest
	}
	return out, nil
}

// torn says whether b is what a power cut left of whole: its beginning, and nothing or zeros behind it.
func torn(b, whole []byte) bool {
	rest := bytes.TrimRight(b, "\x00")
	return len(rest) < len(whole) && bytes.HasPrefix(whole, rest)
}
