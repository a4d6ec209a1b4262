// The hyper-connection's n streams of h floats, stream after stream in a row of wide. In every kernel here one thread
// takes one column of x and that column of every stream; grid: x over columns, y over rows.

// Every stream of wide = x.
//
//   wide [rows, n*h], x [rows, h]
kernel void hyper_replicate(constant StreamParams &p [[buffer(PARAMS)]],
                            device float *wide [[buffer(STREAM_WIDE)]],
                            device const float *x [[buffer(STREAM_X)]],
                            uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  device float *to = wide + ulong(at.y) * p.streams * p.width + at.x;
  const float v = x[ulong(at.y) * p.width + at.x];
  for (uint g = 0; g < p.streams; g++) to[g * p.width] = v;
}

// Every stream of wide += x.
//
//   wide [rows, n*h], x [rows, h]
kernel void hyper_add(constant StreamParams &p [[buffer(PARAMS)]],
                      device float *wide [[buffer(STREAM_WIDE)]],
                      device const float *x [[buffer(STREAM_X)]],
                      uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  device float *to = wide + ulong(at.y) * p.streams * p.width + at.x;
  const float v = x[ulong(at.y) * p.width + at.x];
  for (uint g = 0; g < p.streams; g++) to[g * p.width] += v;
}

// Stream g of wide += gain[g] * x.
//
//   wide [rows, n*h], x [rows, h], gain [rows, n]
kernel void hyper_inject(constant StreamParams &p [[buffer(PARAMS)]],
                         device float *wide [[buffer(STREAM_WIDE)]],
                         device const float *x [[buffer(STREAM_X)]],
                         device const float *gain [[buffer(STREAM_GAIN)]],
                         uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  device float *to = wide + ulong(at.y) * p.streams * p.width + at.x;
  const float v = x[ulong(at.y) * p.width + at.x];
  for (uint g = 0; g < p.streams; g++) to[g * p.width] = fma(gain[ulong(at.y) * p.streams + g], v, to[g * p.width]);
}

// x = mean over streams of gain * wide, streams ascending.
//
//   wide [rows, n*h], x [rows, h], gain [rows, n*h]
kernel void hyper_mix(constant StreamParams &p [[buffer(PARAMS)]],
                      device const float *wide [[buffer(STREAM_WIDE)]],
                      device float *x [[buffer(STREAM_X)]],
                      device const float *gain [[buffer(STREAM_GAIN)]],
                      uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  const ulong first = ulong(at.y) * p.streams * p.width + at.x;
  float sum = 0.0f;
  for (uint g = 0; g < p.streams; g++) sum = fma(gain[first + g * p.width], wide[first + g * p.width], sum);
  x[ulong(at.y) * p.width + at.x] = sum / float(p.streams);
}

