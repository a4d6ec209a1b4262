// Package weights reads checkpoints of qwen4_exp: the released safetensors (bf16, experts fused or one by
// one), MLX affine conversions of them (2, 3, 4, 6 and 8 bits), and packed stores, which package pack makes of either.
//
// It owns the config with every default that the released file leaves out, the names and layouts of stored
// tensors, the conventions in which converters differ, the constants of the n-gram hash, and the digests of
// config and weights that a state's identity is made of.
//
// What it promises:
//
//  1. Open checks the whole checkpoint: every tensor that the config calls for is there, of the right shape
//     and in a type we read. An error names the file, the tensor, what was found and what was expected.
//  2. Weights stay as stored. A Tensor is a view of the mapped file; nothing is copied or expanded, but for
//     short vectors (norms, gates, convolutions), which come as float32.
//  3. A convention is read off the stored values or shapes for each class of tensors and reported in
//     Findings. What the values do not decide is an error, never a guess.
//  4. The digests depend on content alone: not on paths, file names, shards or the order of tensors. Packing in the
//     source's precision keeps them.
//  5. Of a packed store, Open checks manifest, lengths and the small files; Digest checks the dense part. Records and
//     rows are checked by whoever reads them, with VerifyRecord and NgramRow: damage is an error that names the
//     section. Views of mapped records are checked by nobody.
//
// It refuses other model types, quantisations other than MLX affine, and damaged files; it ignores the vision
// tower and says so.
//
// A Checkpoint is immutable and may be used from any goroutine until Close, after which every view of it is
// invalid. A mapped file must not be cut short while it is open: the system would end the process.
//
// Start reading at Open in checkpoint.go, then verify.go, which lists every tensor of the network; at Packed in
// packed.go for the store.
package weights
