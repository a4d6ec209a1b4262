package queue

import (
	"context"
	"time"
)

// Roster is what a queue offers beside Queue when workers can be asked what they do. Nothing is stored: who does not
// answer is not there.
type Roster interface {
	// Answer has every call of Workers hear what report says, from now until stop. report comes from any goroutine.
	Answer(report func() WorkerStatus) (stop func(), err error)
	// Workers asks all workers of all models, and returns the answers that came within the time, in order of host and process.
	Workers(ctx context.Context, wait time.Duration) ([]WorkerStatus, error)
}

// WorkerStatus is what a worker says of itself.
type WorkerStatus struct {
	Version  int         `json:"version"` // 1
	Host     string      `json:"host"`
	Process  int         `json:"process"`
	Program  string      `json:"program"` // its version
	Model    string      `json:"model"`   // ModelID in hex
	Name     string      `json:"name"`    // of the model
	Class    string      `json:"class"`
	Started  time.Time   `json:"started"`
	Draining bool        `json:"draining,omitempty"`
	Jobs     []WorkerJob `json:"jobs,omitempty"`   // at work, the oldest first
	Recent   []WorkerJob `json:"recent,omitempty"` // attempts that ended, the latest first
	Ended    int         `json:"ended"`            // attempts since the start
	Failed   int         `json:"failed"`           // of them: jobs that became dead letters
	Tokens   int         `json:"tokens"`           // computed since the start, of documents and prompts and texts
	Depth    []Depth     `json:"depth,omitempty"`  // of the queue of its model
}

// WorkerJob is one job of a worker.
type WorkerJob struct {
	ID      string    `json:"id"`
	Kind    Kind      `json:"kind"`
	Name    string    `json:"name,omitempty"` // of the document
	Attempt int       `json:"attempt"`
	Since   time.Time `json:"since"`
	Tokens  int       `json:"tokens,omitempty"` // of state, or of text, so far
	Total   int       `json:"total,omitempty"`  // of the document, or at most of the text
	Class   string    `json:"class,omitempty"`  // of how it ended
	Seconds float64   `json:"seconds,omitempty"`
}
