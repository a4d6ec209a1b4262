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

// Channel c of row r after the convolution.
METAL_FUNC float step_conv(device const float *raw, device const float *tail, device const float *w, constant DeltaStepParams &p, uint channels, uint r, uint c) {
  float sum = 0.0f;
  if (p.taps == 4) { // all on their way at once
    float in[4], by[4];
    for (int j = 0; j < 4; j++) {
      const uint back = 3 - uint(j);
      in[j] = r >= back ? raw[ulong(r - back) * channels + c] : tail[ulong(3 + r - back) * channels + c];
      by[j] = w[c * 4 + uint(j)];
    }
    for (int j = 0; j < 4; j++) sum = fma(by[j], in[j], sum);
    return silu(sum);
  }
  for (uint j = 0; j < p.taps; j++) {
    const uint back = p.taps - 1 - j;
    const float in = r >= back ? raw[ulong(r - back) * channels + c] : tail[ulong(p.taps - 1 + r - back) * channels + c];
    sum = fma(w[c * p.taps + j], in, sum);
  }
  return silu(sum);
}

// What a column of the tail becomes: its own rows followed by those of raw, the last of them.
METAL_FUNC void step_tail(device float *next, device const float *tail, device const float *raw, constant DeltaStepParams &p, uint channels, uint c) {
  if (p.taps == 4) {
    float own[3];
    for (int i = 0; i < 3; i++) {
      const uint from = uint(i) + p.rows;
      own[i] = from < 3 ? tail[ulong(from) * channels + c] : raw[ulong(from - 3) * channels + c];
    }
    for (int i = 0; i < 3; i++) next[ulong(i) * channels + c] = own[i];
    return;
  }
  for (uint i = 0; i + 1 < p.taps; i++) {
    const uint from = i + p.rows;
    next[ulong(i) * channels + c] = from < p.taps - 1 ? tail[ulong(from) * channels + c] : raw[ulong(from - (p.taps - 1)) * channels + c];
  }
}

