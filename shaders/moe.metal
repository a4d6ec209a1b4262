// The mixture of experts: the choice, the grouped products of the chosen, and the sum in the order of the slots.

// The choice of a simdgroup's row, where lanes own up to OWN experts each.
template <int OWN>
METAL_FUNC void route_row(device int *expert, device float *weight, device const float *logits, constant RouteParams &p, uint group, uint simd, uint lane) {
  const uint row = group * BLOCK_SIMDS + simd;
  const bool owns = row < p.rows;
  device const float *in = logits + ulong(owns ? row : 0) * p.experts;
  float prob[OWN], top = -FLT_MAX, sum = 0.0f;
  for (int i = 0; i < OWN; i++) {
    if (uint(i) * 32 >= p.experts) continue; // for all lanes: none of them has one there
    const uint e = uint(i) * 32 + lane;
    prob[i] = e < p.experts ? in[e] : -FLT_MAX;
    top = max(top, prob[i]);
  }
  top = simd_max(top);
  for (int i = 0; i < OWN; i++) {
    if (uint(i) * 32 >= p.experts) continue;
    prob[i] = uint(i) * 32 + lane < p.experts ? exp(prob[i] - top) : -1.0f;
    sum += max(prob[i], 0.0f);
  }
  sum = simd_sum(sum);
  uint rank[OWN]; // probabilities as numbers that order as they do, from 1 on; 0: not there, or taken
  for (int i = 0; i < OWN; i++) {
    if (uint(i) * 32 >= p.experts) continue;
    rank[i] = prob[i] >= 0.0f ? as_type<uint>(prob[i] / sum) + 1 : 0;
  }
  uint chosen = 0;
  float share = 0.0f, total = 0.0f;
  for (uint slot = 0; slot < p.slots; slot++) {
    uint best = 0, at = ROUTE_EXPERTS;
    for (int i = 0; i < OWN; i++) {
      if (uint(i) * 32 >= p.experts) continue;
      if (rank[i] > best) { // ascending, so the lower expert stays where they are equal
        best = rank[i];
        at = uint(i) * 32 + lane;
      }
    }
    const uint high = simd_max(best);
    at = simd_min(best == high ? at : uint(ROUTE_EXPERTS));
    for (int i = 0; i < OWN; i++) {
      if (uint(i) * 32 >= p.experts) continue;
      if (uint(i) * 32 + lane == at) rank[i] = 0;
    }
    const float probability = high > 0 ? as_type<float>(high - 1) : -1.0f;
    total += probability;
    if (slot == lane) {
      chosen = at;
      share = probability;
    }
  }
  if (owns && lane < p.slots) {
    expert[ulong(row) * p.slots + lane] = int(chosen);
    weight[ulong(row) * p.slots + lane] = p.renorm != 0 ? share / total : share;
  }
}

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
  if (p.experts <= 32) route_row<1>(expert, weight, logits, p, group, simd, lane);
  else if (p.experts <= 512) route_row<16>(expert, weight, logits, p, group, simd, lane);
  else route_row<ROUTE_EXPERTS / 32>(expert, weight, logits, p, group, simd, lane);
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
  const bool wide = stored_wide(w);
  TileSums sums;
  tile_clear(sums);
  for (uint k = 0; k < p.inputs; k += TILE_INPUTS) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_stage_row(xs, row, slot < pairs, p.inputs, k, slot, tid % 4);
    if (wide) tile_stage_weights<T, true>(ws, w, output, p.to, k, tid);
    else tile_stage_weights<T, false>(ws, w, output, p.to, k, tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_multiply(sums, xs, ws + simd * TILE_SPAN * TILE_STRIDE(T), row_blocks, span_blocks);
  }
  const uint width = p.to - p.from;
  tile_store(sums, y + ulong(first) * width + (span - p.from), width, pairs, outputs, spare + simd * 64, lane);
}
template [[host_name("moe_gemm_half")]] [[kernel]] decltype(moe_gemm<half>) moe_gemm<half>;
template [[host_name("moe_gemm_float")]] [[kernel]] decltype(moe_gemm<float>) moe_gemm<float>;

