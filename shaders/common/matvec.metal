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

// A tile of a product with at least VECTOR_LONG inputs: VECTOR_OUTPUTS outputs, whose inputs the simdgroups share.
template <int ROWS>
METAL_FUNC void matvec_long(MatvecPart m, uint first, device const float *x, uint row, uint rows, threadgroup float *partial, uint sg, uint lane) {
  const uint outputs = min(uint(VECTOR_OUTPUTS), m.outputs - first);
  float sums[ROWS * VECTOR_OUTPUTS];
  device const float *from = x + ulong(row) * m.w.in;
  if (stored_wide(m.w)) long_sums<ROWS, VECTOR_OUTPUTS, (VECTOR_THREADS / SIMD_WIDTH), true>(sums, m.w, first, outputs, from, rows, sg, lane);
  else long_sums<ROWS, VECTOR_OUTPUTS, (VECTOR_THREADS / SIMD_WIDTH), false>(sums, m.w, first, outputs, from, rows, sg, lane);
  if (lane == 0)
    for (int i = 0; i < ROWS * VECTOR_OUTPUTS; i++) partial[sg * ROWS * VECTOR_OUTPUTS + i] = sums[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint i = sg * SIMD_WIDTH + lane, r = i / VECTOR_OUTPUTS, o = i % VECTOR_OUTPUTS;
  if (r >= rows || o >= outputs) return;
  float total = 0.0f;
  for (uint s = 0; s < (VECTOR_THREADS / SIMD_WIDTH); s++) total += partial[s * ROWS * VECTOR_OUTPUTS + i];
  m.y[ulong(row + r) * m.outputs + first + o] = matvec_after(total, m.after, m.scale, m.gain);
}
static_assert(VECTOR_TILE * VECTOR_OUTPUTS <= VECTOR_THREADS, "a thread writes one output");

// A tile of a product with fewer: an output for every four threads. Up to ROWS rows.
template <int ROWS>
METAL_FUNC void matvec_short(MatvecPart m, uint tile, device const float *x, uint row, uint rows, threadgroup float4 *xs, threadgroup float *whole, uint index) {
  OwnOutputs own;
  own.apart = VECTOR_THREADS / 4;
  own.first = tile * own.apart + index / 4;
  own.end = m.outputs;
  float sums[ROWS];
  matvec_sums<ROWS, 1, 4, VECTOR_LONG, ROWS == 1 ? 5 : 2, false>(sums, m.w, own, x + ulong(row) * m.w.in, rows, xs, whole, false, index, VECTOR_THREADS);
  if (index % 4 != 0 || own.first >= m.outputs) return;
  for (int r = 0; r < ROWS; r++)
    if (uint(r) < rows) m.y[ulong(row + uint(r)) * m.outputs + own.first] = matvec_after(sums[r], m.after, m.scale, m.gain);
}

// y = x Wᵀ for few rows, float32 from end to end, with up to four matrices at once. One threadgroup for a tile and up to
// ROWS rows, one or VECTOR_TILE. A row's sums do not depend on how many rows there are, nor an output's on the matrices
// beside its own.
//
//   y [rows, outputs], x [rows, inputs], data, scales, biases: W [outputs, inputs] as stored
//   grid: x over the tiles of one matrix after the other, y over rows
template <int ROWS>
kernel void linear_matvec(constant MatvecParams &p [[buffer(PARAMS)]],
                          device float *y [[buffer(LINEAR_Y)]],
                          device const float *x [[buffer(LINEAR_X)]],
                          device const uchar *data [[buffer(LINEAR_DATA)]],
                          device const uchar *scales [[buffer(LINEAR_SCALES)]],
                          device const uchar *biases [[buffer(LINEAR_BIASES)]],
                          device float *y1 [[buffer(MATVEC_Y1)]],
                          device float *y2 [[buffer(MATVEC_Y2)]],
                          device float *y3 [[buffer(MATVEC_Y3)]],
                          device const uchar *data1 [[buffer(MATVEC_DATA1)]],
                          device const uchar *data2 [[buffer(MATVEC_DATA2)]],
                          device const uchar *data3 [[buffer(MATVEC_DATA3)]],
                          device const uchar *scales1 [[buffer(MATVEC_SCALES1)]],
                          device const uchar *scales2 [[buffer(MATVEC_SCALES2)]],
                          device const uchar *scales3 [[buffer(MATVEC_SCALES3)]],
                          device const uchar *biases1 [[buffer(MATVEC_BIASES1)]],
                          device const uchar *biases2 [[buffer(MATVEC_BIASES2)]],
                          device const uchar *biases3 [[buffer(MATVEC_BIASES3)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]],
                          uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 xs[ROWS * VECTOR_LONG / 4];
  threadgroup float whole[ROWS * VECTOR_LONG / 8];
  const bool many = p.inputs >= VECTOR_LONG;
  const uint across = many ? VECTOR_OUTPUTS : VECTOR_THREADS / 4;
  uint tile = group.x, which = 0;
  for (uint i = 0; i < 3; i++) {
    const uint tiles = (p.outputs[i] + across - 1) / across;
    if (which == i && tile >= tiles) {
      tile -= tiles;
      which = i + 1;
    }
  }
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
  const uint row = group.y * ROWS, rows = min(uint(ROWS), p.rows - row);
  if (many) matvec_long<ROWS>(m, tile * VECTOR_OUTPUTS, x, row, rows, whole, sg, lane);
  else matvec_short<ROWS>(m, tile, x, row, rows, xs, whole, index);
}
template [[host_name("linear_matvec_one")]] [[kernel]] decltype(linear_matvec<1>) linear_matvec<1>;
template [[host_name("linear_matvec_few")]] [[kernel]] decltype(linear_matvec<VECTOR_TILE>) linear_matvec<VECTOR_TILE>;
