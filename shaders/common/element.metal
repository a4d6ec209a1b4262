// Element by element: one thread an element, in every kernel here.

// y = silu(y * scale). y [count]
kernel void dense_silu(constant ElementParams &p [[buffer(PARAMS)]],
                       device float *y [[buffer(ELEMENT_Y)]],
                       uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = silu(y[i] * p.scale);
}

// y = gain * sigmoid(y * scale). y [count]
kernel void dense_sigmoid(constant ElementParams &p [[buffer(PARAMS)]],
                          device float *y [[buffer(ELEMENT_Y)]],
                          uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = p.gain * sigmoid(y[i] * p.scale);
}

// y = silu(gate) * x. y, x, gate [count]; y may be gate.
kernel void dense_swiglu(constant ElementParams &p [[buffer(PARAMS)]],
                         device float *y [[buffer(ELEMENT_Y)]],
                         device const float *x [[buffer(ELEMENT_X)]],
                         device const float *gate [[buffer(ELEMENT_GATE)]],
                         uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = silu(gate[i]) * x[i];
}

// y += x. y, x [count]
kernel void dense_add(constant ElementParams &p [[buffer(PARAMS)]],
                      device float *y [[buffer(ELEMENT_Y)]],
                      device const float *x [[buffer(ELEMENT_X)]],
                      uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] += x[i];
}

// y[r] += sigmoid(gate[r]) * x[r]. y, x [count / cols, cols], gate [count / cols]
kernel void dense_add_gated(constant ElementParams &p [[buffer(PARAMS)]],
                            device float *y [[buffer(ELEMENT_Y)]],
                            device const float *x [[buffer(ELEMENT_X)]],
                            device const float *gate [[buffer(ELEMENT_GATE)]],
                            uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = fma(sigmoid(gate[i / p.cols]), x[i], y[i]);
}

// A rectangle of floats from src to dst.
//
//   dst: rows of dst_floats, src: rows of src_floats, `cols` of each
//   grid: x over columns, y over rows
kernel void dense_copy(constant CopyParams &p [[buffer(PARAMS)]],
                       device float *dst [[buffer(COPY_DST)]],
                       device const float *src [[buffer(COPY_SRC)]],
                       uint2 at [[thread_position_in_grid]]) {
  if (at.x < p.cols) dst[ulong(at.y) * p.dst_floats + at.x] = src[ulong(at.y) * p.src_floats + at.x];
}

// The largest value of a piece of a row among the first `choices` columns, the lower column of equals; and whether every
// column of the piece is finite: else column gets PICK_BAD. A piece without choices has the lowest float. One threadgroup a
// piece.
//
//   value, column [rows, pieces], y [rows, cols]
//   grid: x over pieces, y over rows
kernel void dense_pick(constant PickParams &p [[buffer(PARAMS)]],
                       device float *value [[buffer(PICK_VALUE)]],
                       device uint *column [[buffer(PICK_COLUMN)]],
                       device const float *y [[buffer(PICK_Y)]],
                       uint2 group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float values[PICK_THREADS / SIMD_WIDTH];
  threadgroup uint columns[PICK_THREADS / SIMD_WIDTH];
  threadgroup uint bads[PICK_THREADS / SIMD_WIDTH];
  device const float *row = y + ulong(group.y) * p.cols;
  const uint end = min((group.x + 1) * PICK_COLUMNS, p.cols);
  float best = -FLT_MAX; // which a finite logit may be: the first choice then
  uint at = PICK_BAD - 1, bad = 0;
  for (uint c = group.x * PICK_COLUMNS + index; c < end; c += PICK_THREADS) { // ascending: of equals the lower one stays
    const float v = row[c];
    if ((as_type<uint>(v) & 0x7f800000u) == 0x7f800000u) bad = 1;
    if (c < p.choices && v > best) {
      best = v;
      at = c;
    }
  }
  const float high = simd_max(best);
  at = simd_min(best == high ? at : uint(PICK_BAD - 1));
  bad = simd_max(bad);
  if (lane == 0) {
    values[sg] = high;
    columns[sg] = at;
    bads[sg] = bad;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (index != 0) return;
  for (uint s = 1; s < PICK_THREADS / SIMD_WIDTH; s++) {
    if (values[s] > values[0] || (values[s] == values[0] && columns[s] < columns[0])) {
      values[0] = values[s];
      columns[0] = columns[s];
    }
    bads[0] |= bads[s];
  }
  value[group.y * p.pieces + group.x] = values[0];
  column[group.y * p.pieces + group.x] = bads[0] != 0 ? PICK_BAD : columns[0];
}
