// Parameter blocks and buffer indices of the model's own blocks: DeltaNet, QSA and attention, MoE, PLE.
// The rules are those of params.h.
#pragma once

// Threads of a threadgroup that holds four simdgroups, each with an item of its own or all with one tile.
#define BLOCK_THREADS 128
#define BLOCK_SIMDS 4

// Unit norms of heads: deltanet_unit_heads.
struct UnitHeadsParams {
  uint32_t rows;   // T
  uint32_t cols;   // of a row
  uint32_t from;   // first column of head 0
  uint32_t heads;
  uint32_t stride; // columns from one head to the next
  uint32_t dim;    // of a head
  float scale;
};
#define UNIT_HEADS_X 1

// Decay and write strength: deltanet_gates.
struct DeltaGatesParams {
  uint32_t rows;  // T
  uint32_t heads; // Hv
};
#define GATES_DECAY 1   // [T, Hv]
#define GATES_BETA 2    // [T, Hv]
#define GATES_A 3       // [T, Hv]
#define GATES_B 4       // [T, Hv]
#define GATES_RATE 5    // [Hv], exp(A_log)
#define GATES_DT_BIAS 6 // [Hv]

// Columns of a state that a threadgroup of the scan carries, and rows that it stages at once.
#define SCAN_COLUMNS 32
#define SCAN_ROWS 8

// The scan over the state: deltanet_scan_*.
struct DeltaScanParams {
  uint32_t rows; // T
  uint32_t hk;
  uint32_t hv;
  uint32_t dk;
  uint32_t dv;
};
#define SCAN_O 1    // [T, Hv*Dv]
#define SCAN_QKV 2  // [T, 2*Hk*Dk + Hv*Dv]
#define SCAN_DECAY 3
#define SCAN_BETA 4
#define SCAN_S 5    // [Hv, Dk, Dv]

// Everything between the projections for few rows: deltanet_step_*.
#define STEP_ROWS 4      // rows that a threadgroup stages at once
#define STEP_COLUMNS 128 // columns of a head's state at most, four threads each
struct DeltaStepParams {
  uint32_t rows; // T
  uint32_t hk;
  uint32_t hv;
  uint32_t dk;
  uint32_t dv;
  uint32_t taps; // of the convolution
  uint32_t silu; // 1: silu(z), 0: sigmoid(z)
  float scale;   // of queries
  float eps;
};
#define STEP_O 1         // [T, Hv*Dv]
#define STEP_QKV 2       // [T, 2*Hk*Dk + Hv*Dv]
#define STEP_RAW 3       // as STEP_QKV, before the convolution
#define STEP_TAIL 4      // [taps-1, C], oldest first
#define STEP_TAIL_NEXT 5 // what it becomes
#define STEP_CONV 6      // [C, taps]
#define STEP_Z 7         // [T, Hv*Dv]
#define STEP_A 8         // [T, Hv], then the decay
#define STEP_B 9         // [T, Hv], then beta
#define STEP_RATE 10     // [Hv], exp(A_log)
#define STEP_DT_BIAS 11  // [Hv]
#define STEP_NORM 12     // [Dv]
#define STEP_S 13        // [Hv, Dk, Dv]
#define STEP_S_NEXT 14   // what it becomes

// Norm and gate of the scan's output: deltanet_gated_norm.
struct GatedNormParams {
  uint32_t heads; // of all rows
  uint32_t dv;
  float eps;
  uint32_t silu;  // 1: silu(z), 0: sigmoid(z)
};
#define GATED_NORM_O 1 // [heads, dv]
#define GATED_NORM_Z 2
#define GATED_NORM_W 3 // [dv]

// Means of blocks of raw keys: qsa_mean_blocks.
struct MeanBlocksParams {
  uint32_t blocks; // to compute
  uint32_t dim;
  uint32_t first;  // block
  uint32_t ratio;  // rows of a block
};
#define MEAN_BLOCKS_Y 1   // [blocks, dim]
#define MEAN_BLOCKS_RAW 2 // [*, dim]

// Rows and blocks of one tile of scores.
#define SCORE_TILE 32

