package cache

import (
	"crypto/sha256"
	"encoding/binary"
)

// Boundaries are the token counts at which a document of n tokens has nodes: the multiples of grid below n,
// then n. None for an empty document; a grid below 1 gives n alone.
func Boundaries(n, grid int) []int {
	if n < 1 {
		return nil
	}
	var out []int
	if grid > 0 {
		for b := grid; b < n; b += grid {
			out = append(out, b)
		}
	}
	return append(out, n)
}

// Keys chains a key through every boundary: each names the state after all tokens up to it. Boundaries must
// rise and stay within the tokens; the list ends before the first that does not.
func Keys(p ProducerID, tokens []int32, boundaries []int) []Key {
	keys := make([]Key, 0, len(boundaries))
	var prev Key
	from := 0
	for _, to := range boundaries {
		if to <= from || to > len(tokens) {
			break
		}
		prev = nextKey(p, prev, to, tokens[from:to])
		keys = append(keys, prev)
		from = to
	}
	return keys
}

// nextKey is the key of the state at to, where chunk holds the tokens since parent's boundary.
func nextKey(p ProducerID, parent Key, to int, chunk []int32) (k Key) {
	h := sha256.New()
	h.Write([]byte(keyDomain))
	h.Write(p[:])
	h.Write(parent[:])
	hashUint(h, uint64(to))
	h.Write(tokenBytes(chunk))
	h.Sum(k[:0])
	return k
}

// tokenBytes is the stored form of token ids: little-endian, 4 bytes each.
func tokenBytes(tokens []int32) []byte {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

// tokensOf reads the stored form.
func tokensOf(b []byte) []int32 {
	tokens := make([]int32, len(b)/4)
	for i := range tokens {
		tokens[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return tokens
}