// Where an expert's matrix lies.
METAL_FUNC StoredMatrix expert_at(device const uint *table, uint expert, device const uchar *data, device const uchar *scales,
                                  device const uchar *biases, uint inputs) {
  StoredMatrix w;
  w.data = data + table[expert * 3];
  w.scales = scales + table[expert * 3 + 1];
  w.biases = biases + table[expert * 3 + 2];
  w.in = inputs;
  return w;
}

// A matrix that lies by itself.
METAL_FUNC StoredMatrix stored_at(device const uchar *data, device const uchar *scales, device const uchar *biases, uint inputs) {
  StoredMatrix w;
  w.data = data;
  w.scales = scales;
  w.biases = biases;
  w.in = inputs;
  return w;
}

// The outputs of a thread in tile number `tile`: `each` of them, those of a simdgroup next to one another.
METAL_FUNC OwnOutputs expert_outputs(constant ExpertFewParams &p, uint tile, uint each, uint index) {
  const uint lanes = matvec_lanes(p.inputs);
  OwnOutputs own;
  own.apart = SIMD_WIDTH / lanes;
  own.first = p.from + (tile * BLOCK_SIMDS + index / SIMD_WIDTH) * each * own.apart + index % SIMD_WIDTH / lanes;
  own.end = p.from + p.outputs;
  return own;
}

// moe_few: y = x W^T for pairs of few rows, float32 from end to end. One threadgroup per (tile, pair): FEW_ACROSS outputs for
// every lanes of it. A pair whose expert is none of the table gets no numbers: its logits were none.
//
//   y      [pairs, outputs]   outputs [from, from+outputs) of the product
//   x      [*, inputs]    rows of the chunk through rows [pairs], or a row for every pair
//   ids    [pairs]        expert of the table
//   table  [experts, 3]   offsets in bytes of data, scales and biases
kernel void moe_few(device float *y [[buffer(EXPERT_Y)]],
                    device const float *x [[buffer(EXPERT_X)]],
                    device const uint *rows [[buffer(EXPERT_ROWS)]],
                    device const uint *ids [[buffer(EXPERT_IDS)]],
                    device const uint *table [[buffer(EXPERT_TABLE)]],
                    device const uchar *data [[buffer(EXPERT_DATA)]],
                    device const uchar *scales [[buffer(EXPERT_SCALES)]],
                    device const uchar *biases [[buffer(EXPERT_BIASES)]],
                    constant ExpertFewParams &p [[buffer(PARAMS)]],
                    uint2 group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  const uint pair = group.y, lanes = matvec_lanes(p.inputs);
  const bool known = ids[pair] < p.experts;
  const StoredMatrix w = expert_at(table, known ? ids[pair] : 0, data, scales, biases, p.inputs);
  const OwnOutputs own = expert_outputs(p, group.x, FEW_ACROSS, index);
  float sums[FEW_ACROSS];
  matvec_sums<1, FEW_ACROSS>(sums, w, own, x + ulong(p.listed != 0 ? rows[pair] : pair) * p.inputs, 1, lanes, 0, 1, index % SIMD_WIDTH);
  if (index % lanes != 0) return;
  for (int o = 0; o < FEW_ACROSS; o++) {
    const uint output = own.first + uint(o) * own.apart;
    if (output < own.end) y[ulong(pair) * p.outputs + (output - p.from)] = known ? sums[o] : NAN;
  }
}

