package queue

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Wire versions of Job. A job has the least that says all it asks for: a lector that does not know what a job asks for
// refuses it by its version, and takes every other.
const (
	JobVersion     = 1 // first
	JobVersionKeep = 2 // with KeepState, which a lector from before would leave out
)

// VersionOf is the wire version of an order that says what of a state to keep.
func VersionOf(keepState string) int {
	if keepState != "" {
		return JobVersionKeep
	}
	return JobVersion
}

// MaxJobBytes bounds an encoded job: it must fit one message with room for headers.
const MaxJobBytes = 900 << 10

// Kind is what a job asks for.
type Kind string

const (
	Ingest Kind = "ingest" // read a document, keep its state
	Resume Kind = "resume" // go on from a handle
)

// Job is an order. It holds ids and references, never document bytes.
type Job struct {
	Version   int       `json:"version"`
	ID        string    `json:"id"` // idempotency key: the same order has the same id
	Kind      Kind      `json:"kind"`
	Model     string    `json:"model"`    // ModelID in hex: only a worker of that model takes it
	Priority  string    `json:"priority"` // "normal" unless said otherwise
	Submitted time.Time `json:"submitted"`
	// Deadline is when the job's result is of no use any more: work on it ends then. Zero: never.
	Deadline time.Time `json:"deadline,omitzero"`
	// Labels are for people and for finding the job again.
	Labels map[string]string `json:"labels,omitempty"`
	// Tenant is whose job it is, for quotas; "" where nobody says.
	Tenant string `json:"tenant,omitempty"`
	// Trace is the W3C traceparent of whoever submitted the job; part of no identity.
	Trace  string       `json:"trace,omitempty"`
	Ingest *IngestOrder `json:"ingest,omitempty"`
	Resume *ResumeOrder `json:"resume,omitempty"`
}

// IngestOrder asks for a document's state.
type IngestOrder struct {
	Document string        `json:"document"` // digest of the token ids, stored before submit
	Tokens   int           `json:"tokens"`
	Name     string        `json:"name"`     // for people
	Capacity int           `json:"capacity"` // 0: the model's own
	TTL      time.Duration `json:"ttl"`      // of the handle, from Submitted; 0: never expires
	// HandleAt asks for handles on the way: each at the first boundary at or after so many tokens, ascending.
	HandleAt []int `json:"handle_at,omitempty"`
	// KeepState is what of the state the handle holds: "" all of it, or KeepNone.
	KeepState string `json:"keep_state,omitempty"`
}

// KeepNone asks for a handle that holds token ids and no state: it takes four bytes a token, and a resume reads them again.
const KeepNone = "none"

// ResumeOrder asks for text that goes on from a handle. At most one of Text, Chat and Tokens is set;
// with none of them the text goes on from the document's end.
type ResumeOrder struct {
	Handle    string        `json:"handle"` // digest of the handle
	Text      string        `json:"text,omitempty"`
	Chat      []Message     `json:"chat,omitempty"`
	Thinking  bool          `json:"thinking,omitempty"`
	Tokens    []int32       `json:"tokens,omitempty"`
	Sampling  Sampling      `json:"sampling"`
	MaxTokens int           `json:"max_tokens"`
	Stop      []string      `json:"stop,omitempty"`
	Branches  int           `json:"branches,omitempty"` // texts to make, each with random numbers of its own; 0: one
	Drafts    int           `json:"drafts"`
	Capacity  int           `json:"capacity"`
	Keep      bool          `json:"keep,omitempty"`       // store the extended state and return a handle for it
	KeepState string        `json:"keep_state,omitempty"` // what of it: "" all, or KeepNone
	TTL       time.Duration `json:"ttl"`                  // of that handle
}

// Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Sampling says how tokens are chosen. Temperature 0 is greedy. The seed is fixed at submit.
type Sampling struct {
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	Seed        uint64  `json:"seed"`
}

// Encode writes the wire form after Validate.
func (j Job) Encode() ([]byte, error) {
	if err := j.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("encode job %s: %w", j.ID, err)
	}
	if len(b) > MaxJobBytes {
		return nil, fmt.Errorf("job %s is %d bytes, more than the %d a queue message holds: shorten the prompt", j.ID, len(b), MaxJobBytes)
	}
	return b, nil
}

// DecodeJob reads the wire form and validates it.
func DecodeJob(b []byte) (Job, error) {
	var j Job
	if len(b) > MaxJobBytes {
		return j, fmt.Errorf("decode job: %d bytes, more than %d", len(b), MaxJobBytes)
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return j, fmt.Errorf("decode job: %w", err)
	}
	return j, j.Validate()
}

