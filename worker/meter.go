package worker

import (
	"time"

	"lector/engine"
	"lector/queue"
)

// Meter hears what a worker does as it does it, for counters and alarms. Its calls come from the goroutines of the
// worker, several at a time; they must return at once and must not fail. Embed NoMeter to hear only some of them.
type Meter interface {
	// Began hears that a delivery is being worked on; Ended follows, whatever happens.
	Began(kind queue.Kind)
	// Ended hears how an attempt came out, after its settlement.
	Ended(Ending)
	// Looked hears of a search for stored state of a document.
	Looked(Lookup)
	// Restored hears of a restore, refused or not.
	Restored(Restoring)
	// Computed hears the statistics of computed tokens: a cell of a document, a prompt, or a decoding step.
	Computed(kind queue.Kind, stats engine.ChunkStats)
	// Stored hears that a computed cell of a document is durable.
	Stored(Stored)
	// ClaimLost hears that the claim on a cell was lost while the cell was computed.
	ClaimLost()
}

// Ending is how an attempt came out.
type Ending struct {
	Job    string
	Kind   queue.Kind
	Fate   Fate
	Final  queue.State // the state that the job has reached for good, "" while it will come again or is not ours
	Took   time.Duration
	Result any // Receipt or Result of an attempt that did the work, else nil
}

// Lookup is what a search for stored state found.
type Lookup struct {
	Tokens int // of the deepest boundary that is stored, 0 where nothing is
	Gained int // tokens that need not be computed any more because of it
	Total  int // of the document
}

// Restoring is one restore. Class is "done", or the class of the fate that its error has.
type Restoring struct {
	Kind   queue.Kind
	Tokens int
	Bytes  int64 // of the state
	Took   time.Duration
	Class  string
}

// Stored is what the storing of one cell did.
type Stored struct {
	Tokens       int
	WrittenBytes int64
	ReusedBytes  int64 // wanted and there already
	Deduped      bool  // all rows of the cell were there already
}

// NoMeter is a Meter that hears nothing.
type NoMeter struct{}

var _ Meter = NoMeter{}

// Began hears nothing.
func (NoMeter) Began(queue.Kind) {}

// Ended hears nothing.
func (NoMeter) Ended(Ending) {}

// Looked hears nothing.
func (NoMeter) Looked(Lookup) {}

// Restored hears nothing.
func (NoMeter) Restored(Restoring) {}

// Computed hears nothing.
func (NoMeter) Computed(queue.Kind, engine.ChunkStats) {}

// Stored hears nothing.
func (NoMeter) Stored(Stored) {}

// ClaimLost hears nothing.
func (NoMeter) ClaimLost() {}

// meter is the worker's Meter, or one that hears nothing.
func (w *Worker) meter() Meter {
	if w.Meter == nil {
		return NoMeter{}
	}
	return w.Meter
}

// ending describes a settled attempt to the meter. settled is the error of the settlement.
func (a *attempt) ending(fate Fate, settled error) Ending {
	e := Ending{Job: a.job.ID, Kind: a.job.Kind, Fate: fate, Took: a.now().Sub(a.started)}
	if r, stored := a.result.(Result); fate.Action == Finish && !(stored && r.Attempt != a.delivery.Attempt()) {
		e.Result = a.result
	}
	if settled != nil {
		return e
	}
	switch fate.Action {
	case Finish:
		e.Final = queue.Done
		if a.early != "" {
			e.Final = a.early
		}
		if a.standing != nil {
			e.Final = a.standing.State
		}
	case Reject, Alarm:
		e.Final = queue.Failed
	}
	return e
}

// metered tells the meter of a restore of so many tokens and bytes.
func (a *attempt) metered(tokens int, restore func() (int64, error)) error {
	began := a.now()
	bytes, err := restore()
	a.meter().Restored(Restoring{
		Kind: a.job.Kind, Tokens: tokens, Bytes: bytes, Took: a.now().Sub(began), Class: classify(err).Class,
	})
	return err
}
