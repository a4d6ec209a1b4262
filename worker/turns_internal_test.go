package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lector/engine"
	"lector/queue"
)

// Whatever attempts come, go and give up: no two have the engine at once, and everyone who waits gets it.
func TestTurnsNeverMeetAndNeverStop(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed, attempts := rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 8).Draw(rt, "attempts")
		synctest.Test(t, func(t *testing.T) {
			turns := newTurns(time.Now)
			var inside atomic.Int32
			var group sync.WaitGroup
			for n := range attempts {
				group.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(n)))
					kind := []queue.Kind{queue.Ingest, queue.Resume}[r.IntN(2)]
					for range 1 + r.IntN(3) {
						leave := turns.join(kind)
						for range r.IntN(6) {
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(80))*time.Millisecond)
							end, err := turns.take(ctx, kind)
							if err == nil {
								if inside.Add(1) != 1 {
									t.Error("two have the engine")
								}
								time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
								inside.Add(-1)
								end()
							}
							cancel()
							time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
						}
						leave()
					}
				})
			}
			group.Wait()
			end, err := turns.take(t.Context(), queue.Ingest) // not lost to one who gave up
			if err != nil {
				t.Fatal(err)
			}
			end()
			for kind, s := range turns.sharing {
				if len(s.asking) != 0 || s.members != 0 {
					t.Errorf("%s: %d ask and %d are members after all have gone", kind, len(s.asking), s.members)
				}
			}
		})
	})
}

// Attempts that give up their place free it for those behind.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{total: 10}
		a := &attempt{Worker: &Worker{}, alive: &keepalive{ended: make(chan struct{})}}
		enter := func(ctx context.Context, bytes int64) (leave func(), err error) {
			w, err := r.ask(bytes)
			if err == nil {
				err = a.wait(ctx, w)
			}
			if err != nil {
				return nil, err
			}
			return w.leave, nil
		}
		if _, err := enter(t.Context(), 11); !errors.Is(err, engine.ErrMemory) {
			t.Errorf("more than there will ever be: %v", err)
		}
		first, err := enter(t.Context(), 8)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		refused := make(chan error)
		go func() { _, err := enter(ctx, 9); refused <- err }()
		synctest.Wait()
		admitted := make(chan func())
		go func() {
			leave, err := enter(t.Context(), 2)
			if err != nil {
				t.Error(err)
			}
			admitted <- leave
		}()
		synctest.Wait()
		select {
		case <-admitted:
			t.Fatal("a small one went past a large one that waits")
		default:
		}
		cancel()
		if err := <-refused; err == nil {
			t.Fatal("admitted after giving up")
		}
		leave := <-admitted
		leave()
		first()
		if r.taken != 0 || r.live != 0 || len(r.waiting) != 0 {
			t.Errorf("%d bytes are taken by %d, %d wait", r.taken, r.live, len(r.waiting))
		}
	})
}

// panicking is an engine whose sequences cannot be opened.
type panicking struct{ engine.Engine }

func (panicking) Info() engine.Info                        { return engine.Info{BytesPerToken: 1, MaxTokens: 9} }
func (panicking) NewSequence(int) (engine.Sequence, error) { panic("no sequence") }

// What a sequence would have had is free again when the engine panics on opening it.
func TestPanicGivesRoomBack(t *testing.T) {
	s := newShare(panicking{}, 9, time.Now)
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			l := &lent{Engine: panicking{}, share: s, kind: queue.Resume, ctx: t.Context(), attempt: &attempt{Worker: &Worker{}, alive: &keepalive{}}}
			_, err := l.NewSequence(9)
			t.Errorf("opened: %v", err)
		}()
	}
	if s.room.taken != 0 || s.turns.busy || s.turns.sharing[queue.Resume].members != 0 {
		t.Errorf("%d bytes are taken, busy %v, %d members", s.room.taken, s.turns.busy, s.turns.sharing[queue.Resume].members)
	}
}
