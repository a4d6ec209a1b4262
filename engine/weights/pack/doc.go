// Package pack turns a checkpoint into a packed store: a folder that an engine runs from within a stated memory
// budget, with each expert as one contiguous record. The byte tables are in format.md; package weights reads them.
//
// It owns the layout of a new store, quantisation by MLX's affine rule, the journal that lets an interrupted run go
// on, and the check of a whole store or checkpoint.
//
// What it promises:
//
//  1. The manifest is written last, after everything else is on disk. A run that ends before leaves nothing that
//     loads, whenever it ends.
//  2. Run again, it goes on: sections that the journal names are read back and compared before they are reused.
//     A source or settings that changed start it over. The files come out the same to the byte either way.
//  3. What is quantised already, or kept, is copied bit for bit; with "keep" the store has its source's digest.
//     The rest follows MLX's rule, with the same bits on every machine.
//  4. Memory is a few buffers of one record or a few megabytes each, whatever the size of the model.
//  5. It never overwrites a complete store or a file that it did not write.
//
// It refuses to pack a packed store and values that are not finite where they are to be quantised.
//
// Run uses all cores; its callbacks come from one goroutine. Start reading at Run in pack.go, then plan.go, which
// decides where everything goes, and pipeline.go, which fills it.
package pack
