// Package stream reads what a packed store keeps out of memory: expert records and n-gram rows. It is the one owner of
// those reads, for every backend.
//
// It owns the slots that records are read into (their memory is the backend's), which record is in which slot, the
// lanes that read, and the counters that tell reader and user how far the other is. The first slots are a ring: records
// pass through them. The rest are a pool, which keeps the records that are used most.
//
// What it promises:
//
//  1. Within one sweep each wanted record is read at most once, and not at all if it is in a slot already. With
//     Options.Ahead some records of the next layer are read before it is known that they are wanted.
//  2. Which slot an item of a sweep has is known before it is read. A slot is overwritten only after its last user
//     is done, and leaves the index before that.
//  3. A record is handed out only after its checksum was compared. A failed, short or damaged read ends the sweep with
//     ErrRead or ErrRecord, a cancelled context with its cause.
//  4. Both counters go up by one writer each and never back. After a failure the reader's still reaches every ticket,
//     so that nobody waits for ever; nothing that failed stays in the index.
//  5. Between sweeps and gatherings it has no goroutine.
//
// It refuses fewer than MinSlots slots where the store has more records than that, and slots that are too small.
//
// A Store serves one sweep and one gathering of each table at a time; Limit and Stats may be called from any goroutine. Start reading
// at Store, then plan.go, which decides about slots, and sweep.go, which fills them.
package stream
