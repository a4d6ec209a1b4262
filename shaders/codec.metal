// Numbers on their way into a state that holds them in less than they were computed in.

// codec_store_half: rows of keys or values into a cache of halves, to nearest even. One thread per value.
//
//   x     [rows, heads*dim]
//   data  [*, heads*dim]
kernel void codec_store_half(device const float *x [[buffer(STORE_X)]],
                           device half *data [[buffer(STORE_DATA)]],
                           constant StoreRowsParams &p [[buffer(PARAMS)]],
                           uint i [[thread_position_in_grid]]) {
  const uint width = p.heads * p.dim;
  if (i < p.rows * width) data[ulong(p.row) * width + i] = half(x[i]);
}

// codec_store_codes: rows of keys or values into a cache of 8-bit codes: a group of 32 dims of a head is worth its largest
// size / 127 a code, as a half. One simdgroup per row, a lane per dim of a group, group after group. loss gets the row's
// sum of squares of what rounding took, and of the row: each lane's over the groups, then those of the lanes.
//
//   x       [rows, heads*dim]
//   data    [*, heads*dim]
//   scales  [*, heads, groups]
//   loss    [*, 2]
kernel void codec_store_codes(device const float *x [[buffer(STORE_X)]],
                            device uchar *data [[buffer(STORE_DATA)]],
                            device half *scales [[buffer(STORE_SCALES)]],
                            device float *loss [[buffer(STORE_LOSS)]],
                            constant StoreRowsParams &p [[buffer(PARAMS)]],
                            uint row [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
  const uint groups = (p.dim + ROW_GROUP - 1) / ROW_GROUP;
  const ulong to = ulong(p.row) + row;
  float lost = 0.0f, whole = 0.0f;
  for (uint head = 0; head < p.heads; head++)
    for (uint g = 0; g < groups; g++) {
      const uint c = g * ROW_GROUP + lane;
      const bool have = c < p.dim;
      const float v = have ? x[(ulong(row) * p.heads + head) * p.dim + c] : 0.0f;
      const half stored = half(simd_max(fabs(v)) / 127.0f);
      const float scale = float(stored);
      const float code = scale > 0.0f ? clamp(rint(v / scale), -127.0f, 127.0f) : 0.0f;
      const float off = v - code * scale;
      lost += off * off;
      whole += v * v;
      if (have) data[(to * p.heads + head) * p.dim + c] = uchar(int(code) & 255);
      if (lane == 0) scales[(to * p.heads + head) * groups + g] = stored;
    }
  lost = simd_sum(lost);
  whole = simd_sum(whole);
  if (lane == 0) {
    loss[to * 2] = lost;
    loss[to * 2 + 1] = whole;
  }
}

// codec_round_state: rows of a recurrent state to the nearest bfloat16, ties to even, in place. One simdgroup per row, a
// lane per column in turn; loss gets the row's sum of squares of what rounding took, and of the row before: each lane's
// ascending, then those of the lanes.
//
//   s     [rows, cols]
//   loss  [rows, 2]
kernel void codec_round_state(device float *s [[buffer(ROUND_S)]],
                              device float *loss [[buffer(ROUND_LOSS)]],
                              constant RoundStateParams &p [[buffer(PARAMS)]],
                              uint row [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]]) {
  device float *values = s + ulong(row) * p.cols;
  float lost = 0.0f, whole = 0.0f;
  for (uint c = lane; c < p.cols; c += SIMD_WIDTH) {
    const float v = values[c];
    const uint bits = as_type<uint>(v);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    const float to = as_type<float>(finite ? (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u : bits);
    values[c] = to;
    lost += (v - to) * (v - to);
    whole += v * v;
  }
  lost = simd_sum(lost);
  whole = simd_sum(whole);
  if (lane == 0) {
    loss[row * 2] = lost;
    loss[row * 2 + 1] = whole;
  }
}
