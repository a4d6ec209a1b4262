package stream

import "errors"

var (
	// ErrRead reports a read that failed or came back short; the message names the record or row.
	ErrRead = errors.New("read from storage failed")
	// ErrRecord reports a record or row whose bytes are not those that were packed.
	ErrRecord = errors.New("stored record is damaged")
	// ErrEnded is what waiting for a sweep that has ended returns.
	ErrEnded = errors.New("sweep has ended")
)
