package queue

import "context"

// Gauge is what a queue offers beside Queue when it can count its jobs.
type Gauge interface {
	// Depth counts the jobs of the queue's model, by kind and priority; where there are none it may leave the pair out.
	Depth(ctx context.Context) ([]Depth, error)
}

// Depth is how many jobs of one kind and priority are in the queue.
type Depth struct {
	Kind     Kind   `json:"kind"`
	Priority string `json:"priority"`
	Waiting  int    `json:"waiting"` // that a worker could take now
	Taken    int    `json:"taken"`   // being worked on, or waiting for another attempt
}
