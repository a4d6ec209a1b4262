package seal

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

const (
	masterPrefix = "lector-master-1 "
	masterDomain = "lector wrapped key 1\n"
	maxWrapped   = 64 << 10 // bytes of a wrapped key
)

// Age is a Wrapper by age files: keys are encrypted to the recipients and opened with the identities.
type Age struct {
	Recipients []age.Recipient
	Identities []age.Identity
}

var _ Wrapper = Age{}

// AgeIdentities opens with the identities of an identity file, as age-keygen writes it. The error never holds one.
func AgeIdentities(text string) (Age, error) {
	ids, err := age.ParseIdentities(strings.NewReader(text))
	if err != nil {
		return Age{}, errors.New("age identities: not one AGE-SECRET-KEY a line")
	}
	return Age{Identities: ids}, nil
}

// AgeRecipients encrypts to recipients, one a line.
func AgeRecipients(text string) (Age, error) {
	to, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil {
		return Age{}, fmt.Errorf("age recipients: %w", err)
	}
	return Age{Recipients: to}, nil
}

// Wrap implements Wrapper.
func (a Age) Wrap(_ context.Context, key []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, a.Recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypt with age: %w", err)
	}
	_, err = w.Write(key)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("encrypt with age: %w", err)
	}
	return out.Bytes(), nil
}

// Unwrap implements Wrapper.
func (a Age) Unwrap(_ context.Context, b []byte) ([]byte, error) {
	if len(b) > maxWrapped {
		return nil, fmt.Errorf("%d bytes are no wrapped key", len(b))
	}
	r, err := age.Decrypt(bytes.NewReader(b), a.Identities...)
	if err != nil {
		return nil, fmt.Errorf("decrypt with age: %w", err)
	}
	key, err := io.ReadAll(io.LimitReader(r, keyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("decrypt with age: %w", err)
	}
	return key, nil
}

// Master is a Wrapper by one key in a file: what a key management service does, on a host of one's own.
type Master struct{ aead cipher.AEAD }

var _ Wrapper = Master{}

// NewMaster makes a wrapper of 32 secret bytes.
func NewMaster(secret []byte) (Master, error) {
	if len(secret) != keyBytes {
		return Master{}, fmt.Errorf("master key: %d bytes, not %d", len(secret), keyBytes)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "lector master 1", keyBytes)
	if err != nil {
		return Master{}, fmt.Errorf("master key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return Master{}, fmt.Errorf("master key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return Master{}, fmt.Errorf("master key: %w", err)
	}
	return Master{aead}, nil
}

// MasterLine is the stored form of a master key of 32 secret bytes, without its line feed.
func MasterLine(secret []byte) string { return masterPrefix + hex.EncodeToString(secret) }

// ParseWrapper reads the file that opens wrapped keys: a master key's line, or age identities.
func ParseWrapper(text string) (Wrapper, error) {
	digits, ok := strings.CutPrefix(strings.TrimSpace(text), masterPrefix)
	if !ok {
		return AgeIdentities(text)
	}
	secret, err := hex.DecodeString(digits)
	if err != nil || len(secret) != keyBytes || strings.ToLower(digits) != digits {
		return nil, fmt.Errorf("master key: not one line of %s and %d hex digits", strings.TrimSpace(masterPrefix), 2*keyBytes)
	}
	return NewMaster(secret)
}

// Wrap implements Wrapper.
func (m Master) Wrap(_ context.Context, key []byte) ([]byte, error) {
	return m.aead.Seal(nil, nil, key, []byte(masterDomain)), nil
}

// Unwrap implements Wrapper.
func (m Master) Unwrap(_ context.Context, b []byte) ([]byte, error) {
	if len(b) > maxWrapped {
		return nil, fmt.Errorf("%d bytes are no wrapped key", len(b))
	}
	key, err := m.aead.Open(nil, nil, b, []byte(masterDomain))
	if err != nil {
		return nil, errors.New("it was wrapped by another master key, or changed")
	}
	return key, nil
}

// NewSecret draws 32 random bytes.
func NewSecret() []byte {
	b := make([]byte, keyBytes)
	rand.Read(b) // never fails: package crypto/rand ends the program instead
	return b
}
