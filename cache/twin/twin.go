// Package twin computes SHA-256, of two messages at a time where there are two: on a processor with instructions for it that
// takes little longer than one, since each of them waits for the one before and the other message's fit in between.
//
// Digests are those of crypto/sha256, which does the work on processors without such a kernel. Start reading at Write2.
package twin

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

//go:generate go run ./gen -out kernels_amd64.s -stubs kernels_amd64.go -pkg twin

// Size is that of a digest in bytes.
const Size = sha256.Size

const blockSize = sha256.BlockSize

// Hash is the SHA-256 of what was written to it. It must not be copied, nor used from two goroutines at once.
type Hash struct {
	plain hash.Hash // where there is no kernel; else nil

	h    [8]uint32
	part [blockSize]byte // a block that is not whole yet
	size uint64          // of all that was written
}

// New is the hash of nothing.
func New() *Hash {
	if !Paired() {
		return &Hash{plain: sha256.New()}
	}
	return &Hash{h: initial()}
}

// initial are the first 32 bits of the fractional parts of the square roots of the first eight primes (FIPS 180-4, 5.3.3).
func initial() [8]uint32 {
	return [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}
}

// Write adds p. It takes everything.
func (d *Hash) Write(p []byte) {
	if d.plain != nil {
		d.plain.Write(p)
		return
	}
	p = d.fillPart(p)
	whole := len(p) / blockSize
	d.blocks(p, whole)
	d.keepPart(p[whole*blockSize:])
}

// Write2 adds p to one hash and q to another. It takes about as long as adding the longer of them alone.
func Write2(d *Hash, p []byte, e *Hash, q []byte) {
	if d.plain == nil && e.plain == nil {
		p, q = d.fillPart(p), e.fillPart(q)
		if both := min(len(p), len(q)) / blockSize; both > 0 {
			blocks2(&d.h, &e.h, &p[0], &q[0], both)
			d.size += uint64(both * blockSize)
			e.size += uint64(both * blockSize)
			p, q = p[both*blockSize:], q[both*blockSize:]
		}
	}
	d.Write(p)
	e.Write(q)
}

// blocks adds the first n blocks of p.
func (d *Hash) blocks(p []byte, n int) {
	if n > 0 {
		blocks1(&d.h, &p[0], n)
		d.size += uint64(n * blockSize)
	}
}

// fillPart takes from p what the block at hand lacks, and returns the rest.
func (d *Hash) fillPart(p []byte) []byte {
	at := int(d.size % blockSize)
	if at == 0 {
		return p
	}
	n := copy(d.part[at:], p)
	d.size += uint64(n)
	if at+n == blockSize {
		blocks1(&d.h, &d.part[0], 1)
	}
	return p[n:]
}

// keepPart begins a block with less than is in one. It has nothing to do where the block at hand is not whole yet.
func (d *Hash) keepPart(p []byte) {
	copy(d.part[:], p)
	d.size += uint64(len(p))
}

// Sum is the digest of what was written so far; more may follow.
func (d *Hash) Sum() (out [Size]byte) {
	if d.plain != nil {
		d.plain.Sum(out[:0])
		return out
	}
	end := *d
	padding := [blockSize + 8]byte{0: 0x80}
	n := blockSize - int(d.size%blockSize)
	if n < 9 { // no room for the length behind one byte
		n += blockSize
	}
	binary.BigEndian.PutUint64(padding[n-8:], 8*d.size)
	end.Write(padding[:n])
	for i, word := range end.h {
		binary.BigEndian.PutUint32(out[4*i:], word)
	}
	return out
}
