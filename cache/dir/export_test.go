package dir

import "time"

// InlineBytes sets how large an object may be that lies in the log itself, so that tests need none of 256 KB.
func (s *Store) InlineBytes(n int64) { s.inline = n }

// SettleLate keeps the store from settling before it is closed, or has to.
func (s *Store) SettleLate() { s.settling = time.Hour }

// Records reads a log, and returns the names that it keeps.
func Records(b []byte) (names []string, err error) {
	all, err := records(b)
	for _, r := range all {
		for _, e := range r.Objects {
			names = append(names, e.Name)
		}
	}
	return names, err
}
