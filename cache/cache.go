// Package cache stores the state of sequences by identity and finds the longest stored prefix. It moves
// named bytes and knows no model, no queue and no network; cache/dir and cache/s3 implement Store.
//
// What is stored, all under the tenant's name:
//
//	blobs/<sha256>            raw little-endian rows of one chunk, or recurrent state; at most MaxBlob bytes
//	nodes/<key>               canonical JSON: one grid cell of one prefix, named by its logical key
//	keep/<key>                marks a node whose recurrent state is kept in blobs/
//	rolling/<job>/<sha256>    recurrent state kept only until the next boundary of that job
//	manifests/<sha256>        what one restore needs, in order
//	handles/<sha256>          continuation handles
//	documents/<sha256>        token ids of submitted documents
//	results/<job>             what became of a resume
//
// Children of this package add tags/ (cache/tag), gc/ (cache/gc), signatures/ (cache/sign), and sealed/ and seals/ (cache/seal).
//
// What it promises:
//
//  1. Blobs are durable before their node, nodes before the manifest, the manifest before the handle.
//  2. Nodes and manifests are put only if absent. A second writer whose node differs is ErrDiverged, never
//     an overwrite; a lost answer to our own put is read back, and equal is success.
//  3. What is read is checked before it is used: size, digest, then shape. A difference is ErrCorrupt with
//     the object's name, what was expected and what was there.
//  4. Equal things have equal bytes: every stored description is canonical JSON that holds only pure functions
//     of what it describes, and a decoder takes no other spelling.
//
// It refuses to overwrite a standing state, to read an unknown or newer format, and to restore into a model whose
// layout or identity differs. It keeps nothing in memory between calls: a Space may be used from any goroutine.
//
// Start reading at Store, then Node and Manifest; format.md has the tables of the stored objects.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

var (
	// ErrNotFound says that no object has that name.
	ErrNotFound = errors.New("not found")
	// ErrExists says that a put-if-absent found an object.
	ErrExists = errors.New("exists already")
	// ErrCorrupt says that stored bytes are not what their name or descriptor says.
	ErrCorrupt = errors.New("stored object is damaged")
	// ErrIncompatible says that a state belongs to another model, codec or class; the message names the field.
	ErrIncompatible = errors.New("state is of another identity")
	// ErrDiverged says that one key produced two different nodes: the determinism alarm.
	ErrDiverged = errors.New("one key produced two different states")
	// ErrExpired says that a handle's time is over.
	ErrExpired = errors.New("handle has expired")
	// ErrName refuses an object name that a store must not take.
	ErrName = errors.New("object name is not allowed")
	// ErrSealed says that what is asked for is encrypted with a key that was not given; the message names the key.
	ErrSealed = errors.New("sealed with a key that was not given")
	// ErrHandle says that a text is not the printed name of a handle; the message says why.
	ErrHandle = errors.New("not a handle")
)

// refusal is an error whose text stands alone, since users read it as it is; callers find its kind by errors.Is.
type refusal struct {
	text string
	kind error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }

// refuse makes an error of a kind; the text names the thing and the values.
func refuse(kind error, format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), kind}
}

// MaxBlob is the largest object a writer makes: each is a single put.
const MaxBlob = 64 << 20

// RefreshAge is the age from which an object that a put finds is written again, so that a collector that is about to
// remove it sees that it is wanted. It is half of the least grace that a collector may give beside writers.
const RefreshAge = 12 * time.Hour

// Store keeps named immutable objects. Names are relative slash paths of [a-z A-Z 0-9 . _ -] elements, none
// of them "." or ".."; anything else is ErrName (CheckName says so). Errors name the call and the object.
// Implementations may be used from any goroutine.
type Store interface {
	// Put stores the object whole or not at all, and returns when it is durable. body is read from its start
	// and may be read more than once. With IfAbsent an existing object is ErrExists and stays as it is; a store
	// answers so without reading the body where it can, and the standing object is durable by then.
	Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how PutMode) error
	// Get reads [off, off+n) of the object; n < 0 reads to the end. ErrNotFound; a range beyond the end is an error.
	Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error)
	// Stat describes an object; ErrNotFound.
	Stat(ctx context.Context, name string) (Object, error)
	// List yields the objects whose name begins with prefix, in order of name.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object; removing what is not there is success.
	Delete(ctx context.Context, name string) error
}

// PutMode says what Put does when the name is taken.
type PutMode uint8

const (
	// IfAbsent leaves a standing object alone.
	IfAbsent PutMode = iota
	// Replace writes it again: the same bytes, for an object that is old or was cut short.
	Replace
)

// Object describes a stored object; Time is by the store's clock.
type Object struct {
	Name string
	Size int64
	Time time.Time
}
