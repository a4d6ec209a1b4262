package bench

import (
	"context"

	"lector/engine/ops"
)

// Profile is where the time of one more sample went, which counts each operation and is slower for that.
type Profile struct {
	Steps      int         `json:"steps"`
	Seconds    float64     `json:"seconds"`
	Operations []Operation `json:"operations"`
}

// Operation is what all runs of an operation, or of a step of one, took. The last of a profile is Between.
type Operation struct {
	Name    string  `json:"name"`
	Runs    int     `json:"runs"`
	Seconds float64 `json:"seconds"`
	Idle    float64 `json:"idle"` // seconds that threads waited or stood still meanwhile, all of them together
}

// Between is the time between operations: one thread prepares the next.
const Between = "between operations"

// profileOf is the profile of a sample of so many steps and seconds on several threads.
func profileOf(list []ops.Profiled, steps int, seconds float64, threads int) *Profile {
	p, left := &Profile{Steps: steps, Seconds: seconds}, seconds
	for _, o := range list {
		p.Operations = append(p.Operations, Operation{o.Name, o.Runs, o.Wall.Seconds(), o.Idle.Seconds()})
		left -= o.Wall.Seconds()
	}
	p.Operations = append(p.Operations, Operation{Between, steps, left, left * float64(threads-1)})
	return p
}

// profileDecode takes one more sample of a row, whose operations are counted, and keeps of it the profile alone.
func (r *Runner) profileDecode(ctx context.Context, s State, o DecodeOptions, row *Row) error {
	one := Row{Drafts: row.Drafts}
	if err := r.decodeFrom(ctx, s, o.Tokens, &one, o.Profiler); err != nil {
		return err
	}
	row.Profile = profileOf(o.Profiler.Profiled(), one.Steps, one.Spent, o.Threads)
	return nil
}