// Scores of blocks: qsa_score_blocks.
struct ScoreBlocksParams {
  uint32_t rows;        // to score
  uint32_t first_row;   // of them in the chunk
  uint32_t blocks;      // that the last row has
  uint32_t stride;      // floats from one row of scores to the next
  uint32_t cols;        // of a row of queries
  uint32_t from;        // first column of head 0
  uint32_t heads;
  uint32_t head_stride;
  uint32_t dim;
  float scale;          // 1/sqrt(dim)
};
#define SCORE_OUT 1 // [rows up to whole tiles, stride]
#define SCORE_IQ 2  // [T, cols]
#define SCORE_BK 3  // [*, dim]

// The choice of blocks: qsa_select_blocks.
struct SelectBlocksParams {
  uint32_t first_row; // of those scored
  uint32_t pos;       // of row 0 of the chunk
  uint32_t ratio;
  uint32_t budget;    // blocks
  uint32_t stride;    // floats from one row of scores to the next
  uint32_t words;     // of a row of the mask
};
#define SELECT_LIST 1  // [T, budget]
#define SELECT_MASK 2  // [T, words]
#define SELECT_SCORE 3 // [rows, stride]

// Query rows of a threadgroup of attention: heads of one row where keys are gathered, pairs of row and head where not.
#define GATHER_ROWS 16
#define DENSE_ROWS 32

// How a cache holds its rows, the same numbers as engine/ops gives them.
#define ROWS_F32 0 // float32 values
#define ROWS_F16 1 // IEEE halves
#define ROWS_Q8 2  // codes of 8 bits, and a half for every 32 dims of a head
#define ROW_GROUP 32

// Rows on their way to a cache that rounds: codec_store_half, codec_store_codes.
struct StoreRowsParams {
  uint32_t rows;  // T
  uint32_t row;   // of the cache, the first
  uint32_t heads;
  uint32_t dim;   // of a head
};
#define STORE_X 1      // [T, heads*dim]
#define STORE_DATA 2   // [*, heads*dim]
#define STORE_SCALES 3 // [*, heads, (dim+31)/32]
#define STORE_LOSS 4   // [*, 2]

// A recurrent state to bfloat16: codec_round_state.
struct RoundStateParams {
  uint32_t cols;
};
#define ROUND_S 1    // [rows, cols]
#define ROUND_LOSS 2 // [rows, 2]

// Scores of blocks for few rows: qsa_score_few, with the block and the buffers of qsa_score_blocks. A threadgroup takes
// FEW_BLOCKS blocks of a row, whose queries have at most FEW_QUERY floats.
#define FEW_BLOCKS 16
#define FEW_QUERY 2048

// Attention by few rows: qsa_attend_few_* for every FEW_KEYS keys that a row sees, then qsa_attend_join. A threadgroup
// of the first has FEW_HEADS query heads of a key head.
#define FEW_KEYS 64
#define FEW_HEADS 4

// Attention: qsa_attend_*.
struct AttendParams {
  uint32_t rows;      // to compute
  uint32_t first_row; // of them in the chunk
  uint32_t pos;       // of row 0 of the chunk
  uint32_t ratio;
  uint32_t budget;    // blocks
  uint32_t words;     // of a row of the mask
  uint32_t hq;
  uint32_t hkv;
  uint32_t hd;
  uint32_t format;    // of K and V, a ROWS_*
  uint32_t parts;     // of the keys, in ATTEND_PART
  float scale;        // 1/sqrt(hd)
};
#define ATTEND_O 1    // [T, Hq*Hd]
#define ATTEND_QG 2   // [T, Hq*2*Hd]
#define ATTEND_K 3    // [*, Hkv*Hd] in the format
#define ATTEND_V 4
#define ATTEND_LIST 5 // [T, budget]
#define ATTEND_MASK 6 // [T, words]
#define ATTEND_K_SCALES 7 // [*, Hkv, (Hd+31)/32] with ROWS_Q8
#define ATTEND_V_SCALES 8
#define ATTEND_PART 9 // [T, Hq, parts, Hd+2]: sums of values, then the top score and the sum of the weights

// The most experts of a layer, and the most that a row goes to.
#define ROUTE_EXPERTS 1024
#define ROUTE_SLOTS 32

// The choice of experts: moe_route.
struct RouteParams {
  uint32_t rows;    // T
  uint32_t experts; // E
  uint32_t slots;   // k
  uint32_t renorm;  // 1: the k weights sum to 1
};
#define ROUTE_EXPERT 1 // [T, k]
#define ROUTE_WEIGHT 2 // [T, k]
#define ROUTE_LOGITS 3 // [T, E]

