package spool

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"io"

	"lector/cache/disk"
)

// private hides what lies in the files: each is AES-256-CTR under a key that is nowhere but in this process, with a
// counter of its own. It keeps a secret and nothing more: damage is found by whoever checks the digest.
type private struct{ block cipher.Block }

func newPrivate() (*private, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	return &private{block}, err
}

// counter is where the key stream of one file begins.
type counter [aes.BlockSize]byte

func newCounter() (c counter) {
	rand.Read(c[:12]) // the rest counts blocks: more than any file has
	return c
}

// at is the key stream from a byte of the file on.
func (p *private) at(c counter, off int64) cipher.Stream {
	n := binary.BigEndian.Uint32(c[12:]) + uint32(off/aes.BlockSize)
	binary.BigEndian.PutUint32(c[12:], n)
	s := cipher.NewCTR(p.block, c[:])
	var skip [aes.BlockSize]byte
	s.XORKeyStream(skip[:off%aes.BlockSize], skip[:off%aes.BlockSize])
	return s
}

// hiding writes a file.
type hiding struct {
	w      io.Writer
	stream cipher.Stream
	buf    []byte
}

// Write implements io.Writer.
func (h *hiding) Write(p []byte) (int, error) {
	if cap(h.buf) < len(p) {
		h.buf = make([]byte, len(p))
	}
	h.stream.XORKeyStream(h.buf[:len(p)], p)
	return h.w.Write(h.buf[:len(p)])
}

// showing reads a file.
type showing struct {
	f      disk.File
	p      *private
	start  counter
	stream cipher.Stream
}

// Read implements io.Reader.
func (s *showing) Read(b []byte) (int, error) {
	n, err := s.f.Read(b)
	s.stream.XORKeyStream(b[:n], b[:n])
	return n, err
}

// Seek implements io.Seeker.
func (s *showing) Seek(offset int64, whence int) (int64, error) {
	at, err := s.f.Seek(offset, whence)
	if err == nil {
		s.stream = s.p.at(s.start, at)
	}
	return at, err
}
