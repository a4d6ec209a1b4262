// The hashed n-gram embedding: rows of its table, and the gate by which the residual takes them.

// ple_gather: decodes gathered rows of the table. One thread per eight values. The rows stand in the order in which they
// are wanted: the host has copied them there as they are stored, for a table is larger than what a device may keep
// resident.
//
//   e     [rows, dim]
//   data  [rows, dim] or their codes; scales, biases  [rows, dim/group]
kernel void ple_gather(device float *e [[buffer(GATHER_E)]],
                       device const uchar *data [[buffer(GATHER_DATA)]],
                       device const uchar *scales [[buffer(GATHER_SCALES)]],
                       device const uchar *biases [[buffer(GATHER_BIASES)]],
                       constant GatherParams &p [[buffer(PARAMS)]],
                       uint i [[thread_position_in_grid]]) {
  const uint eights = (p.dim + 7) / 8;
  if (i >= p.rows * eights) return;
  const uint row = i / eights, first = i % eights * 8;
  StoredMatrix m;
  m.data = data;
  m.scales = scales;
  m.biases = biases;
  m.in = p.dim;
  float v[8];
  stored_eight<false>(v, m, row, first);
  for (uint c = 0; c < 8; c++)
    if (first + c < p.dim) e[ulong(row) * p.dim + first + c] = v[c];
}

// ple_gate: v_g = sigmoid(sign(s_g) sqrt(max(|s_g|, 1e-6))) * val with s_g = key_g . query_g / sqrt(h); sign(0) = 0.
// One simdgroup per (row, stream); a lane owns every 32nd value of it. v may be key.
//
//   v, key, query  [rows, streams*width]    val  [rows, width]
kernel void ple_gate(device float *v [[buffer(PLE_GATE_V)]],
                     device const float *key [[buffer(PLE_GATE_KEY)]],
                     device const float *query [[buffer(PLE_GATE_QUERY)]],
                     device const float *val [[buffer(PLE_GATE_VAL)]],
                     constant PLEGateParams &p [[buffer(PARAMS)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint simd [[simdgroup_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]]) {
  const uint item = group * BLOCK_SIMDS + simd;
  const bool owns = item < p.items;
  const ulong at = ulong(owns ? item : 0) * p.width, row = ulong(owns ? item / p.streams : 0) * p.width;
  float sum = 0.0f;
  uint from = lane;
  for (; owns && from + 7 * 32 < p.width; from += 8 * 32) { // as many loads under way at once
    float one[8], two[8];
    for (uint j = 0; j < 8; j++) {
      one[j] = key[at + from + j * 32];
      two[j] = query[at + from + j * 32];
    }
    for (uint j = 0; j < 8; j++) sum += one[j] * two[j];
  }
  for (; owns && from < p.width; from += 32) sum += key[at + from] * query[at + from];
  const float s = simd_sum(sum) * p.scale;
  const float root = sqrt(max(fabs(s), 1e-6f));
  const float gate = sigmoid(s > 0.0f ? root : s < 0.0f ? -root : s);
  from = lane;
  for (; owns && from + 7 * 32 < p.width; from += 8 * 32) {
    float own[8];
    for (uint j = 0; j < 8; j++) own[j] = val[row + from + j * 32];
    for (uint j = 0; j < 8; j++) v[at + from + j * 32] = gate * own[j];
  }
  for (; owns && from < p.width; from += 32) v[at + from] = gate * val[row + from];
}