// The gated read by few rows, first step: stream g of wide += gain[g] * y where there is something to inject, and z = its
// RMS norm, a mean for each stream. One threadgroup per (stream, row).
//
//   wide, z [rows, n*h], y [rows, h], gain [rows, n], scale [n*h]
kernel void hyper_read_norm(constant StreamReadParams &p [[buffer(PARAMS)]],
                            device float *wide [[buffer(READ_WIDE)]],
                            device float *z [[buffer(READ_Z)]],
                            device const float *y [[buffer(READ_Y)]],
                            device const float *gain [[buffer(READ_GAIN)]],
                            device const float *scale [[buffer(READ_SCALE)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint3 size [[threads_per_threadgroup]],
                            uint index [[thread_index_in_threadgroup]],
                            uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float partial[32];
  const int OWN = 8; // columns of a thread that stay in registers
  const uint g = group.x, row = group.y;
  const ulong start = (ulong(row) * p.streams + g) * p.width;
  float own[OWN], gains[OWN];
  const bool held = p.width <= OWN * size.x;
  for (int i = 0; i < OWN; i++) {
    const uint c = index + uint(i) * size.x;
    gains[i] = held && c < p.width ? scale[g * p.width + c] : 0.0f;
  }
  inputs_ready(0);
  const float by = p.inject != 0 ? gain[row * p.streams + g] : 0.0f;
  float sum = 0.0f;
  if (held) {
    for (int i = 0; i < OWN; i++) {
      const uint c = index + uint(i) * size.x;
      own[i] = c < p.width ? wide[start + c] : 0.0f;
      if (p.inject != 0 && c < p.width) own[i] = fma(by, y[ulong(row) * p.width + c], own[i]);
    }
    for (int i = 0; i < OWN; i++) {
      const uint c = index + uint(i) * size.x;
      if (p.inject != 0 && c < p.width) wide[start + c] = own[i];
      sum = fma(own[i], own[i], sum);
    }
  } else {
    for (uint c = index; c < p.width; c += size.x) {
      float v = wide[start + c];
      if (p.inject != 0) {
        v = fma(by, y[ulong(row) * p.width + c], v);
        wide[start + c] = v;
      }
      sum = fma(v, v, sum);
    }
  }
  sum = threadgroup_sum(sum, partial, sg, lane, size.x / SIMD_WIDTH);
  const float r = rsqrt(sum / float(p.width) + p.eps);
  if (held) {
    for (int i = 0; i < OWN; i++) {
      const uint c = index + uint(i) * size.x;
      if (c < p.width) z[start + c] = own[i] * r * gains[i];
    }
    return;
  }
  for (uint c = index; c < p.width; c += size.x) z[start + c] = wide[start + c] * r * scale[g * p.width + c];
}

// The last step: x = mean over streams, ascending, of sigmoid(Up low) * z. One threadgroup per (tile, row), a tile READ_EACH
// columns for every lanes of a simdgroup; a simdgroup takes every BLOCK_SIMDS'th stream, in each of them the products of
// linear_matvec_*.
//
//   x [rows, h], z [rows, n*h], low [rows, r], data, scales, biases: Up [n*h, r] as stored
kernel void hyper_read_mix(constant StreamReadParams &p [[buffer(PARAMS)]],
                           device float *x [[buffer(READ_X)]],
                           device const float *z [[buffer(READ_Z)]],
                           device const float *low [[buffer(READ_LOW)]],
                           device const uchar *data [[buffer(READ_DATA)]],
                           device const uchar *scales [[buffer(READ_SCALES)]],
                           device const uchar *biases [[buffer(READ_BIASES)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint sg [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float gates[READ_STREAMS * READ_EACH * SIMD_WIDTH / VECTOR_LANES];
  const uint row = group.y, lanes = matvec_lanes(p.low), apart = SIMD_WIDTH / lanes, across = READ_EACH * apart, first = group.x * across;
  StoredMatrix w;
  w.data = data;
  w.scales = scales;
  w.biases = biases;
  w.in = p.low;
  const uint ahead = first < p.width ? min(across, p.width - first) : 0;
  for (uint g = sg; g < p.streams; g += BLOCK_SIMDS) stored_ahead(w, g * p.width + first, ahead, lane);
  inputs_ready(0);
  for (uint g = sg; g < p.streams; g += BLOCK_SIMDS) {
    OwnOutputs own;
    own.apart = apart;
    own.first = g * p.width + first + lane / lanes;
    own.end = (g + 1) * p.width;
    float sums[READ_EACH];
    matvec_sums<1, READ_EACH>(sums, w, own, low + ulong(row) * p.low, 1, lanes, 0, 1, lane);
    if (lane % lanes == 0)
      for (uint o = 0; o < READ_EACH; o++) gates[g * across + o * apart + lane / lanes] = sigmoid(sums[o]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (sg != 0 || lane >= across || first + lane >= p.width) return;
  float sum = 0.0f;
  for (uint g = 0; g < p.streams; g++) sum = fma(gates[g * across + lane], z[(ulong(row) * p.streams + g) * p.width + first + lane], sum);
  x[ulong(row) * p.width + first + lane] = sum / float(p.streams);
}
static_assert(READ_EACH * SIMD_WIDTH / VECTOR_LANES <= SIMD_WIDTH, "a lane sums one column");
