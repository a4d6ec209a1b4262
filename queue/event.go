package queue

import (
	"encoding/json"
	"time"
)

// State is where a job stands. Done, Failed, Cancelled and Expired are final.
type State string

const (
	Queued    State = "queued"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled" // somebody asked for it
	Expired   State = "expired"   // its deadline has passed
)

// Final says that the state is never left by itself.
func (s State) Final() bool { return s == Done || s == Failed || s == Cancelled || s == Expired }

// Status is what is known of a job. Every final state says where the result or the reason is.
type Status struct {
	Job      Job             `json:"job"`
	State    State           `json:"state"`
	Attempts int             `json:"attempts"`
	Result   json.RawMessage `json:"result,omitempty"` // Done: the receipt of an ingest or the result of a resume; Cancelled, Expired: of the part that was done
	Dead     *Dead           `json:"dead,omitempty"`   // Failed
	Cancel   *Cancellation   `json:"cancel,omitempty"` // somebody asked for the job's end
	Waits    string          `json:"waits,omitempty"`  // Queued: why it was given back, where it is no fault
	Updated  time.Time       `json:"updated"`
}

// EventType names what happened.
type EventType string

const (
	EventStarted  EventType = "started"  // a worker took the job
	EventRestored EventType = "restored" // state was restored instead of computed
	EventProgress EventType = "progress" // a chunk is done and durable
	EventTokens   EventType = "tokens"   // text was generated
	EventRetry    EventType = "retry"    // an attempt failed, another will come
	EventAlarm    EventType = "alarm"    // two computations of one thing differ; the job then fails
	EventHandle   EventType = "handle"   // a handle for a part of the document is there
	EventDone     EventType = "done"
	EventFailed   EventType = "failed"
	EventEnded    EventType = "ended" // cancelled or expired: State says which
)

// Final says that nothing comes after an event of this type but another run of the job.
func (t EventType) Final() bool { return t == EventDone || t == EventFailed || t == EventEnded }

// Event is one step in the story of a job. Which fields are set depends on Type.
type Event struct {
	Version int       `json:"version"` // 1
	Job     string    `json:"job"`
	Attempt int       `json:"attempt"`
	Type    EventType `json:"type"`
	At      time.Time `json:"at"`

	Tokens int             `json:"tokens,omitempty"` // restored, progress, handle: tokens of state so far
	Total  int             `json:"total,omitempty"`  // restored, progress: tokens of the document or prompt
	Stats  json.RawMessage `json:"stats,omitempty"`  // progress: the chunk's statistics

	Branch int     `json:"branch,omitempty"` // tokens: which of the order's texts
	First  int     `json:"first,omitempty"`  // tokens: index of IDs[0] in the generated text
	IDs    []int32 `json:"ids,omitempty"`    // tokens
	Offset int     `json:"offset,omitempty"` // tokens: bytes of the generated text before Text
	Text   string  `json:"text,omitempty"`   // tokens: what became certain
	Finish string  `json:"finish,omitempty"` // tokens: why the text ends here; "" while it goes on

	Result json.RawMessage `json:"result,omitempty"` // done, handle; ended: of the part that was done
	Dead   *Dead           `json:"dead,omitempty"`   // failed
	State  State           `json:"state,omitempty"`  // ended: cancelled or expired
	Reason string          `json:"reason,omitempty"` // retry, ended; handle: why there is none
	Alarm  *Alarm          `json:"alarm,omitempty"`  // alarm
}

// Alarm says which two computations differ: of one logical key two digests. What was stored first stands.
type Alarm struct {
	Of       string `json:"of"`             // "node": a stored cell of a document; "handle": what the job published
	Key      string `json:"key"`            // of the node; of a handle, the job
	From     int    `json:"from,omitempty"` // tokens of a node
	To       int    `json:"to,omitempty"`
	Part     string `json:"part,omitempty"` // of a node, the first that differs
	Stored   string `json:"stored"`         // digest of what stands
	Computed string `json:"computed"`       // digest of what was made now
	Host     string `json:"host"`           // that made it
}
