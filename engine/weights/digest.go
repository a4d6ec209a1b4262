package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// weightsDigest hashes every tensor on all cores, then the list of them in the order of canonical
// names, and what the caller may have settled.
func (c *Checkpoint) weightsDigest() string {
	sums := make([][sha256.Size]byte, len(c.used))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(c.used)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(c.used); i = int(next.Add(1)) - 1 {
				sums[i] = sha256.Sum256(c.used[i].data)
			}
		})
	}
	wg.Wait()
	h := sha256.New()
	io.WriteString(h, "lector weights 1\n")
	for i, s := range c.used {
		fmt.Fprintf(h, "%q %s %v %x\n", s.canonical, s.dtype, s.shape, sums[i])
	}
	for _, name := range sortedKeys(c.norms) { // the same bytes read otherwise are other weights
		fmt.Fprintf(h, "norm %s %s\n", name, c.norms[name])
	}
	for l, hash := range c.hashes { // likewise the hash
		fmt.Fprintf(h, "ngram %d %v\n", l, hash.Multipliers)
	}
	return hex.EncodeToString(h.Sum(nil))
}
