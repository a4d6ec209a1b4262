package engine

import "errors"

// Sentinels exist where a caller decides by them; the message around them names the thing and the value.
var (
	// ErrEmpty refuses a chunk without tokens.
	ErrEmpty = errors.New("no tokens")
	// ErrToken refuses a token id outside the vocabulary.
	ErrToken = errors.New("token outside the vocabulary")
	// ErrTooLong refuses a chunk beyond the sequence's capacity.
	ErrTooLong = errors.New("beyond capacity")
	// ErrMemory refuses work that the memory budget cannot hold.
	ErrMemory = errors.New("memory budget too small")
	// ErrNoHead refuses drafts from a model without a draft head.
	ErrNoHead = errors.New("model has no draft head")
	// ErrNumeric reports a number that is not finite, in a result or in restored state.
	ErrNumeric = errors.New("not a finite number")
	// ErrBroken marks a sequence that failed midway: only Restore and Close work.
	ErrBroken = errors.New("sequence is broken by an earlier failure")
	// ErrDevice reports a device that failed; the message names the operation.
	ErrDevice = errors.New("device failed")
	// ErrStorage reports weights that cannot be read, or are not those that were stored; the message names them.
	ErrStorage = errors.New("stored weights cannot be read")
	// ErrState refuses to export or restore a state that is not whole.
	ErrState = errors.New("state does not fit")
)
