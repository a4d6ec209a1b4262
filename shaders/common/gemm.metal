// y = x Wᵀ for many rows. One threadgroup of TILE_THREADS for each tile of TILE_ROWS rows and TILE_OUTPUTS outputs; see
// tile.metal. A row meets no other row: each is a row of the left operand, and its sums are its own.
//
//   y [rows, outputs], x [rows, inputs], data, scales, biases: W [outputs, inputs] as stored
//   grid: x over outputs, y over rows
template <typename T>
kernel void linear_gemm(constant LinearParams &p [[buffer(PARAMS)]],
                        device float *y [[buffer(LINEAR_Y)]],
                        device const float *x [[buffer(LINEAR_X)]],
                        device const uchar *data [[buffer(LINEAR_DATA)]],
                        device const uchar *scales [[buffer(LINEAR_SCALES)]],
                        device const uchar *biases [[buffer(LINEAR_BIASES)]],
                        uint3 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]],
                        uint sg [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T xs[TILE_ROWS * TILE_STRIDE(T)];
  threadgroup T ws[TILE_OUTPUTS * TILE_STRIDE(T)];
  threadgroup float spare[TILE_THREADS / SIMD_WIDTH * 64];
  const uint row = group.y * TILE_ROWS, first = group.x * TILE_OUTPUTS, span = first + sg * TILE_SPAN;
  const uint rows = min(uint(TILE_ROWS), p.rows - row);
  const uint outputs = span < p.outputs ? min(uint(TILE_SPAN), p.outputs - span) : 0u;
  const uint slot = index / 4; // the row that this thread stages a quarter of
  device const float *mine = x + ulong(row + min(slot, rows - 1)) * p.inputs;

  StoredMatrix w;
  w.data = data;
  w.scales = scales;
  w.biases = biases;
  w.in = p.inputs;

  TileSums sums;
  tile_clear(sums);
  const bool wide = stored_wide(w);
  for (uint k0 = 0; k0 < p.inputs; k0 += TILE_INPUTS) {
    tile_stage_row<T>(xs, mine, slot < rows, p.inputs, k0, slot, index % 4);
    if (wide) tile_stage_weights<T, true>(ws, w, first, p.outputs, k0, index);
    else tile_stage_weights<T, false>(ws, w, first, p.outputs, k0, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_multiply<T>(sums, xs, ws + sg * TILE_SPAN * TILE_STRIDE(T), int((rows + 7) / 8), int((outputs + 7) / 8));
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  tile_store(sums, y + ulong(row) * p.outputs + span, p.outputs, rows, outputs, spare + sg * 64, lane);
}
template [[host_name("linear_gemm_half")]] [[kernel]] decltype(linear_gemm<half>) linear_gemm<half>;
template [[host_name("linear_gemm_float")]] [[kernel]] decltype(linear_gemm<float>) linear_gemm<float>;
