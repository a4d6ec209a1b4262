package cache

import "context"

// CutBlobs makes the space cut streams into blobs of at most n bytes, so that tests need no 64 MB of state.
func (s *Space) CutBlobs(n int64) { s.blobLimit = n }

// SumBodies computes the digests of bodies, each of some segments, as a step does on that many processors.
func SumBodies(ctx context.Context, bodies [][][]byte, processors int) ([]Digest, error) {
	all := make([]*body, len(bodies))
	for i, parts := range bodies {
		var segs []segment
		for _, data := range parts {
			segs = append(segs, segment{data: data})
		}
		all[i] = newBody(segs)
	}
	s := startSums(ctx, all, processors)
	err := s.wait()
	return s.digests(), err
}
