// Package count says what a prefill asks of a device, counted on one that executes nothing: command buffers, waits of
// the host, dispatches, bytes of expert records, operations of attention, scratch. A model of the released shapes
// counts on any machine, in seconds and without its weights.
//
// It owns the played parts: the routing is drawn from a seed, and expert records stream through a ring by the plan of
// engine/stream without being read. Everything else is the network and the backend as they run.
//
// What it promises:
//
//  1. Nothing is timed. The same options give the same counts on every machine.
//  2. Operations are counted from the dispatches, by their parameter blocks: what a kernel computes, masked keys
//     included; with the padding of its matrix tiles they are a figure of their own.
//  3. The bytes of scratch are what the device held for a chunk and gave back after it.
//  4. A slot that would be overwritten while its record is used is an error.
//
// It refuses positions and chunks beyond the model's context. A Counter is used by one goroutine. Start reading at
// Counter.At.
package count
