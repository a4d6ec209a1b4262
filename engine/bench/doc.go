// Package bench measures an engine: how fast it reads and writes, and what share that is of what the machine can do.
//
// It owns the counting (how many operations a chunk is, how many bytes a decode step must read), the ceilings that
// results are held against, the runs, and the report with its comparison and its plot.
//
// What it promises:
//
//  1. A count depends on the model's shapes, the position and the rows alone, and is the same whichever way an engine
//     computes: work that an engine does beside it earns nothing.
//  2. Ceilings are measured in the process of the results, with the backend's own kernels and as many workers.
//  3. Settings take turns, so that a machine that slows down slows all of them. Every sample is in the report as it was
//     taken, failed and slow ones included; what tables print is the median.
//  4. Tokens come from a seed or from the caller, and are the same in every repeat.
//
// It refuses settings that a model cannot run, by an error before the first sample. It knows no flags, no store and no
// other engine; cmd brings those together. A run uses one goroutine and lets the backend use the cores.
//
// Start reading at Runner, then FLOP and Reads.
package bench
