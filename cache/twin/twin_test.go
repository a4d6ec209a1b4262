package twin_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lector/cache/twin"
)

func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

// FIPS 180-4's examples and NIST's long one.
func TestExamples(t *testing.T) {
	for text, want := range map[string]string{
		"":    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
		strings.Repeat("a", 1_000_000):                             "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
	} {
		h := twin.New()
		h.Write([]byte(text))
		if got := h.Sum(); hex.EncodeToString(got[:]) != want {
			t.Errorf("%d bytes: digest %x, not %s", len(text), got, want)
		}
	}
}

// Every pair of lengths around the ends of blocks, whole and in two cuts, beside crypto/sha256.
func TestEveryLength(t *testing.T) {
	const most = 200
	p, q := noise(most, 1), noise(most, 2)
	for n := range most {
		m := (n*7 + 13) % most
		for cut := range n + 1 {
			at := min(cut*3/2, m)
			d, e := twin.New(), twin.New()
			twin.Write2(d, p[:cut], e, q[:at])
			twin.Write2(d, p[cut:n], e, q[at:m])
			check(t, fmt.Sprintf("%d bytes cut at %d", n, cut), d, p[:n])
			check(t, fmt.Sprintf("%d bytes cut at %d", m, at), e, q[:m])
		}
	}
}

func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, what string, h *twin.Hash, data []byte) {
	t.Helper()
	if got, want := h.Sum(), sha256.Sum256(data); got != want {
		t.Fatalf("%s: digest %x, crypto/sha256 has %x", what, got, want)
	}
}

// Any writes, to one or to both, are those of crypto/sha256, and a digest can be asked for in between.
func TestWritesAreThoseOfOneHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := [2][]byte{noise(40_000, 3), noise(40_000, 4)}
		hashes, at := [2]*twin.Hash{twin.New(), twin.New()}, [2]int{}
		next := func(i int, label string) []byte {
			n := rapid.OneOf(rapid.IntRange(0, 130), rapid.IntRange(0, 5000)).Draw(t, label)
			n = min(n, len(data[i])-at[i])
			at[i] += n
			return data[i][at[i]-n : at[i]]
		}
		for range rapid.IntRange(1, 12).Draw(t, "writes") {
			switch i := rapid.IntRange(0, 2).Draw(t, "to"); i {
			case 2:
				twin.Write2(hashes[0], next(0, "first"), hashes[1], next(1, "second"))
			default:
				hashes[i].Write(next(i, "bytes"))
			}
			for i, h := range hashes {
				check(t, fmt.Sprintf("message %d of %d bytes", i, at[i]), h, data[i][:at[i]])
			}
		}
	})
}

// The bytes may lie anywhere: no alignment is asked for.
func TestAnyAddress(t *testing.T) {
	p, q := noise(1000, 5), noise(1000, 6)
	for i := range 17 {
		for j := range 17 {
			d, e := twin.New(), twin.New()
			twin.Write2(d, p[i:], e, q[j:])
			check(t, fmt.Sprint("from byte ", i), d, p[i:])
			check(t, fmt.Sprint("from byte ", j), e, q[j:])
		}
	}
}

// What was given is only read.
func TestBytesStay(t *testing.T) {
	p, q := noise(777, 7), noise(777, 8)
	wantP, wantQ := slices.Clone(p), slices.Clone(q)
	twin.Write2(twin.New(), p, twin.New(), q)
	if !bytes.Equal(p, wantP) || !bytes.Equal(q, wantQ) {
		t.Error("hashing changed what it read")
	}
}

func FuzzWrite2(f *testing.F) {
	f.Add([]byte("abc"), []byte(strings.Repeat("b", 130)), uint16(1), uint16(65))
	f.Add(noise(300, 9), noise(64, 10), uint16(64), uint16(0))
	f.Fuzz(func(t *testing.T, p, q []byte, cut, at uint16) {
		i, j := min(int(cut), len(p)), min(int(at), len(q))
		d, e := twin.New(), twin.New()
		twin.Write2(d, p[:i], e, q[:j])
		twin.Write2(d, p[i:], e, q[j:])
		check(t, "first message", d, p)
		check(t, "second message", e, q)
	})
}

func BenchmarkHash(b *testing.B) {
	const n = 1 << 20
	p, q := noise(n, 11), noise(n, 12)
	b.Run("crypto", func(b *testing.B) {
		b.SetBytes(n)
		h := sha256.New()
		for b.Loop() {
			h.Write(p)
		}
	})
	b.Run("one", func(b *testing.B) {
		b.SetBytes(n)
		h := twin.New()
		for b.Loop() {
			h.Write(p)
		}
	})
	b.Run("two", func(b *testing.B) {
		b.SetBytes(2 * n)
		d, e := twin.New(), twin.New()
		for b.Loop() {
			twin.Write2(d, p, e, q)
		}
	})
}
