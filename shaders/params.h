// Parameter blocks, buffer indices and function constants of the common kernels: the only place that declares them.
// A kernel's block is bound at index 0, its buffers from 1 on. Sizes count elements, not bytes, unless a name says so.
#pragma once

#define PARAMS 0 // the buffer index of every kernel's parameter block

// Function constants that say how a stored matrix is read.

#define CONSTANT_FORMAT 0 // how the matrix is stored, a FORMAT_*
#define CONSTANT_BITS 1   // affine: bits of a code
#define CONSTANT_GROUP 2  // affine: inputs that share a scale and a bias
#define CONSTANT_SIDE 3   // affine: the FORMAT_* of scales and biases

// Storage formats, the same numbers as engine/ops gives them.

#define FORMAT_F32 0    // float32 values
#define FORMAT_BF16 1   // the upper halves of float32 values
#define FORMAT_F16 2    // IEEE halves
#define FORMAT_AFFINE 3 // codes with scales and biases

#define VECTOR_ROWS 16    // the most rows whose Linear goes through the matrix-vector kernel; more go through tiles
#define VECTOR_TILE 4     // rows that one of its threadgroups carries at a time
#define VECTOR_THREADS 128 // its threads
#define VECTOR_SIMDS 4     // and simdgroups
#define VECTOR_LONG 1024   // inputs from which on all lanes of a simdgroup share an output
#define VECTOR_LANES 8     // that share one of fewer inputs
#define VECTOR_SPLIT_INPUTS 4096 // from which on simdgroups share an output; half as many where the outputs are few
#define VECTOR_SPLIT_OUTPUTS 1024 // that are few
#define VECTOR_MOST 4      // outputs of a lane in a large matrix
#define VECTOR_LEAST 2     // and in a small one

// What is done to the outputs of a product with few rows before they are written.

#define AFTER_NOTHING 0
#define AFTER_SILU 1    // silu(v * scale)
#define AFTER_SIGMOID 2 // gain * sigmoid(v * scale)

#define TILE_ROWS 32      // rows of one tile of a GEMM
#define TILE_OUTPUTS 128  // its outputs
#define TILE_INPUTS 32    // inputs that it stages at a time
#define TILE_THREADS 128  // its threads

// A product with a stored matrix: linear_gemm_*.
struct LinearParams {
  uint32_t rows;    // T
  uint32_t inputs;  // In
  uint32_t outputs; // Out
};
#define LINEAR_Y 1      // [T, Out]
#define LINEAR_X 2      // [T, In]
#define LINEAR_DATA 3   // [Out, In] or its codes
#define LINEAR_SCALES 4 // [Out, In/group]; for plain formats the data again
#define LINEAR_BIASES 5 // as LINEAR_SCALES

// Products of the same few rows with up to four matrices that are stored alike: linear_matvec_*. Matrices that are not
// there have no outputs, and the first one's buffers.
struct MatvecParams {
  uint32_t rows;       // T
  uint32_t inputs;     // In
  uint32_t outputs[4]; // Out of each
  uint32_t ends[3];    // tiles of the first matrix, of the first two, and of the first three; no tile where they are fewer
  uint32_t after[4];   // an AFTER_*
  float scale[4];
  float gain[4];
};
// LINEAR_Y, LINEAR_X, LINEAR_DATA, LINEAR_SCALES, LINEAR_BIASES are the first one's; the others' follow.
#define MATVEC_Y1 6 // of the second matrix
#define MATVEC_Y2 7
#define MATVEC_Y3 8
#define MATVEC_DATA1 9
#define MATVEC_DATA2 10
#define MATVEC_DATA3 11
#define MATVEC_SCALES1 12
#define MATVEC_SCALES2 13
#define MATVEC_SCALES3 14
#define MATVEC_BIASES1 15
#define MATVEC_BIASES2 16
#define MATVEC_BIASES3 17

// The largest value of a row, in pieces of PICK_COLUMNS columns: dense_pick.
#define PICK_COLUMNS 2048
#define PICK_THREADS 256
struct PickParams {
  uint32_t cols;    // of a row
  uint32_t choices; // the first columns, of which one is picked
  uint32_t pieces;  // of a row
};
#define PICK_VALUE 1  // [T, pieces] the largest of a piece
#define PICK_COLUMN 2 // [T, pieces] its column, or a column that is not finite from PICK_BAD on
#define PICK_Y 3      // [T, cols]
#define PICK_BAD 1073741824 // past every column

