package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"lector/cache"
	"lector/cache/dir"
	"lector/cache/s3"
	"lector/cache/s3/s3test"
	"lector/cache/spool"
	"lector/engine/enginetest"
)

// Of three cells the first state is rolling, and the others are kept.
const (
	realTokens = 2*enginetest.ToyGrid + 3
	realSpread = 2
)

// Promise 8 on a store in a folder, which stages by itself: killed between every two effects, another process with a
// view of its own comes to the same handle, and to the same objects as one that nobody killed.
func TestCrashAtEveryEffectOnDir(t *testing.T) {
	c := crashes{tokens: realTokens, spread: realSpread, repeated: 2 * enginetest.ToyGrid, world: inFolder}
	if n := c.run(t); n < 32 {
		t.Errorf("an ingest had only %d effects", n)
	}
}

// The same on S3, with a spool on a disk that outlives the process that is killed.
func TestCrashAtEveryEffectOnS3(t *testing.T) {
	c := crashes{tokens: realTokens, spread: realSpread, repeated: 2 * enginetest.ToyGrid, world: inBucket(s3test.Start(t))}
	if n := c.run(t); n < 32 {
		t.Errorf("an ingest had only %d effects", n)
	}
}

func inFolder(r *rig) world { return inFolderWith(r, dir.Options{}) }

// inScratch waits for no disk: the end of a process takes nothing that it wrote.
func inScratch(r *rig) world { return inFolderWith(r, dir.Options{Unsynced: true}) }

func inFolderWith(r *rig, o dir.Options) world {
	folder := r.TempDir()
	view := func() cache.Store {
		s, err := dir.OpenWith(folder, o)
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { s.Close() })
		return s
	}
	return world{store: view, check: func(plain func(*rig)) { sameObjects(r, view(), plain) }}
}

// inBucket gives every run a prefix of its own.
func inBucket(server *s3test.Server) func(*rig) world {
	var runs atomic.Int64
	return func(r *rig) world {
		opt := s3.Options{
			Bucket: server.Bucket(r.T), Prefix: fmt.Sprint("run.", runs.Add(1)), Endpoint: server.Endpoint, PathStyle: true,
			AccessKey: server.AccessKey, SecretKey: server.SecretKey,
		}
		folder := filepath.Join(r.TempDir(), "spool")
		view := func() cache.Store {
			s, err := s3.Open(r.Context(), opt)
			if err != nil {
				r.Fatal(err)
			}
			r.Cleanup(func() { s.Close() })
			return s
		}
		return world{
			store: view,
			spool: func(s cache.Store) (cache.Stager, func()) {
				sp, err := spool.Open(spool.Options{Folder: folder, Quota: 1 << 20, Store: s})
				if err != nil {
					r.Fatal(err)
				}
				return sp, func() { sp.Close() }
			},
			check: func(plain func(*rig)) {
				sameObjects(r, view(), plain)
				if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
					r.Errorf("the spool's folder has %v beside its lock (%v)", left, err)
				}
			},
		}
	}
}

// sameObjects holds a store against one where nobody was killed: no object is missing, none is left.
func sameObjects(r *rig, s cache.Store, plain func(*rig)) {
	r.Helper()
	beside := newRig(r.T)
	plain(beside)
	if got, want := namesOf(r, s, ""), beside.store.Names(); fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("the store has\n%v\nwant\n%v", got, want)
	}
}
