package weights

import (
	"encoding/binary"
	"fmt"
	"math"
)

// NgramHash turns tokens into rows of a PLE layer's n-gram table.
type NgramHash struct {
	Multipliers []int64 // [N], all odd and positive; products with ids below vocab_size fit 63 bits
	Vocab       []int64 // [(N-1)*H] rows of each head, primes: the H heads of 2-grams first
	Offsets     []int64 // [(N-1)*H] first row of each head
	Rows        int64   // rows of the whole table, padding included
}

// embedding is where the n-gram tensors of a decoder layer are.
func embedding(layer string) string { return layer + ".ple.ple_embedding." }

// NgramTable returns the shards of a layer's n-gram table in numeric order, each [rows/shards, dim]: rows are
// those of the whole table (NgramHash.Rows). layer is such as "model.language_model.layers.1".
func (c *Checkpoint) NgramTable(layer string, shards, rows, dim int) ([]Tensor, error) {
	if c.packed != nil {
		l, err := c.packedTable(layer, shards, rows, dim)
		if err != nil {
			return nil, err
		}
		return c.assemble(l)
	}
	list, _, err := c.ngramTable(layer, shards, rows, dim)
	return list, err
}

// ngramTable also returns what the shards are made of, for verify.
func (c *Checkpoint) ngramTable(layer string, shards, rows, dim int) ([]Tensor, *collection, error) {
	got := &collection{c: c}
	if shards < 1 || rows%shards != 0 {
		got.err = fmt.Errorf("an n-gram table of %d rows does not divide into %d shards", rows, shards)
		return nil, got, got.err
	}
	for i := range shards {
		got.matrix(fmt.Sprintf("%sngram_embedding.shard_%d", embedding(layer), i), rows/shards, dim)
	}
	return got.list, got, got.err
}

// Ngram returns the hash of the l-th PLE layer (Config.PLEIndex), which is decoder layer `layer`. It comes from
// the formula; constants that the checkpoint stores must be the same, since a table only fits the hash that it
// was trained with. Multipliers may also be the formula's rounded to float32, a known fault of converters.
func (c *Checkpoint) Ngram(layer string, l int) (NgramHash, error) {
	h, _, err := c.ngram(layer, l)
	return h, err
}

// ngram also lists the constants that are stored.
func (c *Checkpoint) ngram(layer string, l int) (NgramHash, []*stored, error) {
	h, err := c.config.NgramHash(l)
	if err != nil {
		return h, nil, err
	}
	var parts []*stored
	for _, constant := range []struct {
		name   string
		values *[]int64
	}{
		{"layer_multipliers", &h.Multipliers}, {"ngram_heads_vocab_sizes", &h.Vocab}, {"ngram_heads_offsets", &h.Offsets},
	} {
		s := c.tensors[embedding(layer)+constant.name]
		if s == nil {
			continue
		}
		got, err := s.integers(len(*constant.values))
		if err != nil {
			return h, nil, err
		}
		if err := differ(s, got, *constant.values); err != nil {
			if constant.values != &h.Multipliers {
				return h, nil, err
			}
			if err := c.settle(got, h.Multipliers, err); err != nil {
				return h, nil, err
			}
		}
		parts = append(parts, s)
	}
	return h, parts, nil
}

// integers reads a stored constant.
func (s *stored) integers(n int) ([]int64, error) {
	if s.dtype != I64 || len(s.shape) != 1 || s.shape[0] != n {
		return nil, fmt.Errorf("tensor %s: the config calls for %s [%d]", s, I64, n)
	}
	values := make([]int64, n)
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(s.data[8*i:]))
	}
	return values, nil
}

// differ names the first value that is not the formula's.
func differ(s *stored, got, formula []int64) error {
	for i, want := range formula {
		if got[i] != want {
			return fmt.Errorf("tensor %s: value %d is %d, the formula gives %d", s, i, got[i], want)
		}
	}
	return nil
}

