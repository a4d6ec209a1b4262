// Gated DeltaNet: unit norms of the heads, the gates, the scan over the state, and the gated norm of its output.

// deltanet_unit_heads: x = x * rsqrt(sum x^2 + 1e-6) * scale, in place, for some heads of every row.
// One simdgroup per (row, head); a lane owns every 32nd value of it.
//
//   x  [rows, cols]  head i of a row begins at column from + i*stride
kernel void deltanet_unit_heads(device float *x [[buffer(UNIT_HEADS_X)]],
                                constant UnitHeadsParams &p [[buffer(PARAMS)]],
                                uint group [[threadgroup_position_in_grid]],
                                uint simd [[simdgroup_index_in_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]]) {
  const uint item = group * BLOCK_SIMDS + simd;
  const bool owns = item < p.rows * p.heads;
  const uint row = owns ? item / p.heads : 0, head = owns ? item % p.heads : 0;
  device float *h = x + ulong(row) * p.cols + p.from + head * p.stride;
  float sum = 0.0f;
  for (uint i = lane; owns && i < p.dim; i += 32) sum += h[i] * h[i];
  const float factor = p.scale * rsqrt(simd_sum(sum) + 1e-6f);
  for (uint i = lane; owns && i < p.dim; i += 32) h[i] *= factor;
}

// softplus is log(1 + e^x) without overflow; what rounding 1 + y loses is put back as a factor.
static inline float softplus(float x) {
  const float y = exp(-fabs(x)), u = 1.0f + y;
  const float log1p = u == 1.0f ? y : log(u) * (y / (u - 1.0f));
  return max(x, 0.0f) + log1p;
}

// deltanet_gates: g = exp(-rate * softplus(a + dt_bias)), beta = sigmoid(b). One thread per value; g may be a and
// beta may be b.
//
//   g, beta, a, b  [rows, heads]    rate, dt_bias  [heads], rate = exp(A_log)
kernel void deltanet_gates(device float *g [[buffer(GATES_DECAY)]],
                           device float *beta [[buffer(GATES_BETA)]],
                           device const float *a [[buffer(GATES_A)]],
                           device const float *b [[buffer(GATES_B)]],
                           device const float *rate [[buffer(GATES_RATE)]],
                           device const float *dt_bias [[buffer(GATES_DT_BIAS)]],
                           constant DeltaGatesParams &p [[buffer(PARAMS)]],
                           uint i [[thread_position_in_grid]]) {
  if (i >= p.rows * p.heads) return;
  const uint head = i % p.heads;
  const float decay = exp(-rate[head] * softplus(a[i] + dt_bias[head]));
  const float gate = sigmoid(b[i]);
  g[i] = decay;
  beta[i] = gate;
}

