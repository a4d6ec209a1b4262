package cache

import "fmt"

// Divergence is the determinism alarm with what it is about: one key was computed to two nodes. It is ErrDiverged.
type Divergence struct {
	Key      Key
	From, To int    // tokens of the node
	Part     string // the first part that differs: "rows", "recurrent state", "probe", "layout" or "what they were computed from"
	Stored   Digest // of the node that stands
	Computed Digest // of the one that was put
}

// Error names the key, the part and both digests.
func (d *Divergence) Error() string {
	return fmt.Sprintf("key %s of tokens [%d, %d) was computed to two different states (%s): the stored node has the digest %s, this one has %s",
		d.Key, d.From, d.To, d.Part, d.Stored, d.Computed)
}

func (d *Divergence) Unwrap() error { return ErrDiverged }
