// One of the matrices of a product with few rows, and where its outputs go.
struct MatvecPart {
  StoredMatrix w;
  device float *y;
  uint outputs, after;
  float scale, gain;
};

// What is done to an output before it is written.
METAL_FUNC float matvec_after(float v, uint after, float scale, float gain) {
  if (after == AFTER_SILU) return silu(v * scale);
  if (after == AFTER_SIGMOID) return gain * sigmoid(v * scale);
  return v;
}

// How many simdgroups share an output, and how many outputs a thread has: an output's inputs are spread over four where they
// are many, or where the outputs are few. The host cuts the outputs by the same rule.
METAL_FUNC uint matvec_parts(uint inputs, uint outputs) {
  if (inputs < VECTOR_LONG) return 1;
  return inputs >= VECTOR_SPLIT_INPUTS || (inputs >= VECTOR_SPLIT_INPUTS / 2 && outputs <= VECTOR_SPLIT_OUTPUTS) ? VECTOR_SIMDS : 1;
}
METAL_FUNC uint matvec_each(uint inputs, uint outputs, uint parts) {
  if (inputs < VECTOR_LONG) return 1;
  return outputs >= (parts > 1 ? 2 * VECTOR_SPLIT_OUTPUTS : 6 * VECTOR_SPLIT_OUTPUTS) ? VECTOR_MOST : VECTOR_LEAST;
}

// Says which rows of its matrix a simdgroup will read.
METAL_FUNC void matvec_ahead(MatvecPart m, uint tile, uint sg, uint lane) {
  const uint parts = matvec_parts(m.w.in, m.outputs), count = matvec_each(m.w.in, m.outputs, parts) * (SIMD_WIDTH / matvec_lanes(m.w.in));
  const uint first = (parts > 1 ? tile : tile * VECTOR_SIMDS + sg) * count;
  stored_ahead(m.w, first, first < m.outputs && (parts == 1 || sg == 0) ? min(count, m.outputs - first) : 0, lane);
}

// Writes the outputs of a thread, each by the first of the lanes that share it.
template <int ROWS, int EACH>
METAL_FUNC void matvec_write(MatvecPart m, thread const float *sums, OwnOutputs own, uint row, uint rows) {
  for (int o = 0; o < EACH; o++) {
    const uint output = own.first + uint(o) * own.apart;
    for (uint r = 0; r < ROWS; r++)
      if (r < rows && output < own.end) m.y[ulong(row + r) * m.outputs + output] = matvec_after(sums[r * EACH + uint(o)], m.after, m.scale, m.gain);
  }
}