// deltanet_step: what lies between the projections, for few rows: the bits of dense_conv, deltanet_unit_heads,
// deltanet_gates, deltanet_scan, dense_shift_tail and deltanet_gated_norm.
//
// One threadgroup of four threads a column per value head: it carries its own channels through, and the key head's that it
// shares with its neighbours, of which the first one writes what they have in common. State and tail are read in one place
// and written in another, so that nobody reads what a neighbour has written.
//
//   o, z  [rows, hv*dv]   qkv, raw  [rows, C], C = 2*hk*dk + hv*dv   tail, tail_next  [taps-1, C]   conv  [C, taps]
//   a, b  [rows, hv]      rate, dt_bias  [hv]      norm  [dv]        s, s_next  [hv, dk, dv]
template <int N>
[[max_total_threads_per_threadgroup(512)]] kernel void
deltanet_step(device float *o [[buffer(STEP_O)]],
              device float *qkv [[buffer(STEP_QKV)]],
              device const float *raw [[buffer(STEP_RAW)]],
              device const float *tail [[buffer(STEP_TAIL)]],
              device float *tail_next [[buffer(STEP_TAIL_NEXT)]],
              device const float *conv [[buffer(STEP_CONV)]],
              device const float *z [[buffer(STEP_Z)]],
              device float *a [[buffer(STEP_A)]],
              device float *b [[buffer(STEP_B)]],
              device const float *rate [[buffer(STEP_RATE)]],
              device const float *dt_bias [[buffer(STEP_DT_BIAS)]],
              device const float *norm [[buffer(STEP_NORM)]],
              device const float *s [[buffer(STEP_S)]],
              device float *s_next [[buffer(STEP_S_NEXT)]],
              constant DeltaStepParams &p [[buffer(PARAMS)]],
              uint head [[threadgroup_position_in_grid]],
              uint size [[threads_per_threadgroup]],
              uint tid [[thread_index_in_threadgroup]],
              uint simd [[simdgroup_index_in_threadgroup]],
              uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float qs[STEP_ROWS * 4 * N];
  threadgroup float ks[STEP_ROWS * 4 * N];
  threadgroup float vs[STEP_ROWS * STEP_COLUMNS];
  threadgroup float os[STEP_ROWS * STEP_COLUMNS];
  threadgroup float gs[2 * STEP_ROWS]; // decay, then beta
  const uint part = tid & 3, column = tid >> 2, each = p.hv / p.hk, channels = 2 * p.hk * p.dk + p.hv * p.dv, simds = size / SIMD_WIDTH;
  const uint query = head / each * p.dk, key = p.hk * p.dk + query, value = 2 * p.hk * p.dk + head * p.dv;
  const bool first = head % each == 0;

  if (tid == 0) fetch_ahead(s + ulong(head) * p.dk * p.dv, 4 * p.dk * p.dv);
  inputs_ready(0);
  float state[N];
  for (int i = 0; i < N; i++) {
    const uint row = uint(i) * 4 + part;
    state[i] = row < p.dk ? s[(ulong(head) * p.dk + row) * p.dv + column] : 0.0f;
  }
  for (uint base = 0; base < p.rows; base += STEP_ROWS) {
    const uint n = min(uint(STEP_ROWS), p.rows - base);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = 0; r < n; r++)
      for (uint i = tid; i < 8 * N + p.dv; i += size) {
        if (i < 4 * N) qs[r * 4 * N + i] = i < p.dk ? step_conv(raw, tail, conv, p, channels, base + r, query + i) : 0.0f;
        else if (i < 8 * N) ks[r * 4 * N + i - 4 * N] = i - 4 * N < p.dk ? step_conv(raw, tail, conv, p, channels, base + r, key + i - 4 * N) : 0.0f;
        else vs[r * STEP_COLUMNS + i - 8 * N] = step_conv(raw, tail, conv, p, channels, base + r, value + i - 8 * N);
      }
    if (tid < n) {
      const ulong at = ulong(base + tid) * p.hv + head;
      gs[tid] = exp(-rate[head] * softplus(a[at] + dt_bias[head]));
      gs[STEP_ROWS + tid] = sigmoid(b[at]);
      a[at] = gs[tid];
      b[at] = gs[STEP_ROWS + tid];
    }
    float gates[STEP_COLUMNS / SIMD_WIDTH], gains[STEP_COLUMNS / SIMD_WIDTH]; // of the row whose output the simdgroup norms first
    for (int i = 0; i < STEP_COLUMNS / SIMD_WIDTH; i++) {
      const uint c = uint(i) * SIMD_WIDTH + lane;
      const bool have = simd < n && c < p.dv;
      gates[i] = have ? z[(ulong(base + simd) * p.hv + head) * p.dv + c] : 0.0f;
      gains[i] = have ? norm[c] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint item = simd; item < 2 * n; item += simds) { // unit norms
      const uint r = item / 2, is_key = item % 2;
      threadgroup float *h = is_key != 0 ? ks + r * 4 * N : qs + r * 4 * N;
      float sum = 0.0f;
      for (uint i = lane; i < p.dk; i += SIMD_WIDTH) sum += h[i] * h[i];
      const float factor = (is_key != 0 ? 1.0f : p.scale) * rsqrt(simd_sum(sum) + 1e-6f);
      for (uint i = lane; i < p.dk; i += SIMD_WIDTH) {
        h[i] *= factor;
        if (first) qkv[ulong(base + r) * channels + (is_key != 0 ? key : query) + i] = h[i];
      }
    }
    for (uint r = 0; r < n; r++)
      if (tid < p.dv) qkv[ulong(base + r) * channels + value + tid] = vs[r * STEP_COLUMNS + tid];
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
      const float delta = gs[STEP_ROWS + r] * (vs[r * STEP_COLUMNS + column] - seen);
      float out = 0.0f; // S^T q
      for (int i = 0; i < N; i++) {
        state[i] += ks[(r * N + uint(i)) * 4 + part] * delta;
        out += state[i] * qs[(r * N + uint(i)) * 4 + part];
      }
      out += simd_shuffle_xor(out, 1);
      out += simd_shuffle_xor(out, 2);
      if (part == 0) os[r * STEP_COLUMNS + column] = out;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = simd; r < n; r += simds) {
      const ulong row = (ulong(base + r) * p.hv + head) * p.dv;
      threadgroup const float *h = os + r * STEP_COLUMNS;
      float sum = 0.0f;
      for (uint i = lane; i < p.dv; i += SIMD_WIDTH) sum += h[i] * h[i];
      const float factor = rsqrt(simd_sum(sum) / float(p.dv) + p.eps);
      for (int i = 0; i < STEP_COLUMNS / SIMD_WIDTH; i++) {
        const uint c = uint(i) * SIMD_WIDTH + lane;
        if (c >= p.dv) continue;
        const float gate = r == simd ? gates[i] : z[row + c], open = sigmoid(gate);
        o[row + c] = h[c] * factor * (r == simd ? gains[i] : norm[c]) * (p.silu != 0 ? gate * open : open);
      }
    }
  }
  for (int i = 0; i < N; i++) {
    const uint row = uint(i) * 4 + part;
    if (row < p.dk) s_next[(ulong(head) * p.dk + row) * p.dv + column] = state[i];
  }
  for (uint i = tid; i < p.dv; i += size) step_tail(tail_next, tail, raw, p, channels, value + i);
  for (uint i = tid; first && i < p.dk; i += size) {
    step_tail(tail_next, tail, raw, p, channels, query + i);
    step_tail(tail_next, tail, raw, p, channels, key + i);
  }
}
static_assert(4 * STEP_COLUMNS <= 512, "a threadgroup is bounded");
template [[host_name("deltanet_step_32")]] [[kernel]] decltype(deltanet_step<8>) deltanet_step<8>;
template [[host_name("deltanet_step_64")]] [[kernel]] decltype(deltanet_step<16>) deltanet_step<16>;
template [[host_name("deltanet_step_128")]] [[kernel]] decltype(deltanet_step<32>) deltanet_step<32>;

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
