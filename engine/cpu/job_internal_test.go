package cpu

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// counted is a task that notes what it is asked to run.
type counted struct {
	t      *testing.T
	phases []phase
	ran    [][]atomic.Int32 // by phase and item
	left   []atomic.Int64   // by phase: items that did not run
	panics int              // the phase in which the first item panics; -1: none does
}

func newCounted(t *testing.T, phases []phase) *counted {
	c := &counted{t: t, phases: phases, left: make([]atomic.Int64, len(phases)), panics: -1}
	for i, p := range phases {
		c.ran = append(c.ran, make([]atomic.Int32, p.n))
		c.left[i].Store(int64(p.n))
	}
	return c
}

func (c *counted) do(s *scratch, phase, from, to int) {
	for i := range phase {
		if left := c.left[i].Load(); left != 0 {
			c.t.Errorf("phase %d runs while %d items of phase %d are left", phase, left, i)
		}
	}
	if from >= to || s.end < to || s.end > c.phases[phase].n {
		c.t.Errorf("items [%d, %d) of a part that ends at %d, of %d", from, to, s.end, c.phases[phase].n)
	}
	for i := from; i < to; i++ {
		if c.panics == phase && i == 0 {
			panic("planted")
		}
		c.ran[phase][i].Add(1)
	}
	c.left[phase].Add(int64(from - to))
}

// once fails unless every item ran exactly once.
func (c *counted) once() {
	for p := range c.ran {
		for i := range c.ran[p] {
			if n := c.ran[p][i].Load(); n != 1 {
				c.t.Fatalf("item %d of phase %d of %v ran %d times", i, p, c.phases, n)
			}
		}
	}
}

func somePhases(src *rand.Rand) []phase {
	most := 6
	if src.IntN(16) == 0 {
		most = maxPhases
	}
	phases := make([]phase, 1+src.IntN(most))
	for i := range phases {
		phases[i] = phase{src.IntN(40), 1 + src.IntN(5)}
		if src.IntN(8) == 0 {
			phases[i].n *= 1000
		}
	}
	return phases
}

// Every item of every phase runs once, after all of the phases before, whoever comes when.
func TestJobsRunEveryItemOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			b := New(Options{Workers: workers})
			var callers sync.WaitGroup
			for caller := range 3 {
				callers.Go(func() {
					src := rand.New(rand.NewPCG(uint64(workers), uint64(caller)))
					for range 300 {
						c := newCounted(t, somePhases(src))
						b.inPhases(c, c.phases...)
						c.once()
					}
				})
			}
			callers.Wait()
		})
	}
}

// A panic in any phase comes back to the caller, and the next job runs as if nothing had been.
func TestJobsReturnPanics(t *testing.T) {
	b := New(Options{Workers: 3})
	for p := range maxPhases {
		phases := make([]phase, maxPhases)
		for i := range phases {
			phases[i] = phase{16, 1}
		}
		c := newCounted(t, phases)
		c.panics = p
		if said := panicOf(func() { b.inPhases(c, phases...) }); said != "planted" {
			t.Errorf("phase %d: the panic says %v", p, said)
		}
		for i := range c.ran[p][1:] {
			if n := c.ran[p][i+1].Load(); n > 1 {
				t.Errorf("phase %d: item %d ran %d times", p, i+1, n)
			}
		}
		for later := p + 1; later < maxPhases; later++ {
			if c.left[later].Load() != 16 {
				t.Errorf("phase %d ran behind the panic in phase %d", later, p)
			}
		}
		sound := newCounted(t, phases)
		b.inPhases(sound, phases...)
		sound.once()
	}
}

func panicOf(f func()) (said any) {
	defer func() { said = recover() }()
	f()
	return nil
}

// A helper that looked at a job whose caller is done takes no part in it, nor in the next turn's runs twice.
func TestJobsRefuseWhoComesLate(t *testing.T) {
	j := newJob(2)
	c := newCounted(t, []phase{{4, 1}, {4, 1}})
	j.set(c, c.phases)
	j.work(&scratch{}, 0, j.last) // nobody else came
	j.settle()
	c.once()
	if j.join(1) != 0 {
		t.Error("a helper joins a job that is over")
	}
	c = newCounted(t, []phase{{4, 1}, {4, 1}})
	j.set(c, c.phases)
	if !j.waits(1) || j.join(1) == 0 {
		t.Fatal("a helper cannot join the next turn")
	}
	if j.waits(1) || j.join(1) != 0 {
		t.Error("a helper joins a turn twice")
	}
	var helper sync.WaitGroup
	helper.Go(func() { j.work(&scratch{}, 1, j.last) })
	j.work(&scratch{}, 0, j.last)
	j.settle()
	helper.Wait()
	c.once()
}

// Jobs of one phase allocate nothing but what the caller gives them.
func TestJobsAllocateNothing(t *testing.T) {
	b := New(Options{Workers: 2})
	run := single(func(*scratch, int, int) {})
	b.inPhases(run, phase{64, 1}, phase{8, 1})
	if n := testing.AllocsPerRun(200, func() { b.inPhases(run, phase{64, 1}, phase{8, 1}) }); n >= 1 {
		t.Errorf("%v allocations a job", n)
	}
}

// Helpers may be at the first phases of a job while its caller adds more: every item runs once, in the order of the phases, and a panic
// comes back from the end.
func TestJobsGrowUnderTheirHelpers(t *testing.T) {
	for _, workers := range []int{2, 3, 8} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			b := New(Options{Workers: workers})
			src := rand.New(rand.NewPCG(uint64(workers), 9))
			for round := range 400 {
				c := newCounted(t, somePhases(src))
				if round%8 == 0 {
					c.panics = src.IntN(len(c.phases))
				}
				j := b.crew.begin(b, c)
				for i := range c.phases {
					if src.IntN(3) == 0 {
						for range src.IntN(2000) {
							runtime.KeepAlive(i) // time passes
						}
					}
					j.add(c.phases[:i+1])
				}
				said := panicOf(func() { b.crew.complete(b, j) })
				if planted := c.panics >= 0 && c.phases[c.panics].n > 0; planted != (said != nil) || planted && said != "planted" {
					t.Fatalf("round %d: the panic says %v", round, said)
				}
				if said == nil {
					c.once()
				}
			}
		})
	}
}
