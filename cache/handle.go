package cache

import (
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"
)

// HandleVersion is the newest handle format. 1: first.
const HandleVersion = 1

// maxHandleBytes bounds an encoded handle.
const maxHandleBytes = 4 << 10

// Handle is what a later job needs to go on from a snapshot. Its expiry comes from the submit time plus the time
// to live, so that a repeat of the same job gives the same bytes.
type Handle struct {
	Version  int
	Manifest Digest
	Model    ModelID
	Tokens   int
	Tenant   string
	Expires  time.Time // zero: never
}

// handleFile is the stored form.
type handleFile struct {
	Version  int     `json:"version"`
	Manifest Digest  `json:"manifest"`
	Model    ModelID `json:"model"`
	Tokens   int     `json:"tokens"`
	Tenant   string  `json:"tenant"`
	Expires  string  `json:"expires,omitempty"` // RFC 3339 in UTC, as few digits of a second as say it
}

// Encode is the canonical form; its digest names the handle.
func (h Handle) Encode() []byte {
	f := handleFile{Version: h.Version, Manifest: h.Manifest, Model: h.Model, Tokens: h.Tokens, Tenant: h.Tenant}
	if !h.Expires.IsZero() {
		f.Expires = h.Expires.UTC().Format(time.RFC3339Nano)
	}
	b, err := encodeJSON(f)
	if err != nil {
		// Unreachable: every field is a string or a whole number. Bytes that no decoder takes are the safe answer.
		return []byte("null")
	}
	return b
}

// DecodeHandle reads the stored form. Anything but the canonical form of a possible handle is ErrCorrupt.
func DecodeHandle(b []byte) (Handle, error) {
	var f handleFile
	if err := decodeJSON(b, form{"handle", HandleVersion, maxHandleBytes}, &f); err != nil {
		return Handle{}, err
	}
	h := Handle{Version: f.Version, Manifest: f.Manifest, Model: f.Model, Tokens: f.Tokens, Tenant: f.Tenant}
	if f.Expires != "" {
		t, err := time.Parse(time.RFC3339Nano, f.Expires)
		if err != nil {
			return Handle{}, refuse(ErrCorrupt, "handle is damaged: %v", err)
		}
		h.Expires = t.UTC()
	}
	if err := sameForm("handle", b, h.Encode()); err != nil {
		return Handle{}, err
	}
	if err := h.check(); err != nil {
		return Handle{}, refuse(ErrCorrupt, "handle is damaged: %v", err)
	}
	return h, nil
}

func (h Handle) check() error {
	switch {
	case h.Version != HandleVersion:
		return fmt.Errorf("version %d is not %d", h.Version, HandleVersion)
	case h.Tokens < 1 || h.Tokens > math.MaxInt32:
		return fmt.Errorf("%d tokens are no possible count", h.Tokens)
	case !validElement(h.Tenant):
		return fmt.Errorf("tenant %.80q is not a name", h.Tenant)
	case !h.Expires.IsZero() && (h.Expires.Year() < 1 || h.Expires.Year() > 9999):
		return fmt.Errorf("it expires in the year %d", h.Expires.Year())
	}
	return nil
}

// Valid is nil before the handle's time is over, and ErrExpired saying when it was afterwards.
func (h Handle) Valid(now time.Time) error {
	if h.Expires.IsZero() || now.Before(h.Expires) {
		return nil
	}
	return refuse(ErrExpired, "handle %s expired on %s: read the document again with lector ingest",
		HandleName(Sum(h.Encode())), h.Expires.UTC().Format("2006-01-02 15:04 MST"))
}

// A printed name is "lh1-" and 56 letters: the digest and three bytes of a checksum, which fill them exactly, so
// that one digest has one name. A mistyped letter passes once in 16 million.
const (
	handlePrefix   = "lh1-"
	handleLetters  = 56
	handleChecksum = 3
	// HandleNameMin is the fewest letters behind "lh1-" that FindHandle takes for the beginning of a name.
	HandleNameMin = 8
)

func handleEncoding() *base32.Encoding {
	return base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
}

// HandleName is the printable form of a handle's digest.
func HandleName(d Digest) string {
	check := Sum(append([]byte(handleDomain), d[:]...))
	return handlePrefix + handleEncoding().EncodeToString(append(d[:], check[:handleChecksum]...))
}

// ParseHandleName reads a whole printed name. Capitals and surrounding white space do no harm; ErrHandle says
// what is wrong with anything else.
func ParseHandleName(s string) (Digest, error) {
	letters, err := handleText(s)
	if err != nil {
		return Digest{}, err
	}
	if len(letters) != handleLetters {
		return Digest{}, refuse(ErrHandle, "handle %s%s has %d letters after %s, and a whole one has %d: copy it again",
			handlePrefix, letters, len(letters), handlePrefix, handleLetters)
	}
	raw, err := handleEncoding().DecodeString(letters)
	if err != nil {
		return Digest{}, refuse(ErrHandle, "handle %s%s cannot be read: %v", handlePrefix, letters, err)
	}
	d := Digest(raw[:len(Digest{})])
	if HandleName(d) != handlePrefix+letters {
		return Digest{}, refuse(ErrHandle, "handle %s%s is mistyped: its checksum does not fit, copy it again", handlePrefix, letters)
	}
	return d, nil
}

// handleText checks what a name and the beginning of one have in common, and returns the letters behind "lh1-".
func handleText(s string) (string, error) {
	clean := strings.ToLower(strings.TrimSpace(s))
	letters, ok := strings.CutPrefix(clean, handlePrefix)
	if !ok {
		return "", refuse(ErrHandle, "%.80q is not a handle: handles begin with %s", s, handlePrefix)
	}
	if len(letters) > handleLetters {
		return "", refuse(ErrHandle, "handle %.80q is too long: a handle has %d letters after %s", s, handleLetters, handlePrefix)
	}
	for _, r := range letters {
		if !(r >= 'a' && r <= 'z' || r >= '2' && r <= '7') {
			return "", refuse(ErrHandle, "handle %.80q is mistyped: handles have no %q", s, r)
		}
	}
	return letters, nil
}

// handleHex is the beginning of the digests whose names begin with the letters: five bits a letter.
func handleHex(letters string) string {
	whole := letters + strings.Repeat("a", handleLetters-len(letters))
	raw, err := handleEncoding().DecodeString(whole)
	if err != nil {
		return "" // not reached for checked letters; the caller compares whole names in any case
	}
	digits := min(5*len(letters)/4, 2*len(Digest{}))
	return hex.EncodeToString(raw)[:digits]
}