// settle decides about stored multipliers that are not the formula's. A converter that takes every tensor
// through float32 rounds these 45-bit integers; that damage is recognised, the formula's count, and Findings
// says so. Anything else is another hash than the table's.
func (c *Checkpoint) settle(got, formula []int64, difference error) error {
	if roundedToFloat32(got, formula) {
		return nil
	}
	return fmt.Errorf("%w: is the seed %d right?", difference, c.config.Seed)
}

func roundedToFloat32(got, formula []int64) bool {
	for i, m := range formula {
		if got[i] != int64(float32(m)) {
			return false
		}
	}
	return true
}

// NgramHash computes the constants of the l-th PLE layer from the formula alone; see Checkpoint.Ngram.
func (c *Config) NgramHash(l int) (NgramHash, error) {
	if l < 0 || l >= len(c.PLELayers) {
		return NgramHash{}, fmt.Errorf("n-gram embedding %d: the model has %d", l, len(c.PLELayers))
	}
	heads := c.AllNgramHeads()
	h := NgramHash{Multipliers: c.multipliers(uint64(l))}
	prime := int64(c.NgramBase) - 1
	for range l * heads { // heads of earlier layers took these primes
		prime = nextPrime(prime)
	}
	var total int64
	for range heads {
		prime = nextPrime(prime)
		h.Vocab, h.Offsets = append(h.Vocab, prime), append(h.Offsets, total)
		total += prime
	}
	divisor := int64(c.NgramDivisor)
	h.Rows = (total + divisor - 1) / divisor * divisor
	if h.Rows%int64(c.NgramShards) != 0 {
		return h, fmt.Errorf("the n-gram table of %d rows does not divide into split_ngram_parts = %d", h.Rows, c.NgramShards)
	}
	return h, nil
}

// multipliers draws one odd number per position of the n-gram, small enough that no product overflows.
func (c *Config) multipliers(l uint64) []int64 {
	half := max(1, math.MaxInt64/uint64(c.Vocab)/2)
	list := make([]int64, c.NgramSize)
	for t := range list {
		list[t] = int64(2*(splitmix(c.Seed+10007*l+golden*uint64(t+1))%half) + 1)
	}
	return list
}

const golden = 0x9E3779B97F4A7C15

// splitmix is the SplitMix64 step: it adds the golden gamma, then mixes.
func splitmix(v uint64) uint64 {
	v += golden
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	return v ^ v>>31
}

// nextPrime is the smallest prime above n.
func nextPrime(n int64) int64 {
	for n++; !isPrime(n); n++ {
	}
	return n
}

// isPrime divides by odd numbers up to the root; sizes are below 2^33, so that is at most 2^16 steps.
func isPrime(n int64) bool {
	if n < 4 || n%2 == 0 {
		return n == 2 || n == 3
	}
	for d := int64(3); d*d <= n; d += 2 {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// RowIDs writes the row ids of positions [from, len(tokens)) to dst, (N-1)*H for each, 2-grams first. tokens
// starts at position 0 or holds at least N-1 tokens before from. Tokens before the start, and those up to the
// last eos strictly before a position, count as eos. Ids must be inside the vocabulary.
func (h NgramHash) RowIDs(dst []int64, tokens []int32, from int, eos int32) {
	orders := len(h.Multipliers) - 1
	heads := len(h.Vocab) / orders
	for p := from; p < len(tokens); p++ {
		x := int64(tokens[p]) * h.Multipliers[0]
		cut := false
		for back := 1; back <= orders; back++ {
			token := eos
			if !cut && p-back >= 0 && tokens[p-back] != eos {
				token = tokens[p-back]
			} else {
				cut = true // nothing on the far side of an eos is seen
			}
			x ^= int64(token) * h.Multipliers[back]
			for i := (back - 1) * heads; i < back*heads; i++ {
				dst[i] = x%h.Vocab[i] + h.Offsets[i]
			}
		}
		dst = dst[len(h.Vocab):]
	}
}
