// RMS norms over runs of columns: y = x * rsqrt(mean of x² + eps) * scale. A run's sum depends on its width alone; y
// may be x, since a thread writes only what it read itself.

// Where a run begins in x, and where its scale begins.
METAL_FUNC ulong norm_start(constant NormParams &p, uint run) {
  return ulong(run / p.count) * p.row_floats + p.from + run % p.count * p.stride;
}
METAL_FUNC uint norm_scale(constant NormParams &p, uint run) { return run % p.count * p.scale_step % p.scale_floats; }

// Element i of a scale that is used over and over; a division only where it wraps.
METAL_FUNC float norm_gain(constant NormParams &p, device const float *scale, uint i) {
  return scale[i < p.scale_floats ? i : i % p.scale_floats];
}

// Wide runs: one threadgroup a run.
//
//   y, x: rows of row_floats; scale [scale_floats]
kernel void dense_norm_groups(constant NormParams &p [[buffer(PARAMS)]],
                              device float *y [[buffer(NORM_Y)]],
                              device const float *x [[buffer(NORM_X)]],
                              device const float *scale [[buffer(NORM_SCALE)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint3 size [[threads_per_threadgroup]],
                              uint index [[thread_index_in_threadgroup]],
                              uint sg [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float partial[32];
  const uint run = group.x;
  const ulong start = norm_start(p, run);
  const uint first = norm_scale(p, run);
  float sum = 0.0f;
  for (uint c = index; c < p.width; c += size.x) sum = fma(x[start + c], x[start + c], sum);
  sum = threadgroup_sum(sum, partial, sg, lane, size.x / SIMD_WIDTH);
  const float r = rsqrt(sum / float(p.width) + p.eps);
  for (uint c = index; c < p.width; c += size.x) y[start + c] = x[start + c] * r * norm_gain(p, scale, first + c);
}

// Narrow runs, such as heads: one simdgroup a run.
//
//   y, x: rows of row_floats; scale [scale_floats]
kernel void dense_norm_heads(constant NormParams &p [[buffer(PARAMS)]],
                             device float *y [[buffer(NORM_Y)]],
                             device const float *x [[buffer(NORM_X)]],
                             device const float *scale [[buffer(NORM_SCALE)]],
                             uint3 group [[threadgroup_position_in_grid]],
                             uint3 size [[threads_per_threadgroup]],
                             uint sg [[simdgroup_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]]) {
  const uint run = group.x * (size.x / SIMD_WIDTH) + sg;
  if (run >= p.runs) return; // the whole simdgroup
  const ulong start = norm_start(p, run);
  const uint first = norm_scale(p, run);
  float sum = 0.0f;
  for (uint c = lane; c < p.width; c += SIMD_WIDTH) sum = fma(x[start + c], x[start + c], sum);
  const float r = rsqrt(simd_sum(sum) / float(p.width) + p.eps);
  for (uint c = lane; c < p.width; c += SIMD_WIDTH) y[start + c] = x[start + c] * r * norm_gain(p, scale, first + c);
}