// deltanet_scan, row after row:  S = g S;  S += k (beta (v - S^T k))^T;  o = S^T q.
//
// One threadgroup of 128 threads per (value head, 32 columns of its state). Four lanes of a simdgroup own a column:
// lane l the rows l, l+4, l+8, ... of it, N of them, in registers from the first row of the chunk to the last. The
// order of every sum is a column's own, so neither a cut of the chunk nor the columns beside it change a bit.
// N is a constant of the build: a loop of unknown length would put the state into memory.
//
//   o     [rows, hv*dv]
//   qkv   [rows, 2*hk*dk + hv*dv]   q, k, v after convolution and unit norms
//   g, beta  [rows, hv]
//   s     [hv, dk, dv]              read, then replaced
template <int N>
kernel void deltanet_scan(device float *o [[buffer(SCAN_O)]],
                          device const float *qkv [[buffer(SCAN_QKV)]],
                          device const float *g [[buffer(SCAN_DECAY)]],
                          device const float *beta [[buffer(SCAN_BETA)]],
                          device float *s [[buffer(SCAN_S)]],
                          constant DeltaScanParams &p [[buffer(PARAMS)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float ks[SCAN_ROWS * 4 * N];
  threadgroup float qs[SCAN_ROWS * 4 * N];
  threadgroup float vs[SCAN_ROWS * SCAN_COLUMNS];
  threadgroup float gs[2 * SCAN_ROWS]; // decay, then beta
  const uint head = group.y, first = group.x * SCAN_COLUMNS;
  const uint part = tid & 3, mine = tid >> 2, column = first + mine;
  const bool owns = column < p.dv;
  const uint key = head / (p.hv / p.hk) * p.dk, width = 2 * p.hk * p.dk + p.hv * p.dv;
  const uint value = 2 * p.hk * p.dk + head * p.dv;

  float state[N];
  for (int i = 0; i < N; i++) {
    const uint row = uint(i) * 4 + part;
    state[i] = owns && row < p.dk ? s[(ulong(head) * p.dk + row) * p.dv + column] : 0.0f;
  }
  for (uint base = 0; base < p.rows; base += SCAN_ROWS) {
    const uint n = min(uint(SCAN_ROWS), p.rows - base);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = tid; e < n * 4 * N; e += BLOCK_THREADS) {
      const uint c = e % (4 * N);
      device const float *row = qkv + ulong(base + e / (4 * N)) * width + key;
      qs[e] = c < p.dk ? row[c] : 0.0f;
      ks[e] = c < p.dk ? row[p.hk * p.dk + c] : 0.0f;
    }
    for (uint e = tid; e < n * 32; e += BLOCK_THREADS) {
      const uint c = first + e % 32;
      vs[e] = c < p.dv ? qkv[ulong(base + e / 32) * width + value + c] : 0.0f;
    }
    if (tid < n) {
      gs[tid] = g[ulong(base + tid) * p.hv + head];
      gs[SCAN_ROWS + tid] = beta[ulong(base + tid) * p.hv + head];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = 0; r < n; r++) {
      const float decay = gs[r];
      float seen = 0.0f; // S^T k
      for (int i = 0; i < N; i++) {
        state[i] *= decay;
        seen += state[i] * ks[(r * N + uint(i)) * 4 + part];
      }
      seen += simd_shuffle_xor(seen, 1);
      seen += simd_shuffle_xor(seen, 2);
      const float delta = gs[SCAN_ROWS + r] * (vs[r * 32 + mine] - seen);
      float out = 0.0f; // S^T q
      for (int i = 0; i < N; i++) {
        state[i] += ks[(r * N + uint(i)) * 4 + part] * delta;
        out += state[i] * qs[(r * N + uint(i)) * 4 + part];
      }
      out += simd_shuffle_xor(out, 1);
      out += simd_shuffle_xor(out, 2);
      if (owns && part == 0) o[ulong(base + r) * p.hv * p.dv + head * p.dv + column] = out;
    }
  }
  for (int i = 0; i < N; i++) {
    const uint row = uint(i) * 4 + part;
    if (owns && row < p.dk) s[(ulong(head) * p.dk + row) * p.dv + column] = state[i];
  }
}
template [[host_name("deltanet_scan_32")]] [[kernel]] decltype(deltanet_scan<8>) deltanet_scan<8>;
template [[host_name("deltanet_scan_64")]] [[kernel]] decltype(deltanet_scan<16>) deltanet_scan<16>;
template [[host_name("deltanet_scan_128")]] [[kernel]] decltype(deltanet_scan<32>) deltanet_scan<32>;
template [[host_name("deltanet_scan_256")]] [[kernel]] decltype(deltanet_scan<64>) deltanet_scan<64>;

// deltanet_gated_norm: o = RMSNorm(o) * w * gate(z), in place; the norm is plain, over each head. gate is silu or
// else the sigmoid. One simdgroup per (row, head); a lane owns every 32nd value of it.
//
//   o, z  [rows, heads*dv]    w  [dv]
kernel void deltanet_gated_norm(device float *o [[buffer(GATED_NORM_O)]],
                                device const float *z [[buffer(GATED_NORM_Z)]],
                                device const float *w [[buffer(GATED_NORM_W)]],
                                constant GatedNormParams &p [[buffer(PARAMS)]],
                                uint group [[threadgroup_position_in_grid]],
                                uint simd [[simdgroup_index_in_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]]) {
  const uint item = group * BLOCK_SIMDS + simd;
  const bool owns = item < p.heads;
  device float *h = o + ulong(owns ? item : 0) * p.dv;
  device const float *gate = z + ulong(owns ? item : 0) * p.dv;
  float sum = 0.0f;
  for (uint i = lane; owns && i < p.dv; i += 32) sum += h[i] * h[i];
  const float factor = rsqrt(simd_sum(sum) / float(p.dv) + p.eps);
  for (uint i = lane; owns && i < p.dv; i += 32) {
    const float s = sigmoid(gate[i]);
    h[i] = h[i] * factor * w[i] * (p.silu != 0 ? gate[i] * s : s);
  }
}
