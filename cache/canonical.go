package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Every JSON object here has one canonical form: fields in the order of the table in format.md, no white space,
// no optional spelling. Equal things so have equal bytes, and a digest of the bytes names the thing.

// encodeJSON writes the canonical form.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// form is what a decoder knows before it reads.
type form struct {
	what    string // for messages
	version int    // the newest version that is read
	limit   int    // bytes
}

// decodeJSON reads exactly one value into v: no unknown field, nothing behind it, nothing beyond the limit. The
// caller compares the bytes with the canonical form of what it got. Errors are ErrCorrupt, but for a newer
// version, which is ErrIncompatible.
func decodeJSON(b []byte, f form, v any) error {
	if len(b) > f.limit {
		return refuse(ErrCorrupt, "%s is %d bytes, more than the %d it may have", f.what, len(b), f.limit)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return refuse(ErrCorrupt, "%s is damaged: %v", f.what, err)
	}
	if head.Version > f.version {
		return refuse(ErrIncompatible, "%s has version %d, and this lector reads up to version %d: use a newer lector", f.what, head.Version, f.version)
	}
	if head.Version < 1 {
		return refuse(ErrCorrupt, "%s is damaged: version %d does not exist", f.what, head.Version)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return refuse(ErrCorrupt, "%s is damaged: %v", f.what, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return refuse(ErrCorrupt, "%s is damaged: something follows its end", f.what)
	}
	return nil
}

// sameForm refuses bytes that mean the same as the canonical form but are not it.
func sameForm(what string, got, canonical []byte) error {
	if bytes.Equal(got, canonical) {
		return nil
	}
	at := 0
	for at < min(len(got), len(canonical)) && got[at] == canonical[at] {
		at++
	}
	return refuse(ErrCorrupt, "%s is damaged: not in canonical form at byte %d", what, at)
}

// checkText refuses what has more than one spelling in JSON, or no place in a message.
func checkText(what, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("%s has %d bytes, more than %d", what, len(s), limit)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return fmt.Errorf("%s %q has a character that is not printable ASCII", what, s)
		}
	}
	return nil
}
