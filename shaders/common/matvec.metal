#define MATVEC_SPAN (VECTOR_OUTPUTS / (VECTOR_THREADS / SIMD_WIDTH))
// A lane's sums in threadgroup memory, and one float more so that lanes don't meet in a bank.
#define MATVEC_STRIDE (VECTOR_TILE * MATVEC_SPAN + 1)
static_assert(VECTOR_TILE * MATVEC_SPAN <= SIMD_WIDTH, "a lane adds up one sum");

// y = x Wᵀ for few rows, float32 from end to end. One simdgroup for MATVEC_SPAN outputs and up to VECTOR_TILE rows: a
// lane takes every 32nd run of eight inputs, and decodes it once for all rows. A row's sums do not depend on how many
// rows there are: every row adds up by itself, in one order.
//
//   y [rows, outputs], x [rows, inputs], data, scales, biases: W [outputs, inputs] as stored
//   grid: x over outputs, y over rows
kernel void linear_matvec(constant LinearParams &p [[buffer(PARAMS)]],
                          device float *y [[buffer(LINEAR_Y)]],
                          device const float *x [[buffer(LINEAR_X)]],
                          device const uchar *data [[buffer(LINEAR_DATA)]],
                          device const uchar *scales [[buffer(LINEAR_SCALES)]],
                          device const uchar *biases [[buffer(LINEAR_BIASES)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float partial[VECTOR_THREADS * MATVEC_STRIDE];
  const uint first = group.x * VECTOR_OUTPUTS + sg * MATVEC_SPAN, row = group.y * VECTOR_TILE;
  if (first >= p.outputs) return; // the whole simdgroup
  const uint outputs = min(uint(MATVEC_SPAN), p.outputs - first), rows = min(uint(VECTOR_TILE), p.rows - row);

  StoredMatrix w;
  w.data = data;
  w.scales = scales;
  w.biases = biases;
  w.in = p.inputs;

  float sums[VECTOR_TILE][MATVEC_SPAN];
  for (int r = 0; r < VECTOR_TILE; r++)
    for (int o = 0; o < MATVEC_SPAN; o++) sums[r][o] = 0.0f;
  for (uint k = lane * 8; k < p.inputs; k += SIMD_WIDTH * 8) {
    float v[MATVEC_SPAN][8];
    for (uint o = 0; o < MATVEC_SPAN; o++) stored_eight(v[o], w, first + min(o, outputs - 1), k);
    for (uint r = 0; r < VECTOR_TILE; r++) {
      if (r >= rows) continue;
      device const float *in = x + ulong(row + r) * p.inputs + k;
      for (uint i = 0; i < 8; i++) {
        const float u = k + i < p.inputs ? in[i] : 0.0f;
        for (int o = 0; o < MATVEC_SPAN; o++) sums[r][o] = fma(v[o][i], u, sums[r][o]);
      }
    }
  }
  // Every lane leaves its sums; then lane i adds up sum i of all lanes, in their order.
  threadgroup float *mine = partial + sg * SIMD_WIDTH * MATVEC_STRIDE;
  for (int r = 0; r < VECTOR_TILE; r++)
    for (int o = 0; o < MATVEC_SPAN; o++) mine[lane * MATVEC_STRIDE + r * MATVEC_SPAN + o] = sums[r][o];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const uint r = lane / MATVEC_SPAN, o = lane % MATVEC_SPAN;
  if (r >= rows || o >= outputs) return;
  float total = 0.0f;
  for (uint i = 0; i < SIMD_WIDTH; i++) total += mine[i * MATVEC_STRIDE + lane];
  y[ulong(row + r) * p.outputs + first + o] = total;
}