// Validate checks what a job must hold to be worked on.
func (j Job) Validate() error {
	switch {
	case j.Version < JobVersion || j.Version > JobVersionKeep:
		return fmt.Errorf("job %q has version %d: this lector reads versions %d to %d", j.ID, j.Version, JobVersion, JobVersionKeep)
	case !validName(j.ID):
		return fmt.Errorf("job id %q is not made of 1 to 128 letters, digits, '-' and '_'", j.ID)
	case !validName(j.Model):
		return fmt.Errorf("job %s names the model %q, not an id", j.ID, j.Model)
	case !validName(j.Priority):
		return fmt.Errorf("job %s has the priority %q, not a name", j.ID, j.Priority)
	case j.Kind == Ingest && (j.Ingest == nil || j.Resume != nil), j.Kind == Resume && (j.Resume == nil || j.Ingest != nil):
		return fmt.Errorf("job %s of kind %s does not hold the order of that kind alone", j.ID, j.Kind)
	case j.Kind != Ingest && j.Kind != Resume:
		return fmt.Errorf("job %s has the unknown kind %q", j.ID, j.Kind)
	}
	if err := j.validateLabels(); err != nil {
		return err
	}
	if want := VersionOf(j.keepState()); j.Version != want {
		return fmt.Errorf("job %s has version %d and keeps %q of the state: that is version %d", j.ID, j.Version, j.keepState(), want)
	}
	if j.Resume != nil {
		return j.Resume.validate(j.ID)
	}
	return j.Ingest.validate(j.ID)
}

func (j Job) keepState() string {
	if j.Resume != nil {
		return j.Resume.KeepState
	}
	return j.Ingest.KeepState
}

// Limits of what an order may say beside its work.
const (
	MaxLabels     = 32
	MaxLabelBytes = 256 // of a name or a value
	MaxHandleAt   = 64
)

func (j Job) validateLabels() error {
	if len(j.Labels) > MaxLabels {
		return fmt.Errorf("job %s has %d labels: at most %d", j.ID, len(j.Labels), MaxLabels)
	}
	for name, value := range j.Labels {
		if !validName(name) || len(value) > MaxLabelBytes {
			return fmt.Errorf("job %s has the label %.64q=%.64q: a name of letters, digits, '-' and '_', and a value of at most %d bytes", j.ID, name, value, MaxLabelBytes)
		}
	}
	if j.Tenant != "" && !validName(j.Tenant) {
		return fmt.Errorf("job %s is of the tenant %.64q, not a name", j.ID, j.Tenant)
	}
	return nil
}

func (o *IngestOrder) validate(id string) error {
	if len(o.HandleAt) > MaxHandleAt {
		return fmt.Errorf("job %s asks for handles at %d places: at most %d", id, len(o.HandleAt), MaxHandleAt)
	}
	before := 0
	for _, n := range o.HandleAt {
		if n <= before {
			return fmt.Errorf("job %s asks for a handle at %d tokens after one at %d: give them ascending, from 1", id, n, before)
		}
		before = n
	}
	return validKeepState(id, o.KeepState)
}

func validKeepState(id, s string) error {
	if s != "" && s != KeepNone {
		return fmt.Errorf("job %s asks to keep %.64q of the state: leave it out for all of it, or say %q", id, s, KeepNone)
	}
	return nil
}

func (o *ResumeOrder) validate(id string) error {
	prompts := 0
	for _, set := range []bool{o.Text != "", len(o.Chat) > 0, len(o.Tokens) > 0} {
		if set {
			prompts++
		}
	}
	switch {
	case prompts > 1:
		return fmt.Errorf("job %s holds %d prompts: give text, chat or tokens", id, prompts)
	case o.MaxTokens < 1:
		return fmt.Errorf("job %s asks for %d tokens: ask for at least 1", id, o.MaxTokens)
	case o.Branches < 0 || o.Branches > MaxBranches:
		return fmt.Errorf("job %s asks for %d branches: 1 to %d", id, o.Branches, MaxBranches)
	case o.Branches > 1 && o.Keep:
		return fmt.Errorf("job %s asks to keep the state of %d branches: only that of one can be kept", id, o.Branches)
	case o.Drafts < 0 || o.Drafts > 3:
		return fmt.Errorf("job %s asks for %d drafts: 0 to 3", id, o.Drafts)
	case o.KeepState != "" && !o.Keep:
		return fmt.Errorf("job %s says what of the state to keep, and not to keep it", id)
	}
	return validKeepState(id, o.KeepState)
}

// MaxBranches is the most texts of one order.
const MaxBranches = 64

// validName keeps ids safe as subject tokens, keys and file names.
func validName(s string) bool {
	if len(s) == 0 || len(s) > 128 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}) < 0
}
