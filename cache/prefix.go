package cache

import (
	"context"
	"errors"
)

// Deepest returns the longest prefix of keys that can be restored: all its nodes are there, the rows of all of
// them, and the recurrent state of its last one, kept or in the rolling state of the job (when named). It reads
// nodes and asks for the sizes of blobs, and never reads a blob. What is missing or cut short makes the answer
// shallower; 0 when nothing can be restored. A damaged node is ErrCorrupt.
func (s *Space) Deepest(ctx context.Context, job string, keys []Key) (n int, nodes []Node, err error) {
	if err := s.check(job); err != nil {
		return 0, nil, err
	}
	if nodes, err = s.chain(ctx, keys); err != nil {
		return 0, nil, err
	}
	for n = len(nodes); n > 0; n-- {
		ok, err := s.hasBlobs(ctx, job, nodes[n-1].State)
		if err != nil {
			return 0, nil, err
		}
		if ok {
			return n, nodes[:n], nil
		}
	}
	return 0, nil, nil
}

// chain reads the nodes of the keys up to the first that is missing or lacks rows.
func (s *Space) chain(ctx context.Context, keys []Key) ([]Node, error) {
	var nodes []Node
	var parent Key
	at := 0
	for _, key := range keys {
		node, err := s.Node(ctx, key)
		if errors.Is(err, ErrNotFound) {
			return nodes, nil
		}
		if err != nil {
			return nil, err
		}
		if node.Parent != parent || node.From != at {
			return nil, refuse(ErrCorrupt, "object %s is damaged: it follows node %s at token %d, not %s at token %d",
				s.nodeName(key), node.Parent, node.From, parent, at)
		}
		ok, err := s.hasBlobs(ctx, "", node.Rows)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nodes, nil
		}
		nodes = append(nodes, node)
		parent, at = key, node.To
	}
	return nodes, nil
}

// hasBlobs says whether all of the blobs are there with their sizes.
func (s *Space) hasBlobs(ctx context.Context, job string, blobs []Blob) (bool, error) {
	for _, b := range blobs {
		if ok, err := s.hasBlob(ctx, job, b); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// hasBlob asks for a blob, and then for it in the job's rolling state when a job is named.
func (s *Space) hasBlob(ctx context.Context, job string, b Blob) (bool, error) {
	for _, name := range s.places(job, b.Digest) {
		object, err := s.Store.Stat(ctx, name)
		if err == nil && object.Size == b.Size {
			return true, nil
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

// places lists where a blob may be.
func (s *Space) places(job string, d Digest) []string {
	if job == "" {
		return []string{s.blobName(d)}
	}
	return []string{s.blobName(d), s.rollingFolder(job) + d.String()}
}
