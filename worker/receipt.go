package worker

import (
	"time"

	"lector/engine"
)

// Receipt is what became of an ingest; it is the result in the job's status.
type Receipt struct {
	Document     string            `json:"document"`      // digest of the token ids
	Name         string            `json:"name"`          // as the order gave it
	Handle       string            `json:"handle"`        // printable name
	HandleDigest string            `json:"handle_digest"` // what a resume order holds
	Expires      *time.Time        `json:"expires,omitempty"`
	Tokens       TokenCounts       `json:"tokens"`
	Chunks       int               `json:"chunks"`            // grid cells of the document
	Partial      int               `json:"partial,omitempty"` // tokens of the handle's state, where the job ended before the document did
	Early        []EarlyHandle     `json:"early,omitempty"`   // that the order wanted on the way
	StateBytes   int64             `json:"state_bytes"`       // what a resume reads
	WrittenBytes int64             `json:"written_bytes"`     // stored by this attempt
	ReusedBytes  int64             `json:"reused_bytes"`      // wanted by this attempt and there already
	Seconds      IngestSeconds     `json:"seconds"`
	StoreSync    string            `json:"store_sync,omitempty"` // Config.StoreSync of the worker
	Engine       engine.ChunkStats `json:"engine"`               // of the computed chunks
	Host         string            `json:"host"`
	Attempt      int               `json:"attempt"`
}

// EarlyHandle is a handle for the beginning of a document.
type EarlyHandle struct {
	Tokens       int    `json:"tokens"`
	Handle       string `json:"handle"`
	HandleDigest string `json:"handle_digest"`
}

// TokenCounts says where a document's state came from: Restored + Computed + Unread = Total, or the receipt's Partial.
type TokenCounts struct {
	Total    int `json:"total"`
	Restored int `json:"restored"`
	Computed int `json:"computed"`
	Deduped  int `json:"deduped"`          // of the computed ones: their rows were stored already
	Unread   int `json:"unread,omitempty"` // the handle holds token ids alone: whoever resumes it reads them
}

// IngestSeconds is where an attempt's time went; Wait, Restore, Prefill, Store and Other add up to Total.
type IngestSeconds struct {
	Total   float64 `json:"total"`
	Wait    float64 `json:"wait"` // for cells that another worker computes
	Restore float64 `json:"restore"`
	Prefill float64 `json:"prefill"`
	Store   float64 `json:"store"` // reading stood still for storage
	Other   float64 `json:"other"`

	Held   float64 `json:"held"`   // of Store: waited for the store to take the chunk before, the spool being full
	Behind float64 `json:"behind"` // beside all of these: the store took chunks while others were read
}

// close makes the parts add up.
func (s *IngestSeconds) close(total time.Duration) {
	s.Total = total.Seconds()
	s.Other = s.Total - s.Wait - s.Restore - s.Prefill - s.Store
}

// Reasons why a text ended.
const (
	FinishStop     = "stop"     // a stop id or a stop string
	FinishLength   = "length"   // as many tokens as were asked for
	FinishCapacity = "capacity" // the sequence is full
)

// Result is what became of a resume; it is the result in the job's status.
type Result struct {
	Text         string        `json:"text"`
	IDs          []int32       `json:"ids"` // without the stop id; with the ids that spell a stop string
	FinishReason string        `json:"finish_reason"`
	Branches     []Branch      `json:"branches,omitempty"` // all texts, where there are several; Text, IDs and FinishReason are of the first
	Usage        Usage         `json:"usage"`
	Timings      ResumeSeconds `json:"timings"`
	Handle       string        `json:"handle,omitempty"` // of the extended state, when it was to be kept
	HandleDigest string        `json:"handle_digest,omitempty"`
	StateBytes   int64         `json:"state_bytes,omitempty"` // of that handle: what a resume reads
	StoreSync    string        `json:"store_sync,omitempty"`  // of its store: Config.StoreSync of the worker
	Seed         uint64        `json:"seed"`
	Stored       bool          `json:"stored,omitempty"` // too large for a message: texts and ids are in the store's result of the job alone
	Host         string        `json:"host"`
	Attempt      int           `json:"attempt"`
}

// Branch is one of a resume's texts.
type Branch struct {
	Index        int         `json:"index"`
	Text         string      `json:"text"`
	IDs          []int32     `json:"ids"`
	FinishReason string      `json:"finish_reason"`
	Usage        BranchUsage `json:"usage"`
}

// BranchUsage counts the tokens of one text.
type BranchUsage struct {
	Generated int `json:"generated"`
	Drafted   int `json:"drafted"`
	Accepted  int `json:"accepted"`
}

// Usage counts tokens, of all texts together.
type Usage struct {
	Restored  int `json:"restored"`         // of the handle's state; with Reread, all tokens of the handle
	Reread    int `json:"reread,omitempty"` // of a handle that holds token ids alone: read again
	Prefilled int `json:"prefilled"`        // exactly the prompt
	Generated int `json:"generated"`
	Drafted   int `json:"drafted"`
	Accepted  int `json:"accepted"` // of the drafted ones
}

// ResumeSeconds is where an attempt's time went; Restore, Reread, Prefill, Decode, Store and Other add up to Total. FirstToken
// is from the start to the first token.
type ResumeSeconds struct {
	Restore    float64 `json:"restore"`
	Reread     float64 `json:"reread,omitempty"`
	Prefill    float64 `json:"prefill"`
	FirstToken float64 `json:"first_token"`
	Decode     float64 `json:"decode"`
	Store      float64 `json:"store,omitempty"` // nothing was computed meanwhile; most of it comes after the text was told
	Other      float64 `json:"other"`
	Total      float64 `json:"total"`

	Held   float64 `json:"held,omitempty"`   // of Store: waited for the store to take the cell before
	Behind float64 `json:"behind,omitempty"` // beside all of these: the store took cells while the text went on
}

// close makes the parts add up.
func (s *ResumeSeconds) close(total time.Duration) {
	s.Total = total.Seconds()
	s.Other = s.Total - s.Restore - s.Reread - s.Prefill - s.Decode - s.Store
}
