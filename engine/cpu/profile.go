package cpu

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lector/engine/ops"
)

var _ ops.Profiler = (*Backend)(nil)

// named is a task that names its phases in a profile. One that does not is called as the function that runs it.
type named interface{ name(phase int) string }

// profile counts where the time goes, once it was asked to.
type profile struct {
	on   atomic.Bool
	mu   sync.Mutex
	list []ops.Profiled // by the names that operations gave
	at   map[string]int // by name: its place in list
}

// Profile begins to count.
func (b *Backend) Profile() {
	p := &b.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list, p.at = nil, map[string]int{}
	p.on.Store(true)
}

// Profiled ends counting. Names are operations' own, products are called by their first matrix, whatever its layer.
func (b *Backend) Profiled() []ops.Profiled {
	p := &b.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on.Store(false)
	var list []ops.Profiled
	at := map[string]int{}
	for _, o := range p.list {
		o.Name = generic(o.Name)
		i, ok := at[o.Name]
		if !ok {
			i = len(list)
			at[o.Name] = i
			list = append(list, ops.Profiled{Name: o.Name})
		}
		list[i].Runs += o.Runs
		list[i].Wall += o.Wall
		list[i].Idle += o.Idle
	}
	return list
}

// count adds a run.
func (p *profile) count(name string, wall, busy time.Duration, workers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.at[name]
	if !ok {
		i = len(p.list)
		p.at[name] = i
		p.list = append(p.list, ops.Profiled{Name: name})
	}
	p.list[i].Runs++
	p.list[i].Wall += wall
	p.list[i].Idle += time.Duration(workers)*wall - busy
}

// laps is when a job's caller came to each phase and left the last, and how long each worker was at items of each.
type laps struct {
	at   [maxPhases + 1]time.Time
	busy [][maxPhases]time.Duration // by worker
}

// lapsOf is for a job that is counted, nil for any other.
func (b *Backend) lapsOf(j *job) *laps {
	switch {
	case !b.profile.on.Load():
		return nil
	case j.laps == nil:
		return &laps{busy: make([][maxPhases]time.Duration, b.workers)}
	}
	clear(j.laps.busy)
	return j.laps
}

// countJob counts what a job took whose workers are all done.
func (b *Backend) countJob(j *job, t task) {
	count := int(j.known.Load() &^ complete)
	j.laps.at[count] = time.Now()
	for i := range count {
		var busy time.Duration
		for w := range j.laps.busy {
			busy += j.laps.busy[w][i]
		}
		b.profile.count(nameOf(t, i), j.laps.at[i+1].Sub(j.laps.at[i]), busy, b.workers)
	}
}

// nameOf is what phase i of a task is called.
func nameOf(t task, i int) string {
	if n, ok := t.(named); ok {
		return n.name(i)
	}
	var pcs [12]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		_, name, _ := strings.Cut(f.Function, "engine/cpu.")
		switch name {
		case "(*Backend).countJob", "(*crew).run", "(*crew).finish", "(*Backend).alone", "(*Backend).inPhases", "(*Backend).parallel", "(*Backend).eachHead", "(*Backend).eachStream":
		default:
			return name
		}
		if !more {
			return "other"
		}
	}
}

// generic is a name without what tells layers, or a method's receiver, apart.
func generic(name string) string {
	if _, method, ok := strings.Cut(name, ")."); ok {
		return method
	}
	parts := strings.Split(name, ".")
	kept := parts[:0]
	for _, p := range parts {
		if p != "model" && p != "language_model" && p != "layers" && p != "weight" && strings.Trim(p, "0123456789") != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ".")
}
