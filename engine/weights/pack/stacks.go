package pack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"

	"lector/engine/weights"
)

// stacks hash experts and table shards as the whole tensors that a source would hold, while their records pass by.
type stacks struct {
	list   []*stack
	byName map[string]*stack
	of     map[string][]*stack // by layer: those of its experts
	column []byte              // see shardHashes
}

// stack is one tensor and the digest of its bytes so far.
type stack struct {
	weights.PackedDigest
	hash hash.Hash
}

func newStacks() *stacks {
	return &stacks{byName: map[string]*stack{}, of: map[string][]*stack{}}
}

// add takes tensors by their canonical names.
func (s *stacks) add(list []weights.PackedDigest) {
	for _, d := range list {
		one := &stack{PackedDigest: d, hash: sha256.New()}
		s.list, s.byName[d.Name] = append(s.list, one), one
		if layer, _, ok := strings.Cut(d.Name, ".mlp."); ok {
			s.of[layer] = append(s.of[layer], one)
		}
	}
}

// digests are those of all stacks, by name.
func (s *stacks) digests() []weights.PackedDigest {
	list := make([]weights.PackedDigest, 0, len(s.list))
	for _, one := range s.list {
		one.SHA256 = hex.EncodeToString(one.hash.Sum(nil))
		list = append(list, one.PackedDigest)
	}
	slices.SortFunc(list, func(a, b weights.PackedDigest) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// layerHashes are where the nine arrays of each record of a layer go; nil where nobody wants them.
type layerHashes [][9]hash.Hash

// layer finds the stacks of a layer's experts.
func (s *stacks) layer(layer string, experts int) layerHashes {
	targets := make(layerHashes, experts)
	for _, one := range s.of[layer] {
		name, array := strings.TrimPrefix(one.Name, layer+".mlp."), 0
		for i, suffix := range []string{".weight", ".scales", ".biases"} {
			if rest, ok := strings.CutSuffix(name, suffix); ok {
				name, array = rest, i
			}
		}
		expert, parts := recordParts(name)
		for e := range targets {
			for _, part := range parts {
				if expert == e || expert < 0 {
					targets[e][3*part+array] = one.hash
				}
			}
		}
	}
	return targets
}

// recordParts says which expert (-1: all) and which of gate, up and down a module's name stands for.
func recordParts(name string) (expert int, parts []int) {
	fields := strings.Split(name, ".")
	expert = -1
	if len(fields) == 3 {
		if e, err := strconv.Atoi(fields[1]); err == nil {
			expert = e
		}
	}
	switch fields[len(fields)-1] {
	case "gate_up_proj":
		return expert, []int{0, 1}
	case "gate_proj":
		return expert, []int{0}
	case "up_proj":
		return expert, []int{1}
	case "down_proj":
		return expert, []int{2}
	}
	return expert, nil
}

// feed takes the record of expert e; those of a layer come in order.
func (l layerHashes) feed(e int, record []byte, arrays [9]weights.PackedArray) {
	for i, h := range l[e] {
		if a := arrays[i]; h != nil && a.Bytes > 0 {
			h.Write(record[a.Offset : a.Offset+a.Bytes])
		}
	}
}

// shardHashes are where codes, scales and biases of a shard's rows go.
type shardHashes struct {
	to     [3]hash.Hash
	column *[]byte // room for one array of a block, shared by all shards
}

// shard finds the stacks of a table's shard.
func (s *stacks) shard(layer string, shard int) *shardHashes {
	out := &shardHashes{column: &s.column}
	base := fmt.Sprintf("%s.ple.ple_embedding.ngram_embedding.shard_%d", layer, shard)
	for i, suffix := range []string{".weight", ".scales", ".biases"} {
		if one := s.byName[base+suffix]; one != nil {
			out.to[i] = one.hash
		}
	}
	if one := s.byName[base]; one != nil {
		out.to[0] = one.hash
	}
	return out
}

// feedRows takes a block of rows that lie `stride` apart; blocks of a shard come in order.
func (s *shardHashes) feedRows(block []byte, stride int, format weights.PackedMatrix, dim int) {
	codes, side := format.RowBytes(dim)
	at := 0
	for i, width := range []int{codes, side, side} {
		if s.to[i] == nil || width == 0 {
			continue
		}
		column := (*s.column)[:0]
		for r := 0; r < len(block); r += stride {
			column = append(column, block[r+at:r+at+width]...)
		}
		s.to[i].Write(column)
		*s.column = column
		at += width
	}
}