// Rows of a stored matrix by number: dense_embed.
struct EmbedParams {
  uint32_t rows; // T
  uint32_t cols; // In
};
#define EMBED_Y 1      // [T, In]
#define EMBED_IDS 2    // [T]
#define EMBED_DATA 3   // as LINEAR_DATA
#define EMBED_SCALES 4 // as LINEAR_SCALES
#define EMBED_BIASES 5 // as LINEAR_SCALES

// Norms over runs of columns: dense_norm_groups, dense_norm_heads. Run i of row r starts at
// r*row_floats + from + i*stride; its scale at (i*scale_step) mod scale_floats, used over and over.
struct NormParams {
  uint32_t row_floats;   // from one row to the next
  uint32_t from;
  uint32_t count;        // runs of a row
  uint32_t stride;
  uint32_t width;        // floats of a run
  uint32_t runs;         // of all rows
  uint32_t scale_floats;
  uint32_t scale_step;
  float eps;
};
#define NORM_Y 1     // rows of row_floats; may be x
#define NORM_X 2     // rows of row_floats
#define NORM_SCALE 3 // [scale_floats]

// Element by element: dense_silu, dense_sigmoid, dense_swiglu, dense_add, dense_add_gated.
struct ElementParams {
  uint32_t count; // elements
  uint32_t cols;  // of a row
  float scale;
  float gain;
};
#define ELEMENT_Y 1    // [count], read and written
#define ELEMENT_X 2    // [count]
#define ELEMENT_GATE 3 // [count], or one for each row

// A rectangle of floats: dense_copy. dst and src are bound at its first element.
struct CopyParams {
  uint32_t cols;
  uint32_t dst_floats; // from one row to the next
  uint32_t src_floats;
};
#define COPY_DST 1 // rows of dst_floats
#define COPY_SRC 2 // rows of src_floats

// Rotary embedding in place: dense_rope. Pair j of head i of row r: elements at r*row_floats + from + i*stride + j
// and half further.
struct RopeParams {
  uint32_t row_floats;
  uint32_t from;
  uint32_t stride;
  uint32_t half_rot; // pairs of a head
  uint32_t heads;
};
#define ROPE_X 1     // rows of row_floats
#define ROPE_TABLE 2 // [T, 2*half_rot]: cosines, then sines

// Causal depthwise convolution and its tail: dense_conv, dense_shift_tail.
struct ConvParams {
  uint32_t rows;      // T
  uint32_t cols;      // C
  uint32_t taps;      // K
  uint32_t dilation;
  uint32_t tail_rows; // (K-1)*dilation
  uint32_t activate;  // 1: silu
};
#define CONV_Y 1      // [T, C]
#define CONV_X 2      // [T, C]
#define CONV_TAIL 3   // [tail_rows, C], oldest first
#define CONV_WEIGHT 4 // [C, K]

// Streams of the wide residual: hyper_replicate, hyper_mix, hyper_inject, hyper_add.
struct StreamParams {
  uint32_t streams; // n
  uint32_t width;   // h
};
#define STREAM_WIDE 1 // [T, n*h]
#define STREAM_X 2    // [T, h]
#define STREAM_GAIN 3 // [T, n], or u [T, n*h] of hyper_mix

// The gated read of streams by few rows: hyper_read_norm, then linear_matvec_*, then hyper_read_mix.
struct StreamReadParams {
  uint32_t streams; // n
  uint32_t width;   // h
  uint32_t low;     // r
  uint32_t inject;  // 1: there is something to inject
  float eps;
};
#define READ_WIDE 1  // [T, n*h]
#define READ_Z 2     // [T, n*h], its norm
#define READ_Y 3     // [T, h]
#define READ_GAIN 4  // [T, n]
#define READ_SCALE 5 // [n*h]
#define READ_X 1     // [T, h]
#define READ_LOW 3   // [T, r]
#define READ_DATA 4  // [n*h, r] as stored
#define READ_SCALES 5
#define READ_BIASES 6
#define READ_STREAMS 16 // n at most
#define READ_EACH 2     // columns that lanes of hyper_read_mix have at once
