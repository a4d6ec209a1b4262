// Package enginetest owns what is needed to test around an engine and to test an engine: Toy, a complete
// engine.Engine whose state is a rolling digest of its tokens, and Run, the laws that every engine.Engine
// keeps.
//
// What it promises:
//
//  1. Toy keeps every promise of package engine exactly, on every machine, in microseconds a token.
//  2. Each number that Toy reports follows from the state alone, so a state that was put back wrongly shows.
//  3. Run asks nothing that package engine does not promise.
//
// It refuses to know any real model. A Toy may be used from any goroutine, its sequences from one at a time;
// set its fields before the first use. Start reading at Toy for a stand-in and at Suite for the laws.
package enginetest