// A tile of a product: a thread's EACH outputs, from the first of its simdgroup on. Where simdgroups share outputs, partial
// [VECTOR_SIMDS][ROWS * EACH] takes their sums.
template <int ROWS, int EACH>
METAL_FUNC void matvec_tile(MatvecPart m, uint first, uint parts, device const float *x, uint row, uint rows, threadgroup float *partial, uint sg, uint lane) {
  const uint lanes = matvec_lanes(m.w.in);
  OwnOutputs own;
  own.apart = SIMD_WIDTH / lanes;
  own.first = first + lane / lanes;
  own.end = m.outputs;
  float sums[ROWS * EACH];
  matvec_sums<ROWS, EACH>(sums, m.w, own, x + ulong(row) * m.w.in, rows, lanes, parts > 1 ? sg : 0, parts, lane);
  if (parts == 1) {
    if (lane % lanes == 0) matvec_write<ROWS, EACH>(m, sums, own, row, rows);
    return;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup); // what was there is read
  if (lane == 0)
    for (int i = 0; i < ROWS * EACH; i++) partial[sg * ROWS * EACH + i] = sums[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint i = lane, r = i / EACH, o = i % EACH; // one thread an output
  if (sg != 0 || r >= rows || first + o >= m.outputs) return;
  float total = 0.0f;
  for (uint s = 0; s < VECTOR_SIMDS; s++) total += partial[s * ROWS * EACH + i];
  m.y[ulong(row + r) * m.outputs + first + o] = matvec_after(total, m.after, m.scale, m.gain);
}
static_assert(VECTOR_TILE * VECTOR_LEAST <= SIMD_WIDTH && VECTOR_MOST <= SIMD_WIDTH, "a lane writes one output");

// All outputs of a threadgroup's tile. Several rows at once take few outputs at a time: their sums need registers.
template <int ROWS>
METAL_FUNC void matvec_all(MatvecPart m, uint tile, device const float *x, uint row, uint rows, threadgroup float *partial, uint sg, uint lane) {
  const uint parts = matvec_parts(m.w.in, m.outputs), each = matvec_each(m.w.in, m.outputs, parts), across = SIMD_WIDTH / matvec_lanes(m.w.in);
  const uint first = (parts > 1 ? tile : tile * VECTOR_SIMDS + sg) * each * across;
  if (first >= m.outputs) return; // the whole simdgroup, and the others with it where they share outputs
  if (each == 1) matvec_tile<ROWS, 1>(m, first, parts, x, row, rows, partial, sg, lane);
  else if (ROWS == 1 && each == VECTOR_MOST) matvec_tile<1, VECTOR_MOST>(m, first, parts, x, row, rows, partial, sg, lane);
  else
    for (uint o = 0; o < each && first + o < m.outputs; o += VECTOR_LEAST) matvec_tile<ROWS, VECTOR_LEAST>(m, first + o, parts, x, row, rows, partial, sg, lane);
}
static_assert(VECTOR_MOST % VECTOR_LEAST == 0, "many outputs are whole runs of few");

// The matrix that tile number `tile` of all is one of, and which of its tiles.
METAL_FUNC MatvecPart matvec_part(constant MatvecParams &p, device float *y, device const float *x,
                                  device const uchar *data, device const uchar *scales, device const uchar *biases,
                                  device float *y1, device float *y2, device float *y3, device const uchar *data1,
                                  device const uchar *data2, device const uchar *data3, device const uchar *scales1,
                                  device const uchar *scales2, device const uchar *scales3, device const uchar *biases1,
                                  device const uchar *biases2, device const uchar *biases3, thread uint &tile) {
  const uint which = (tile >= p.ends[0] ? 1u : 0u) + (tile >= p.ends[1] ? 1u : 0u) + (tile >= p.ends[2] ? 1u : 0u);
  tile -= (which == 0 ? 0 : which == 1 ? p.ends[0] : which == 2 ? p.ends[1] : p.ends[2]);
  MatvecPart m;
  m.w.in = p.inputs;
  m.w.data = which == 0 ? data : which == 1 ? data1 : which == 2 ? data2 : data3;
  m.w.scales = which == 0 ? scales : which == 1 ? scales1 : which == 2 ? scales2 : scales3;
  m.w.biases = which == 0 ? biases : which == 1 ? biases1 : which == 2 ? biases2 : biases3;
  m.y = which == 0 ? y : which == 1 ? y1 : which == 2 ? y2 : y3;
  m.outputs = which == 0 ? p.outputs[0] : which == 1 ? p.outputs[1] : which == 2 ? p.outputs[2] : p.outputs[3];
  m.after = which == 0 ? p.after[0] : which == 1 ? p.after[1] : which == 2 ? p.after[2] : p.after[3];
  m.scale = which == 0 ? p.scale[0] : which == 1 ? p.scale[1] : which == 2 ? p.scale[2] : p.scale[3];
  m.gain = which == 0 ? p.gain[0] : which == 1 ? p.gain[1] : which == 2 ? p.gain[2] : p.gain[3];
  return m;
}

// What the kernels for few rows take.
#define MATVEC_PARAMETERS \
  constant MatvecParams &p [[buffer(PARAMS)]], \
  device float *y [[buffer(LINEAR_Y)]], \
  device const float *x [[buffer(LINEAR_X)]], \
  device const uchar *data [[buffer(LINEAR_DATA)]], \
  device const uchar *scales [[buffer(LINEAR_SCALES)]], \
  device const uchar *biases [[buffer(LINEAR_BIASES)]], \
  device float *y1 [[buffer(MATVEC_Y1)]], \
  device float *y2 [[buffer(MATVEC_Y2)]], \
  device float *y3 [[buffer(MATVEC_Y3)]], \
  device const uchar *data1 [[buffer(MATVEC_DATA1)]], \
  device const uchar *data2 [[buffer(MATVEC_DATA2)]], \
  device const uchar *data3 [[buffer(MATVEC_DATA3)]], \
  device const uchar *scales1 [[buffer(MATVEC_SCALES1)]], \
  device const uchar *scales2 [[buffer(MATVEC_SCALES2)]], \
  device const uchar *scales3 [[buffer(MATVEC_SCALES3)]], \
  device const uchar *biases1 [[buffer(MATVEC_BIASES1)]], \
  device const uchar *biases2 [[buffer(MATVEC_BIASES2)]], \
  device const uchar *biases3 [[buffer(MATVEC_BIASES3)]], \
  uint3 group [[threadgroup_position_in_grid]], \
  uint sg [[simdgroup_index_in_threadgroup]], \
  uint lane [[thread_index_in_simdgroup]]
#define MATVEC_ARGUMENTS p, y, x, data, scales, biases, y1, y2, y3, data1, data2, data3, scales1, scales2, scales3, biases1, biases2, biases3
// A tile of up to ROWS rows.
template <int ROWS>
METAL_FUNC void matvec_rows(constant MatvecParams &p, MatvecPart m, uint tile, device const float *x, uint group, threadgroup float *partial, uint sg, uint lane) {
  const uint row = group * ROWS;
  matvec_all<ROWS>(m, tile, x, row, min(uint(ROWS), p.rows - row), partial, sg, lane);
}

// y = x Wᵀ for few rows, float32 from end to end, with up to four matrices at once. One threadgroup for a tile
// and one row. A row's sums do not depend on how many rows there are, nor an output's on the matrices
// beside its own.
//
//   y [rows, outputs], x [rows, inputs], data, scales, biases: W [outputs, inputs] as stored
//   grid: x over the tiles of one matrix after the other, y over rows
[[max_total_threads_per_threadgroup(128)]] kernel void linear_matvec_one(MATVEC_PARAMETERS) {
  threadgroup float partial[VECTOR_SIMDS * VECTOR_MOST];
  uint tile = group.x;
  const MatvecPart m = matvec_part(MATVEC_ARGUMENTS, tile);
  matvec_ahead(m, tile, sg, lane);
  inputs_ready(0);
  matvec_rows<1>(p, m, tile, x, group.y, partial, sg, lane);
}

// The same with up to VECTOR_TILE rows a threadgroup.
kernel void linear_matvec_few(MATVEC_PARAMETERS) {
  threadgroup float partial[VECTOR_SIMDS * VECTOR_TILE * VECTOR_MOST];
  uint tile = group.x;
  const MatvecPart m = matvec_part(MATVEC_ARGUMENTS, tile);
  matvec_ahead(m, tile, sg, lane);
  inputs_ready(0);
  matvec_rows<VECTOR_TILE>(p, m, tile, x, group.y, partial, sg, lane);
}
static_assert(VECTOR_THREADS <= 128, "a threadgroup is bounded");
