// Package synth writes random checkpoints of qwen4_exp, for tests and measurements where real weights cannot be had.
//
// It owns the presets, the names and shapes of a released checkpoint, and the values: activations stay near unit
// size, so that every path of the network moves the result; the text that comes out means nothing.
//
// What it promises:
//
//  1. The same preset, sizes and seed give the same bytes on every machine.
//  2. Memory is a few megabytes whatever the size of the model.
//  3. config.json is written last: a run that ends before leaves nothing that loads.
//
// It refuses to write into a folder that holds anything.
//
// Start reading at Write in synth.go, then tensors.go.
package synth
