package main

import (
	"slices"
	"testing"

	"lector/queue"
)

// A story that is told again from its beginning goes on where it was.
func TestOnce(t *testing.T) {
	var o once
	var got []int
	heard := func(e queue.Event) { got = append(got, e.First) }
	for _, n := range []int{2, 1, 4} { // events that three followers hear
		tell := o.of(heard)
		for i := range n {
			tell(queue.Event{First: i})
		}
	}
	if !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("heard %v", got)
	}
}
