// Package tracing draws the story of a job as spans of one OpenTelemetry trace: from the submit over the worker's
// parts to the requests to the store, across processes.
//
// What it promises:
//
//  1. A job's spans are in the trace of whoever submitted it: the trace travels in queue.Job.Trace as a W3C traceparent.
//  2. Drawing cannot fail the work: what cannot be exported is dropped, and said once at the end.
//  3. Nothing is global: two Tracers share nothing.
//
// It lies under cmd for the reason that package monitor does: it implements worker.Tracer with a library that nobody
// else shall need. Without a Tracer nothing is spent on it.
//
// Start reading at Tracer.
package tracing
