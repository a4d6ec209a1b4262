// The mixture of experts: the choice, the grouped products of the chosen, and the sum in the order of the slots.

// moe_route: softmax over a row's logits, then the k most probable, ties to the lower expert, slots by falling
// probability; with renorm the k weights are divided by their sum. One simdgroup per row; a lane owns every 32nd expert
// and, at the end, slot number lane.
//
//   expert, weight  [rows, slots]    logits  [rows, experts]
kernel void moe_route(device int *expert [[buffer(ROUTE_EXPERT)]],
                      device float *weight [[buffer(ROUTE_WEIGHT)]],
                      device const float *logits [[buffer(ROUTE_LOGITS)]],
                      constant RouteParams &p [[buffer(PARAMS)]],
                      uint group [[threadgroup_position_in_grid]],
                      uint simd [[simdgroup_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]]) {
  const int OWN = ROUTE_EXPERTS / 32;
  const uint row = group * BLOCK_SIMDS + simd;
  const bool owns = row < p.rows;
  device const float *in = logits + ulong(owns ? row : 0) * p.experts;
  float prob[OWN], top = -FLT_MAX, sum = 0.0f;
  for (int i = 0; i < OWN; i++) {
    const uint e = uint(i) * 32 + lane;
    prob[i] = e < p.experts ? in[e] : -FLT_MAX;
    top = max(top, prob[i]);
  }
  top = simd_max(top);
  for (int i = 0; i < OWN; i++) {
    prob[i] = uint(i) * 32 + lane < p.experts ? exp(prob[i] - top) : -1.0f;
    sum += max(prob[i], 0.0f);
  }
  sum = simd_sum(sum);
  for (int i = 0; i < OWN; i++) prob[i] = prob[i] < 0.0f ? -1.0f : prob[i] / sum; // -1: not there, or taken
  uint chosen = 0;
  float share = 0.0f, total = 0.0f;
  for (uint slot = 0; slot < p.slots; slot++) {
    float best = -1.0f;
    uint at = ROUTE_EXPERTS;
    for (int i = 0; i < OWN; i++)
      if (prob[i] > best) { // ascending, so the lower expert stays where they are equal
        best = prob[i];
        at = uint(i) * 32 + lane;
      }
    const float high = simd_max(best);
    at = simd_min(best == high ? at : uint(ROUTE_EXPERTS));
    for (int i = 0; i < OWN; i++)
      if (uint(i) * 32 + lane == at) prob[i] = -1.0f;
    total += high;
    if (slot == lane) {
      chosen = at;
      share = high;
    }
  }
  if (owns && lane < p.slots) {
    expert[ulong(row) * p.slots + lane] = int(chosen);
    weight[ulong(row) * p.slots + lane] = p.renorm != 0 ? share / total : share;
  }
}

// moe_gemm: y = x W^T for the pairs of several experts at once. Pairs stand grouped by expert; a tile is up to TILE_ROWS
// pairs of one expert, and the table says where in the bound memory that expert's matrix lies. One threadgroup per
// (TILE_OUTPUTS outputs, tile), staged in T and added up in float as common/tile.metal says: a pair's result does not
// depend on the tile that it comes to lie in.
//
//   y       [pairs, to-from]   outputs [from, to) of the product
//   x       [*, inputs]        rows of the chunk through rows [pairs] (gather), or a row for every pair
//   tiles   [tiles, 3]         expert of the group, first pair, pairs
//   table   [experts, 3]       offsets in bytes of data, scales and biases
template <typename T>
kernel void moe_gemm(device float *y [[buffer(EXPERT_Y)]],
                     device const float *x [[buffer(EXPERT_X)]],
                     device const uint *rows [[buffer(EXPERT_ROWS)]],
                     device const uint *tiles [[buffer(EXPERT_TILES)]],
                     device const uint *table [[buffer(EXPERT_TABLE)]],
                     device const uchar *data [[buffer(EXPERT_DATA)]],
                     device const uchar *scales [[buffer(EXPERT_SCALES)]],
                     device const uchar *biases [[buffer(EXPERT_BIASES)]],
                     constant ExpertParams &p [[buffer(PARAMS)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint tid [[thread_index_in_threadgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T xs[TILE_ROWS * TILE_STRIDE(T)];
  threadgroup T ws[TILE_OUTPUTS * TILE_STRIDE(T)];
  threadgroup float spare[TILE_THREADS / SIMD_WIDTH * 64];
  const uint expert = tiles[group.y * 3], first = tiles[group.y * 3 + 1], pairs = tiles[group.y * 3 + 2];
  const uint output = p.from + group.x * TILE_OUTPUTS, span = output + simd * TILE_SPAN;
  StoredMatrix w;
  w.data = data + table[expert * 3];
  w.scales = scales + table[expert * 3 + 1];
  w.biases = biases + table[expert * 3 + 2];
  w.in = p.inputs;

  // a thread stages the same quarter of the same row every time
  const uint slot = tid / 4, pair = first + (slot < pairs ? slot : 0);
  device const float *row = x + ulong(p.gather != 0 ? rows[pair] : pair) * p.inputs;
  const uint outputs = span < p.to ? min(p.to - span, uint(TILE_SPAN)) : 0;
  const int row_blocks = int(pairs + 7) / 8, span_blocks = int(outputs + 7) / 8;
  TileSums sums;
  tile_clear(sums);
  for (uint k = 0; k < p.inputs; k += TILE_INPUTS) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_stage_row(xs, row, slot < pairs, p.inputs, k, slot, tid % 4);
    tile_stage_weights(ws, w, output, p.to, k, tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_multiply(sums, xs, ws + simd * TILE_SPAN * TILE_STRIDE(T), row_blocks, span_blocks);
  }
  const uint width = p.to - p.from;
  tile_store(sums, y + ulong(first) * width + (span - p.from), width, pairs, outputs, spare + simd * 64, lane);
}
template [[host_name("moe_gemm_half")]] [[kernel]] decltype(moe_gemm<half>) moe_gemm<half>;
template [[host_name("moe_gemm_float")]] [[kernel]] decltype(moe_gemm<float>) moe_gemm<float>;

// moe_activate: gate = silu(gate) * up, in place. One thread per value.
//
//   gate, up  [pairs, inner]
kernel void moe_activate(device float *gate [[buffer(ACTIVATE_GATE)]],
                         device const float *up [[buffer(ACTIVATE_UP)]],
                         constant ActivateParams &p [[buffer(PARAMS)]],
                         uint i [[thread_position_in_grid]]) {
  if (i < p.count) gate[i] = silu(gate[i]) * up[i];
}

// moe_sum: y[r] = sum over r's slots, in slot order, of weight * x[pair of the slot]. One thread per value.
//
//   y  [rows, cols], columns [from, from+width)    x  [pairs, width]    pairs, weight  [rows, slots]
kernel void moe_sum(device float *y [[buffer(SUM_Y)]],
                    device const float *x [[buffer(SUM_X)]],
                    device const uint *pairs [[buffer(SUM_PAIRS)]],
                    device const float *weight [[buffer(SUM_WEIGHT)]],
                    constant SumParams &p [[buffer(PARAMS)]],
                    uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width || at.y >= p.rows) return;
  float sum = 0.0f;
  for (uint s = 0; s < p.slots; s++) {
    const uint slot = at.y * p.slots + s;
    sum += weight[slot] * x[ulong(pairs[slot]) * p.width + at.x];
  }
  y[ulong(at.y) * p.cols + p.from + at.x] = sum;
}
