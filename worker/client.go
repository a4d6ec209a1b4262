package worker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"lector/cache"
	"lector/queue"
)

// DefaultPriority is the priority of an order that names none.
const DefaultPriority = "normal"

// IngestOptions are what an ingest order says beside the document.
type IngestOptions struct {
	Tokens    int           // of the document
	Name      string        // for people; not part of the job's id
	Capacity  int           // 0: the model's own
	TTL       time.Duration // of the handle, from Submitted; 0: never expires
	Priority  string        // "": DefaultPriority
	Submitted time.Time
	Deadline  time.Time         // zero: none; not part of the job's id
	Labels    map[string]string // not part of the job's id
	Tenant    string            // not part of the job's id
	HandleAt  []int             // tokens after which handles are wanted on the way, ascending
	KeepState string            // what of the state is kept: "" all, or queue.KeepNone
	// Key makes the job's id, with the model, in place of all that the order says.
	Key string
	// Again makes another job of the same order, such as when the handle of the first has expired.
	Again string
}

// StoreDocument stores the token ids that an ingest order refers to. It comes before the submit.
func StoreDocument(ctx context.Context, space *cache.Space, tokens []int32) (cache.Digest, error) {
	if len(tokens) == 0 {
		return cache.Digest{}, fmt.Errorf("store document: it has no tokens: %w", ErrInput)
	}
	return space.PutDocument(ctx, tokens)
}

// NewIngest builds the order to read a stored document. Its id is a pure function of the model, the document and
// the options that change the outcome, so that the same order again finds the job that stands (promise 5).
func NewIngest(id cache.Identity, document cache.Digest, o IngestOptions) queue.Job {
	return queue.Job{
		Version: queue.VersionOf(o.KeepState), ID: "ingest-" + ingestID(id, document, o), Kind: queue.Ingest,
		Model: id.Model.String(), Priority: priority(o.Priority), Submitted: o.Submitted.UTC(),
		Deadline: o.Deadline, Labels: o.Labels, Tenant: o.Tenant,
		Ingest: &queue.IngestOrder{
			Document: document.String(), Tokens: o.Tokens, Name: o.Name, Capacity: o.Capacity, TTL: o.TTL, HandleAt: o.HandleAt,
			KeepState: o.KeepState,
		},
	}
}

func ingestID(id cache.Identity, document cache.Digest, o IngestOptions) string {
	h := sha256.New()
	number := func(n int) { h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	if o.Key != "" {
		h.Write([]byte("lector ingest key 1\n"))
		h.Write(id.Model[:])
		h.Write([]byte(o.Key + "\n" + o.Again))
		return hex.EncodeToString(h.Sum(nil)[:16])
	}
	h.Write([]byte("lector ingest job 1\n"))
	h.Write(id.Producer[:])
	h.Write(document[:])
	number(int(o.TTL))
	number(o.Capacity)
	h.Write([]byte(o.Again))
	if len(o.HandleAt) > 0 {
		h.Write([]byte("\nhandles\n"))
		for _, n := range o.HandleAt {
			number(n)
		}
	}
	if o.KeepState != "" {
		h.Write([]byte("\nkeep state\n" + o.KeepState))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ResumeOptions are what a resume job says beside its order.
type ResumeOptions struct {
	Model     string // of the workers; "": the identity's
	Priority  string // "": DefaultPriority
	Tenant    string // whose job it is
	Submitted time.Time
	Seed      *uint64 // of the sampling; nil: a random one, fixed here so that a second attempt gives the same text
}

// NewResume builds the job for a resume order, whose Handle is set. Two calls make two jobs: each asks for a text of its own.
func NewResume(id cache.Identity, order queue.ResumeOrder, o ResumeOptions) queue.Job {
	var random [24]byte
	rand.Read(random[:]) // never fails: package crypto/rand ends the program instead
	order.Sampling.Seed = binary.LittleEndian.Uint64(random[16:])
	if o.Seed != nil {
		order.Sampling.Seed = *o.Seed
	}
	if o.Model == "" {
		o.Model = id.Model.String()
	}
	return queue.Job{
		Version: queue.VersionOf(order.KeepState), ID: "resume-" + hex.EncodeToString(random[:16]), Kind: queue.Resume,
		Model: o.Model, Priority: priority(o.Priority), Submitted: o.Submitted.UTC(), Tenant: o.Tenant, Resume: &order,
	}
}

func priority(p string) string {
	if p == "" {
		return DefaultPriority
	}
	return p
}
