package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// weightsDigest hashes every tensor on all cores, then the list of them in the order of canonical
// names, and what the caller may have settled.
func (c *Checkpoint) weightsDigest() (string, error) {
	list, err := c.digests()
	if err != nil {
		return "", fmt.Errorf("digest of the weights of %s: %w", c.name, err)
	}
	h := sha256.New()
	io.WriteString(h, "lector weights 1\n")
	for _, d := range list {
		fmt.Fprintf(h, "%q %s %v %s\n", d.Name, d.DType, d.Shape, d.SHA256)
	}
	for _, name := range sortedKeys(c.norms) { // the same bytes read otherwise are other weights
		fmt.Fprintf(h, "norm %s %s\n", name, c.norms[name])
	}
	for l, hash := range c.hashes { // likewise the hash
		fmt.Fprintf(h, "ngram %d %v\n", l, hash.Multipliers)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// digests are those of every stored tensor that the network reads, by canonical name. In a packed store, experts
// and tables are cut into records, so that theirs come from the manifest, and the others must be as it says.
func (c *Checkpoint) digests() ([]PackedDigest, error) {
	list := make([]PackedDigest, len(c.used))
	errs := make([]error, len(c.used))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(c.used)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(c.used); i = int(next.Add(1)) - 1 {
				list[i], errs[i] = c.used[i].digest()
			}
		})
	}
	wg.Wait()
	if c.packed != nil {
		list = append(list, c.packed.manifest.Stacks...)
		slices.SortStableFunc(list, func(a, b PackedDigest) int { return strings.Compare(a.Name, b.Name) })
	}
	return list, errors.Join(errs...)
}

// digest hashes one tensor, and compares with what a manifest says of it.
func (s *stored) digest() (PackedDigest, error) {
	sum := sha256.Sum256(s.data)
	d := PackedDigest{Name: s.canonical, DType: s.dtype, Shape: s.shape, SHA256: hex.EncodeToString(sum[:])}
	if s.sum != "" && s.sum != d.SHA256 {
		return d, fmt.Errorf("tensor %s: SHA-256 is %s, packed was %s: %w; run lector model verify", s, d.SHA256, s.sum, ErrDamaged)
	}
	return d, nil
}
