package cache

// CutBlobs makes the space cut streams into blobs of at most n bytes, so that tests need no 64 MB of state.
func (s *Space) CutBlobs(n int64) { s.blobLimit = n }