// Products with the experts of a group: moe_gemm_*. A pair is a row of the chunk and one of its slots; pairs stand
// grouped by expert, and a tile is at most TILE_ROWS of one expert.
struct ExpertParams {
  uint32_t inputs;  // In
  uint32_t from;    // first output to compute
  uint32_t to;      // end of the outputs to compute
  uint32_t gather;  // 1: x is rows of the chunk, taken through the list of rows; 0: x has a row for every pair
};
#define EXPERT_Y 1      // [pairs, to-from]
#define EXPERT_X 2      // [T, In] or [pairs, In]
#define EXPERT_ROWS 3   // [pairs], row of a pair
#define EXPERT_TILES 4  // [tiles, 3]: expert of the group, first pair, pairs
#define EXPERT_TABLE 5  // [experts of the group, 3]: offsets in bytes of data, scales, biases
#define EXPERT_DATA 6   // what the offsets count from
#define EXPERT_SCALES 7
#define EXPERT_BIASES 8

// The same for few rows, a pair after the other: moe_few, moe_few_inside, moe_few_sum.
struct ExpertFewParams {
  uint32_t inputs;  // In
  uint32_t from;    // first output to compute
  uint32_t outputs; // to compute
  uint32_t experts; // of the table; a pair of another has no numbers
  uint32_t slots;   // k; pair i is slot i%k of row i/k where nothing is listed
  uint32_t listed;  // 1: rows of pairs are listed; 0: they go by their slots
  uint32_t pairs;   // with the experts of the table; those behind them are the rows, each with the shared expert
  uint32_t shared;  // moe_few_sum: 1: the shared expert is added
  uint32_t onto;    // moe_few_sum: 1: to what y holds
};
#define EXPERT_IDS 4     // [pairs], expert of a pair
#define EXPERT_TABLE_UP 9 // moe_few_inside: the second matrix
#define EXPERT_DATA_UP 10
#define EXPERT_SCALES_UP 11
#define EXPERT_BIASES_UP 12
#define EXPERT_DATA_SHARED 13 // moe_few_inside: the shared expert's matrices
#define EXPERT_SCALES_SHARED 14
#define EXPERT_BIASES_SHARED 15
#define EXPERT_DATA_SHARED_UP 16
#define EXPERT_SCALES_SHARED_UP 17
#define EXPERT_BIASES_SHARED_UP 18
#define EXPERT_WEIGHT 9  // moe_few_sum: [T, k]
#define EXPERT_SCORE 10  // moe_few_sum: [T], of the shared expert, whose matrix is as above
#define FEW_ACROSS 4     // outputs of an expert that lanes of moe_few have at once
#define FEW_PAIRS 2      // outputs that those of moe_few_inside have of either matrix
#define FEW_DOWN 2       // and those of moe_few_sum
#define FEW_SIMDS 6     // simdgroups of a threadgroup of moe_few_sum

// The activation of the pairs: moe_activate.
struct ActivateParams {
  uint32_t count; // values
};
#define ACTIVATE_GATE 1 // [pairs, Inner]
#define ACTIVATE_UP 2

// The sum over slots: moe_sum.
struct SumParams {
  uint32_t rows;  // T
  uint32_t cols;  // of y
  uint32_t slots; // k
  uint32_t from;  // first column of y
  uint32_t width; // columns of x
};
#define SUM_Y 1      // [T, cols]
#define SUM_X 2      // [pairs, width]
#define SUM_PAIRS 3  // [T, k], pair of a slot
#define SUM_WEIGHT 4 // [T, k]

// Rows of the n-gram table: ple_gather.
struct GatherParams {
  uint32_t rows; // gathered
  uint32_t dim;
};
#define GATHER_E 1      // [rows, dim]
#define GATHER_DATA 2   // rows as stored, one after another
#define GATHER_SCALES 3
#define GATHER_BIASES 4

// The gate of the n-gram embedding: ple_gate.
struct PLEGateParams {
  uint32_t items;   // T*n
  uint32_t streams; // n
  uint32_t width;   // h
  float scale;      // 1/sqrt(h)
};
#define PLE_GATE_V 1     // [T, n*h]
#define PLE_GATE_KEY 2   // [T, n*h]
#define PLE_GATE_QUERY 3 // [T, n*h]
#define PLE_GATE_VAL 4   // [T, h]
