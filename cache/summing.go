package cache

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"lector/cache/twin"
)

// share says how the processors begin with a step: how many write its bytes and how many hash them. Who has written hashes,
// too. A hash never waits, and one on every processor would leave what it takes to write to the disk behind it: that
// goroutine is on no processor as long as one of them that others wait for is in a call to the system.
func share() (writers, hashers int) {
	n := runtime.GOMAXPROCS(0)
	writers = min(max(n/2, 1), inFlight)
	return writers, max(n-writers, 1)
}

// sumPiece is how much is hashed before others may run. A hash holds its processor to the end of a call, while those who
// move the same bytes wait for one after every call to the system, and the disk for them.
const sumPiece = 64 << 10

// sums are digests of bodies on their way, computed by several goroutines, two at a time by one that finds two and nobody
// else to take the second. They only read the bodies, beside whoever else does.
type sums struct {
	ctx context.Context
	all []*sum

	mu   sync.Mutex
	free []*sum    // that nobody is at
	left int       // that are not finished
	idle int       // goroutines that wait for one
	news sync.Cond // that one is free, or none is left
}

// sum is the digest of one body.
type sum struct {
	from   *body // read on its own
	hash   *twin.Hash
	left   int64
	known  chan struct{} // closed when it is known, or given up
	digest Digest
	err    error
}

// startSums begins with the digests of bodies on that many goroutines; more may call work. The caller waits for them in any
// case: the bytes belong to a sequence.
func startSums(ctx context.Context, bodies []*body, hashers int) *sums {
	s := &sums{ctx: ctx, left: len(bodies)}
	s.news.L = &s.mu
	for _, b := range bodies {
		s.all = append(s.all, &sum{from: newBody(b.segs), hash: twin.New(), left: b.size, known: make(chan struct{})})
	}
	s.free = append(s.free, s.all...)
	for range min(len(bodies), hashers) {
		go s.work()
	}
	return s
}

// wait returns when no body is read any more, with the error of the context if it ended before.
func (s *sums) wait() (err error) {
	for _, one := range s.all {
		if <-one.known; err == nil {
			err = one.err
		}
	}
	return err
}

// digests of the bodies in their order; wait has returned nil.
func (s *sums) digests() []Digest {
	out := make([]Digest, len(s.all))
	for i, one := range s.all {
		out[i] = one.digest
	}
	return out
}

// work hashes pieces until none is left.
func (s *sums) work() {
	var mine []*sum
	for {
		if mine = s.next(mine); len(mine) > 0 && s.ctx.Err() == nil {
			advance(mine)
		}
		if len(mine) == 0 && !s.more() {
			return
		}
		runtime.Gosched()
	}
}

// more waits for a body to hash, and says whether there may be one.
func (s *sums) more() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.free) == 0 && s.left > 0 {
		s.idle++
		s.news.Wait()
		s.idle--
	}
	return s.left > 0
}

// next ends the bodies that are through, and says which to go on with: two where that leaves enough for those who wait and one is not
// far longer. That one goes on alone first: two at once take less time together, and each takes longer, so that bodies of
// which as much is left as of others end together when somebody comes to help.
func (s *sums) next(mine []*sum) []*sum {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine = slices.DeleteFunc(mine, s.ended)
	if len(mine) == 0 {
		mine = s.take(mine)
	}
	switch {
	case len(mine) == 1 && len(s.free) > s.idle && twin.Paired() && mine[0].left <= s.most()+sumPiece:
		mine = s.take(mine)
	case len(mine) == 2 && len(s.free) < s.idle:
		s.free, mine = append(s.free, mine[1]), mine[:1]
	}
	if len(s.free) > 0 {
		s.news.Signal()
	}
	return mine
}

// most is how much is left of the free body of which most is.
func (s *sums) most() (left int64) {
	for _, f := range s.free {
		left = max(left, f.left)
	}
	return left
}

// take adds the free body of which most is left, since its digest is the last to be known.
func (s *sums) take(mine []*sum) []*sum {
	if len(s.free) == 0 {
		return mine
	}
	at := 0
	for i, f := range s.free {
		if f.left > s.free[at].left {
			at = i
		}
	}
	mine = append(mine, s.free[at])
	s.free = slices.Delete(s.free, at, at+1)
	return mine
}

// ended says whether nothing is left to do for a body, and tells those who wait for it.
func (s *sums) ended(one *sum) bool {
	err := s.ctx.Err()
	if err == nil && one.left > 0 {
		return false
	}
	one.digest, one.err = one.hash.Sum(), err
	close(one.known)
	if s.left--; s.left == 0 {
		s.news.Broadcast()
	}
	return true
}

// advance adds a piece to one hash, or to two at once.
func advance(mine []*sum) {
	for left := int64(sumPiece); left > 0; {
		n := left
		for _, one := range mine {
			n = min(n, int64(len(one.from.rest())))
		}
		switch {
		case n == 0 || len(mine) == 0: // one is at its end
			return
		case len(mine) == 1:
			mine[0].hash.Write(mine[0].from.rest()[:n])
		default:
			twin.Write2(mine[0].hash, mine[0].from.rest()[:n], mine[1].hash, mine[1].from.rest()[:n])
		}
		for _, one := range mine {
			one.from.off += n
			one.left -= n
		}
		left -= n
	}
}