// moe_few_inside: y = silu(Gate x) * Up x for pairs of few rows, as moe_few and moe_activate would have it, and for the rows
// behind them with the shared expert's matrices. One threadgroup per (tile, pair or row).
//
//   y   [pairs, outputs], then a row for every row with the shared expert
//   x   [*, inputs]    rows of the chunk: through rows [pairs] where they are listed, else by the pair's place
[[max_total_threads_per_threadgroup(128)]] kernel void moe_few_inside(device float *y [[buffer(EXPERT_Y)]],
                           device const float *x [[buffer(EXPERT_X)]],
                           device const uint *rows [[buffer(EXPERT_ROWS)]],
                           device const uint *ids [[buffer(EXPERT_IDS)]],
                           device const uint *table [[buffer(EXPERT_TABLE)]],
                           device const uchar *data [[buffer(EXPERT_DATA)]],
                           device const uchar *scales [[buffer(EXPERT_SCALES)]],
                           device const uchar *biases [[buffer(EXPERT_BIASES)]],
                           device const uint *table_up [[buffer(EXPERT_TABLE_UP)]],
                           device const uchar *data_up [[buffer(EXPERT_DATA_UP)]],
                           device const uchar *scales_up [[buffer(EXPERT_SCALES_UP)]],
                           device const uchar *biases_up [[buffer(EXPERT_BIASES_UP)]],
                           device const uchar *data_shared [[buffer(EXPERT_DATA_SHARED)]],
                           device const uchar *scales_shared [[buffer(EXPERT_SCALES_SHARED)]],
                           device const uchar *biases_shared [[buffer(EXPERT_BIASES_SHARED)]],
                           device const uchar *data_shared_up [[buffer(EXPERT_DATA_SHARED_UP)]],
                           device const uchar *scales_shared_up [[buffer(EXPERT_SCALES_SHARED_UP)]],
                           device const uchar *biases_shared_up [[buffer(EXPERT_BIASES_SHARED_UP)]],
                           constant ExpertFewParams &p [[buffer(PARAMS)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint index [[thread_index_in_threadgroup]]) {
  const uint pair = group.y, lanes = matvec_lanes(p.inputs);
  if (pair >= p.pairs) { // what the others read is not known yet
    const uint count = FEW_PAIRS * (SIMD_WIDTH / lanes), first = (group.x * BLOCK_SIMDS + index / SIMD_WIDTH) * count;
    const uint ahead = first < p.outputs ? min(count, p.outputs - first) : 0;
    stored_ahead(stored_at(data_shared, scales_shared, biases_shared, p.inputs), p.from + first, ahead, index % SIMD_WIDTH);
    stored_ahead(stored_at(data_shared_up, scales_shared_up, biases_shared_up, p.inputs), p.from + first, ahead, index % SIMD_WIDTH);
  }
  inputs_ready(0);
  const bool shared = pair >= p.pairs, known = shared || ids[pair] < p.experts;
  StoredMatrix gate, up;
  if (shared) {
    gate = stored_at(data_shared, scales_shared, biases_shared, p.inputs);
    up = stored_at(data_shared_up, scales_shared_up, biases_shared_up, p.inputs);
  } else {
    const uint expert = known ? ids[pair] : 0;
    gate = expert_at(table, expert, data, scales, biases, p.inputs);
    up = expert_at(table_up, expert, data_up, scales_up, biases_up, p.inputs);
  }
  const OwnOutputs own = expert_outputs(p, group.x, FEW_PAIRS, index);
  device const float *row = x + ulong(shared ? pair - p.pairs : p.listed != 0 ? rows[pair] : pair / p.slots) * p.inputs;
  float gates[FEW_PAIRS], ups[FEW_PAIRS];
  matvec_sums_of_two<FEW_PAIRS>(gates, ups, gate, up, own, row, lanes, index % SIMD_WIDTH);
  if (index % lanes != 0) return;
  for (int o = 0; o < FEW_PAIRS; o++) {
    const uint output = own.first + uint(o) * own.apart;
    if (output < own.end) y[ulong(pair) * p.outputs + (output - p.from)] = known ? silu(gates[o]) * ups[o] : NAN;
  }
}

// moe_few_sum: y[r] = sum over r's slots, in slot order, of weight * W x of the slot, for few rows whose pairs stand by
// their slots: the bits of moe_few and moe_sum. Then the shared expert: y[r] += sigmoid(score) * Ws xs, where xs stands
// behind the pairs. One threadgroup per (tile, row), a tile as many outputs as a simdgroup has lanes for; each of FEW_SIMDS
// simdgroups has every FEW_SIMDS'th slot, of which the shared expert is the last.
//
//   y   [rows, outputs]    x  [pairs, inputs], [rows, inputs]    weight  [rows, slots]    score  [rows]
kernel void moe_few_sum(device float *y [[buffer(EXPERT_Y)]],
                        device const float *x [[buffer(EXPERT_X)]],
                        device const uint *ids [[buffer(EXPERT_IDS)]],
                        device const uint *table [[buffer(EXPERT_TABLE)]],
                        device const uchar *data [[buffer(EXPERT_DATA)]],
                        device const uchar *scales [[buffer(EXPERT_SCALES)]],
                        device const uchar *biases [[buffer(EXPERT_BIASES)]],
                        device const float *weight [[buffer(EXPERT_WEIGHT)]],
                        device const float *score [[buffer(EXPERT_SCORE)]],
                        device const uchar *data_shared [[buffer(EXPERT_DATA_SHARED)]],
                        device const uchar *scales_shared [[buffer(EXPERT_SCALES_SHARED)]],
                        device const uchar *biases_shared [[buffer(EXPERT_BIASES_SHARED)]],
                        constant ExpertFewParams &p [[buffer(PARAMS)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float products[(ROUTE_SLOTS + 1) * FEW_DOWN * SIMD_WIDTH / VECTOR_LANES];
  const uint row = group.y, lanes = matvec_lanes(p.inputs), apart = SIMD_WIDTH / lanes, across = FEW_DOWN * apart, first = group.x * across;
  OwnOutputs own;
  own.apart = apart;
  own.first = p.from + first + lane / lanes;
  own.end = p.from + p.outputs;
  // the choice was made before what x is made of: reading it early is a guess that holds
  for (uint slot = simd; slot < p.slots + p.shared; slot += FEW_SIMDS) {
    const uint expert = slot == p.slots ? 0 : glance(ids + row * p.slots + slot);
    const StoredMatrix w = slot == p.slots ? stored_at(data_shared, scales_shared, biases_shared, p.inputs)
                                           : expert_at(table, expert < p.experts ? expert : 0, data, scales, biases, p.inputs);
    stored_ahead(w, p.from + first, first < p.outputs ? min(across, p.outputs - first) : 0, lane);
  }
  inputs_ready(0);
  for (uint slot = simd; slot < p.slots + p.shared; slot += FEW_SIMDS) {
    const bool shared = slot == p.slots;
    const uint pair = shared ? p.pairs + row : row * p.slots + slot;
    const bool known = shared || ids[pair] < p.experts;
    const StoredMatrix w = shared ? stored_at(data_shared, scales_shared, biases_shared, p.inputs)
                                  : expert_at(table, known ? ids[pair] : 0, data, scales, biases, p.inputs);
    float sums[FEW_DOWN];
    matvec_sums<1, FEW_DOWN>(sums, w, own, x + ulong(pair) * p.inputs, 1, lanes, 0, 1, lane);
    if (lane % lanes == 0)
      for (uint o = 0; o < FEW_DOWN; o++) products[slot * across + o * apart + lane / lanes] = known ? sums[o] : NAN;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd != 0 || lane >= across || first + lane >= p.outputs) return;
  device float *to = y + ulong(row) * p.outputs + first + lane;
  float sum = p.onto != 0 ? *to : 0.0f;
  for (uint slot = 0; slot < p.slots; slot++) sum += weight[row * p.slots + slot] * products[slot * across + lane];
  if (p.shared != 0) sum = fma(sigmoid(score[row]), products[p.slots * across + lane], sum);
  *to = sum;
}
static_assert(FEW_DOWN * SIMD_WIDTH / VECTOR_LANES <= SIMD_WIDTH, "a lane sums one output");

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
