// Package monitor says how a lector process is doing: figures for Prometheus, and whether it is alive and ready.
//
// It owns every metric that lector has (names in names.go, one place), the HTTP server that shows them, the watchdog
// of a queue that holds jobs nobody gets, and the checks of readiness. It is told what happens through the contracts:
// a Metrics is a worker.Meter, and wraps a cache.Store.
//
// What it promises:
//
//  1. Watching costs the work nothing that can be measured and can never fail it: a Metrics returns at once, and an
//     error of a probe ends in a figure.
//  2. A counter counts what the receipts say: the tokens, bytes and seconds of the attempts that a process has
//     finished add up to their receipts.
//  3. Two Metrics share nothing: there is no global registry.
//
// It lies under cmd because it is an implementation that is chosen: the worker knows parents alone, and the parents
// force no library on anybody.
//
// What it refuses: labels whose values grow without bound. No job, document or tenant is one.
//
// Start reading at Metrics, then Server.
package monitor
