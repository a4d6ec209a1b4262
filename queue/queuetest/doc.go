// Package queuetest holds what tests of and around a queue.Queue need: Memory, an implementation in memory
// that redelivers, duplicates and fails on demand, and Run, the suite that every implementation passes.
//
// What it promises:
//
//  1. Memory means the same as queue/jetstream, as far as Run can tell.
//  2. With a Manual clock a Memory does nothing by itself: the same calls give the same answers.
//  3. A fault rule fires on the call that it names, before or after the effect, and once.
//
// It refuses to be durable: what a Memory holds ends with the process. Every method may be called from any
// goroutine. Nothing that ships imports this package.
//
// Start reading at Memory, then at Run.
package queuetest
