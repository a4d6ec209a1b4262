// Package worker owns the story of one document and of one resume: what happens from the delivery of a job to
// its settlement, in which order, and what becomes of it when a step fails. It composes a queue, a store and
// an engine, which do not know each other.
//
// What it promises (tests cite the number):
//
//  1. Blobs are durable before their node, nodes before the manifest, the manifest before the handle.
//  2. Nodes and manifests are put only if absent; a lost answer to our own put is read back, and equal is success.
//  3. A handle is published only after its manifest was read back and verified.
//  4. A delivery is acknowledged, and the acknowledgement confirmed, only after the handle is accepted.
//  5. Every step may be repeated: the same work gives the same keys, handle and job id.
//  6. Losing the delivery cancels the work's context; nothing is published after that.
//  7. State is taken only at boundaries where it is defined, and its token count is the state's, not the request's.
//  8. Work lost to a dead worker is at most one finished chunk; another goes on from the deepest stored node. So
//     a chunk is durable in the store before the next one is finished, which is to be computed and staged; and where
//     nothing can stage it, before the next one is begun.
//
// A job that is cancelled, or whose deadline passes, ends at its next boundary: what is stored by then is kept, under a handle
// of its own that is the job's result.
//
// What it refuses: to construct a collaborator, to read the environment, to know what a network looks like, to
// choose a faster path silently, and to try again what cannot come out otherwise.
//
// Worker.Serve works on several deliveries at once, on one Engine: an attempt has it for a step at a time (turns.go), and
// waits until the memory for its state is free (room.go); a resume's texts share what they follow (branch.go). Worker.Run
// works on one delivery at a time and may be called from several goroutines. A job that panics is a dead letter, and the
// worker goes on. One that lacks what others have just now, memory or a place in its tenant's quota, is given back for a while
// and counts no attempt. Start reading at Worker.Handle, then ingest.go or resume.go top to bottom; fate.go says what an error
// means. Other programs submit and follow jobs with worker/client.
package worker
