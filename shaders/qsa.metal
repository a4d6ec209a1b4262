// Gated attention with QSA selection: block keys, scores, the choice of blocks, and attention over what they hold.

// qsa_mean_blocks: y[j] = mean of `ratio` raw keys from row (first + j) * ratio on. One thread per value.
//
//   y    [blocks, dim]
//   raw  [*, dim]       the cache of raw index keys
kernel void qsa_mean_blocks(device float *y [[buffer(MEAN_BLOCKS_Y)]],
                            device const float *raw [[buffer(MEAN_BLOCKS_RAW)]],
                            constant MeanBlocksParams &p [[buffer(PARAMS)]],
                            uint i [[thread_position_in_grid]]) {
  if (i >= p.blocks * p.dim) return;
  device const float *in = raw + ulong(p.first + i / p.dim) * p.ratio * p.dim + i % p.dim;
  float sum = 0.0f;
  for (uint t = 0; t < p.ratio; t++) sum += in[ulong(t) * p.dim];
  y[i] = sum / float(p.ratio);
}

// qsa_score_blocks: score[r, j] = scale * sum over heads, ascending, of relu(iq[r, head] . bk[j]), in float32.
// One threadgroup of 128 threads per 32 rows x 32 blocks, each of its four simdgroups 16 x 16 of them: one product of
// matrices a head, folded as soon as it is complete. Scores of blocks that a row does not have are never read.
//
//   score  [rows, stride]      of the rows first_row.. of the chunk
//   iq     [*, cols]           head i of a row begins at column from + i*head_stride
//   bk     [blocks, dim]
kernel void qsa_score_blocks(device float *score [[buffer(SCORE_OUT)]],
                             device const float *iq [[buffer(SCORE_IQ)]],
                             device const float *bk [[buffer(SCORE_BK)]],
                             constant ScoreBlocksParams &p [[buffer(PARAMS)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint tid [[thread_index_in_threadgroup]],
                             uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float as[32 * 32];
  threadgroup float bs[32 * 32];
  const uint row = group.y * 32, block = group.x * 32;
  const uint sr = (simd >> 1) * 16, sc = (simd & 1) * 16;
  simdgroup_float8x8 total[2][2];
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) total[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint head = 0; head < p.heads; head++) {
    simdgroup_float8x8 acc[2][2];
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint d = 0; d < p.dim; d += 32) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (uint e = tid; e < 32 * 32; e += BLOCK_THREADS) {
        const uint r = e / 32, c = d + e % 32;
        const bool query = row + r < p.rows && c < p.dim, have = block + r < p.blocks && c < p.dim;
        as[e] = query ? iq[ulong(p.first_row + row + r) * p.cols + p.from + head * p.head_stride + c] : 0.0f;
        bs[e] = have ? bk[ulong(block + r) * p.dim + c] : 0.0f;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (uint k = 0; k < 32; k += 8) {
        simdgroup_float8x8 a[2], b[2];
        for (uint i = 0; i < 2; i++) simdgroup_load(a[i], as + (sr + i * 8) * 32 + k, 32);
        for (uint j = 0; j < 2; j++) simdgroup_load(b[j], bs + (sc + j * 8) * 32 + k, 32, ulong2(0), true);
        for (int i = 0; i < 2; i++)
          for (int j = 0; j < 2; j++) simdgroup_multiply_accumulate(acc[i][j], a[i], b[j], acc[i][j]);
      }
    }
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++)
        for (int e = 0; e < 2; e++) {
          const float v = acc[i][j].thread_elements()[e];
          total[i][j].thread_elements()[e] += v > 0.0f ? v * p.scale : 0.0f;
        }
  }
  // rows and blocks of the last tiles that nobody has are there too: score is padded to whole tiles
  for (uint i = 0; i < 2; i++)
    for (uint j = 0; j < 2; j++)
      simdgroup_store(total[i][j], score + ulong(row + sr + i * 8) * p.stride + block + sc + j * 8, p.stride);
}

// qsa_score_few: the same for few rows. One threadgroup per (FEW_BLOCKS blocks, row); eight lanes share a block's key, four
// dims each in turn. dim is a multiple of 4, heads * dim at most FEW_QUERY.
//
//   score, iq, bk  as above
kernel void qsa_score_few(device float *score [[buffer(SCORE_OUT)]],
                          device const float *iq [[buffer(SCORE_IQ)]],
                          device const float *bk [[buffer(SCORE_BK)]],
                          constant ScoreBlocksParams &p [[buffer(PARAMS)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float4 query[FEW_QUERY / 4];
  const uint row = group.y, fours = p.dim / 4, part = tid % 8;
  device const float *in = iq + ulong(p.first_row + row) * p.cols + p.from;
  for (uint e = tid; e < p.heads * fours; e += BLOCK_THREADS) {
    device const float *q = in + e / fours * p.head_stride + e % fours * 4;
    query[e] = float4(q[0], q[1], q[2], q[3]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = tid / 8; i < FEW_BLOCKS; i += BLOCK_THREADS / 8) {
    const uint block = group.x * FEW_BLOCKS + i;
    device const float4 *key = (device const float4 *)(bk + ulong(min(block, p.blocks - 1)) * p.dim);
    float total = 0.0f;
    for (uint head = 0; head < p.heads; head++) {
      float dot = 0.0f;
      for (uint d = part; d < fours; d += 8) {
        const float4 a = query[head * fours + d], b = key[d];
        dot = fma(a[3], b[3], fma(a[2], b[2], fma(a[1], b[1], fma(a[0], b[0], dot))));
      }
      for (ushort m = 1; m < 8; m *= 2) dot += simd_shuffle_xor(dot, m);
      total += dot > 0.0f ? dot * p.scale : 0.0f;
    }
    if (part == 0 && block < p.blocks) score[ulong(row) * p.stride + block] = total;
  }
}

// The digit of eight bits at `shift` of the want-th highest of those that bins counts, plus one, and its rank among the
// numbers that share it: known to all lanes. Lane l owns the bins [8l, 8l+8); `above` counts those of the lanes past it.
METAL_FUNC uint2 select_digit(threadgroup atomic_uint *bins, uint want, uint lane) {
  uint own = 0;
  for (uint i = 0; i < 8; i++) own += atomic_load_explicit(&bins[lane * 8 + i], memory_order_relaxed);
  uint above = simd_sum(own) - simd_prefix_inclusive_sum(own);
  uint found = 0, rank = 0; // in the one lane that holds it
  for (int i = 7; i >= 0; i--) {
    const uint n = atomic_load_explicit(&bins[lane * 8 + uint(i)], memory_order_relaxed);
    if (found == 0 && above < want && above + n >= want) {
      found = lane * 8 + uint(i) + 1;
      rank = want - above;
    }
    above += n;
  }
  return uint2(simd_max(found), simd_max(rank));
}

// qsa_select_blocks: the `budget` best of a row's complete blocks, ties to the lower block, without sorting.
// One threadgroup per row, of any number of simdgroups. Scores are not negative, so their bits order as they do: four
// counting passes of eight bits find the budget-th highest; the last pass lists, ascending, what is above it and the
// first of those equal to it, a stretch of blocks to each simdgroup, which first counts what those before it list.
// Only rows with more complete blocks than the budget come here.
//
//   list   [*, budget]    of all rows of the chunk
//   mask   [*, words]     the same as bits, block j at bit j%32 of word j/32; words may be 0
//   score  [rows, stride] of the rows first_row.. of the chunk
kernel void qsa_select_blocks(device int *list [[buffer(SELECT_LIST)]],
                              device uint *mask [[buffer(SELECT_MASK)]],
                              device const float *score [[buffer(SELECT_SCORE)]],
                              constant SelectBlocksParams &p [[buffer(PARAMS)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint3 size [[threads_per_threadgroup]],
                              uint tid [[thread_index_in_threadgroup]],
                              uint simd [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
  threadgroup atomic_uint bins[256];
  threadgroup uint counts[64]; // by simdgroup: of its stretch what is above the threshold, and what is equal
  const uint row = group.x, simds = size.x / SIMD_WIDTH;
  const uint complete = (p.pos + p.first_row + row + 1) / p.ratio;
  device const float *s = score + ulong(row) * p.stride;
  uint known = 0, seen = 0, want = p.budget; // leading bits of the threshold, their mask, its rank among their equals
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (uint i = tid; i < 256; i += size.x) atomic_store_explicit(&bins[i], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = tid; j < complete; j += size.x) {
      const uint bits = as_type<uint>(s[j]);
      if ((bits & seen) == known) atomic_fetch_add_explicit(&bins[(bits >> shift) & 255u], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint2 digit = select_digit(bins, want, lane);
    want = digit[1];
    known |= (digit[0] - 1) << uint(shift);
    seen |= 255u << uint(shift);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const uint stretch = (complete + size.x - 1) / size.x * SIMD_WIDTH, from = simd * stretch, to = min(complete, from + stretch);
  uint taken = 0, equal = 0; // listed so far, and equals met so far
  if (simds > 1) {
    uint above = 0, ties = 0;
    for (uint j = from + lane; j < to; j += SIMD_WIDTH) {
      const uint bits = as_type<uint>(s[j]);
      above += bits > known ? 1u : 0u;
      ties += bits == known ? 1u : 0u;
    }
    above = simd_sum(above);
    ties = simd_sum(ties);
    if (lane == 0) {
      counts[simd * 2] = above;
      counts[simd * 2 + 1] = ties;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < simd; i++) {
      taken += counts[i * 2];
      equal += counts[i * 2 + 1];
    }
    taken += min(equal, want);
  }
  for (uint base = from; base < to; base += SIMD_WIDTH) {
    const uint j = base + lane;
    const uint bits = j < to ? as_type<uint>(s[j]) : 0u;
    const uint tie = j < to && bits == known ? 1u : 0u;
    const uint before = equal + simd_prefix_exclusive_sum(tie);
    const uint chosen = j < to && (bits > known || (tie == 1u && before < want)) ? 1u : 0u;
    const uint place = taken + simd_prefix_exclusive_sum(chosen);
    const uint word = simd_sum(chosen << lane);
    if (chosen == 1u) list[ulong(p.first_row + row) * p.budget + place] = int(j);
    if (lane == 0 && base / 32 < p.words) mask[ulong(p.first_row + row) * p.words + base / 32] = word;
    taken += simd_sum(chosen);
    equal += simd_sum(tie);
  }
}

// What a threadgroup of qsa_attend attends with: pairs of a row of the chunk and a query head, all of one key head.
struct AttendPairs {
  uint first; // pair = row * per + query head, rows from first_row on
  uint count;
  uint per;   // query heads of a key head
  uint head;  // key head
};

// The row of the chunk that pair i of the threadgroup belongs to, and the number of its query head among those of all
// rows. A pair past the end stands for the first.
METAL_FUNC uint attend_row(AttendPairs a, constant AttendParams &p, uint i) {
  return p.first_row + (i < a.count ? a.first + i : a.first) / a.per;
}
METAL_FUNC ulong attend_query(AttendPairs a, constant AttendParams &p, uint i) {
  return ulong(attend_row(a, p, i)) * p.hq + a.head * a.per + (i < a.count ? a.first + i : a.first) % a.per;
}

// Key number i of what a row sees: the tokens of its blocks, then those of its incomplete block.
METAL_FUNC uint attend_token(device const int *list, constant AttendParams &p, uint row, uint i) {
  const uint blocks = (p.pos + row + 1) / p.ratio;
  if (blocks <= p.budget) return i;
  if (i >= p.budget * p.ratio) return i - p.budget * p.ratio + blocks * p.ratio;
  return uint(list[ulong(row) * p.budget + i / p.ratio]) * p.ratio + i % p.ratio;
}

// A cache of keys or values as attention reads it.
struct AttendCache {
  device const uchar *data;  // [*, hkv*hd] in the format
  device const half *scales; // [*, hkv, groups] with ROWS_Q8
};

// Dim c of a head of a row. FORMAT is a ROWS_*.
template <int FORMAT>
METAL_FUNC float attend_value(AttendCache cache, constant AttendParams &p, uint token, uint head, uint c) {
  const ulong run = ulong(token) * p.hkv + head;
  if (FORMAT == ROWS_F32) return ((device const float *)cache.data)[run * p.hd + c];
  if (FORMAT == ROWS_F16) return float(((device const half *)cache.data)[run * p.hd + c]);
  const int code = int(cache.data[run * p.hd + c] ^ 128) - 128;
  return float(code) * float(cache.scales[run * ((p.hd + ROW_GROUP - 1) / ROW_GROUP) + c / ROW_GROUP]);
}

template <typename T, int KEYS, int DIMS, int FORMAT>
METAL_FUNC void attend_stage_as(threadgroup T *kv, AttendCache cache, threadgroup const uint *tokens, uint n,
                                constant AttendParams &p, uint head, uint first, uint from, uint tid) {
  for (uint e = tid; e < KEYS * DIMS; e += BLOCK_THREADS) {
    const uint i = first + e / DIMS, c = from + e % DIMS;
    kv[e] = T(i < n && c < p.hd ? attend_value<FORMAT>(cache, p, tokens[i], head, c) : 0.0f);
  }
}

// Stages the dims [from, from+DIMS) of the tile's keys [first, first+KEYS) from a cache, zeros where there is nothing.
template <typename T, int KEYS, int DIMS>
METAL_FUNC void attend_stage(threadgroup T *kv, AttendCache cache, threadgroup const uint *tokens, uint n,
                             constant AttendParams &p, uint head, uint first, uint from, uint tid) {
  if (p.format == ROWS_F32) attend_stage_as<T, KEYS, DIMS, ROWS_F32>(kv, cache, tokens, n, p, head, first, from, tid);
  else if (p.format == ROWS_F16) attend_stage_as<T, KEYS, DIMS, ROWS_F16>(kv, cache, tokens, n, p, head, first, from, tid);
  else attend_stage_as<T, KEYS, DIMS, ROWS_Q8>(kv, cache, tokens, n, p, head, first, from, tid);
}

// The softmax of a tile's scores, taken online: ps = e^(ss - top) for the n keys from number base on, where a row sees
// them. EACH neighbouring lanes own a row, key after key in turn, and all hold its top score and its sum. Returns by
// what the row's sums so far have to be scaled.
template <typename T, int EACH, bool GATHER>
METAL_FUNC float attend_weigh(thread float &top, thread float &sum, threadgroup T *ps, threadgroup const float *ss,
                              device const uint *mask, constant AttendParams &p, AttendPairs a, uint base, uint n, uint tid) {
  const uint r = tid / EACH, row = attend_row(a, p, r), pos = p.pos + row, complete = (pos + 1) / p.ratio;
  uint seen = 0; // the keys that the row sees, as bits
  float high = -FLT_MAX;
  for (uint i = tid % EACH; i < n; i += EACH) {
    const uint token = base + i, b = token / p.ratio;
    bool visible = r < a.count;
    if (!GATHER) {
      visible = visible && token <= pos;
      if (visible && b < complete && complete > p.budget) visible = ((mask[ulong(row) * p.words + b / 32] >> (b % 32)) & 1u) != 0;
    }
    if (visible) {
      seen |= 1u << i;
      high = max(high, ss[r * 32 + i]);
    }
  }
  for (uint m = 1; m < EACH; m *= 2) high = max(high, simd_shuffle_xor(high, ushort(m)));
  const float now = max(top, high), keep = exp(top - now);
  float add = 0.0f;
  for (uint i = tid % EACH; i < 32; i += EACH) {
    const T e = T((seen >> i) & 1u ? exp(ss[r * 32 + i] - now) : 0.0f);
    ps[r * 32 + i] = e;
    add += float(e); // what is summed is what weighs the values
  }
  for (uint m = 1; m < EACH; m *= 2) add += simd_shuffle_xor(add, ushort(m));
  top = now;
  sum = sum * keep + add;
  return keep;
}

// qsa_attend: o = softmax(q k^T / sqrt(hd) over what a row sees) v * sigmoid(gate), with the softmax taken online in
// float32 over tiles of 32 keys. T is what Q, K, V and P are staged in (half or float), HD the head's dims rounded up,
// R the pairs of a threadgroup of 128 threads, which share every gather of K and V. Pairs past the end and dims past hd
// are zeros, and never reach a result.
//
// GATHER: a threadgroup has the heads of one row of the chunk, and its keys are the tokens of the row's blocks, then
// of its incomplete block. Otherwise the keys are all tokens up to the last that one of its rows sees, and the mask
// says which row sees which: a tile that a row sees nothing of leaves that row's sums alone, to the bit.
//
// Simdgroup i scores the keys [8i, 8i+8) of a tile and owns the columns [i*HD/4, (i+1)*HD/4) of the output.
//
//   o     [*, hq*hd]
//   qg    [*, hq*2*hd]     every head's q, then its gate
//   k, v  [*, hkv*hd]      caches, in the format; with 8-bit codes their scales are beside them
//   list  [*, budget], mask [*, words]   of qsa_select_blocks, for rows with more complete blocks than the budget
//   grid: dense: x over tiles of pairs, y over key heads; gathered: x over rows, y over key heads, z over tiles of heads
template <typename T, int HD, int R, bool GATHER>
kernel void qsa_attend(device float *o [[buffer(ATTEND_O)]],
                       device const float *qg [[buffer(ATTEND_QG)]],
                       device const uchar *k [[buffer(ATTEND_K)]],
                       device const uchar *v [[buffer(ATTEND_V)]],
                       device const half *k_scales [[buffer(ATTEND_K_SCALES)]],
                       device const half *v_scales [[buffer(ATTEND_V_SCALES)]],
                       device const int *list [[buffer(ATTEND_LIST)]],
                       device const uint *mask [[buffer(ATTEND_MASK)]],
                       constant AttendParams &p [[buffer(PARAMS)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint tid [[thread_index_in_threadgroup]],
                       uint simd [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
  const int DEPTH = HD < 64 ? HD : 64;              // dims of K staged at once
  const int KEYS = 2048 / HD < 32 ? 2048 / HD : 32; // keys of V staged at once
  const int COLS = HD / 32;                         // column tiles of a simdgroup
  const int EACH = BLOCK_THREADS / R;               // lanes that share a row of scores
  threadgroup T qs[R * HD];
  threadgroup T kv[2048];
  threadgroup float ss[R * 32];  // scores of the tile; at the end each simdgroup's 8 x 8 of output
  threadgroup T ps[R * 32];      // their exponentials
  threadgroup float diag[R * 8]; // R/8 diagonal matrices that scale rows
  threadgroup float sums[R];     // of the exponentials of a row
  threadgroup uint tokens[32];   // of the tile

  AttendCache keys_of, values_of;
  keys_of.data = k;
  keys_of.scales = k_scales;
  values_of.data = v;
  values_of.scales = v_scales;
  AttendPairs a;
  a.per = p.hq / p.hkv;
  a.head = group.y;
  a.first = GATHER ? group.x * a.per + group.z * R : group.x * R;
  a.count = min(uint(R), (GATHER ? (group.x + 1) * a.per : p.rows * a.per) - a.first);
  const uint last = attend_row(a, p, a.count - 1), position = p.pos + last, blocks = (position + 1) / p.ratio;
  const uint keys = GATHER && blocks > p.budget ? position + 1 - (blocks - p.budget) * p.ratio : position + 1;

  for (uint e = tid; e < R * HD; e += BLOCK_THREADS) {
    const uint i = e / HD, c = e % HD;
    qs[e] = T(i < a.count && c < p.hd ? qg[attend_query(a, p, i) * 2 * p.hd + c] * p.scale : 0.0f);
  }
  for (uint e = tid; e < R * 8; e += BLOCK_THREADS) diag[e] = 0.0f;
  float top = -FLT_MAX, sum = 0.0f; // of row tid / EACH
  simdgroup_float8x8 acc[R / 8][COLS];
  for (int i = 0; i < R / 8; i++)
    for (int j = 0; j < COLS; j++) acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  for (uint base = 0; base < keys; base += 32) {
    const uint n = min(32u, keys - base);
    if (tid < n) tokens[tid] = GATHER ? attend_token(list, p, last, base + tid) : base + tid;

    // scores: R x 32, over the dims in ascending order
    simdgroup_float8x8 s[R / 8];
    for (int i = 0; i < R / 8; i++) s[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int d = 0; d < HD; d += DEPTH) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      attend_stage<T, 32, DEPTH>(kv, keys_of, tokens, n, p, a.head, 0, uint(d), tid);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int c = 0; c < DEPTH; c += 8) {
        simdgroup_matrix<T, 8, 8> x, y;
        simdgroup_load(y, kv + simd * 8 * DEPTH + c, DEPTH, ulong2(0), true);
        for (int i = 0; i < R / 8; i++) {
          simdgroup_load(x, qs + i * 8 * HD + d + c, HD);
          simdgroup_multiply_accumulate(s[i], x, y, s[i]);
        }
      }
    }
    for (int i = 0; i < R / 8; i++) simdgroup_store(s[i], ss + i * 8 * 32 + simd * 8, 32);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float keep = attend_weigh<T, EACH, GATHER>(top, sum, ps, ss, mask, p, a, base, n, tid);
    if (tid % EACH == 0) diag[tid / EACH / 8 * 64 + tid / EACH % 8 * 9] = keep;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // sums of values: scaled to the new top by a product with a diagonal matrix, which needs no map of lanes
    for (int i = 0; i < R / 8; i++) {
      simdgroup_float8x8 scale;
      simdgroup_load(scale, diag + i * 64, 8);
      for (int j = 0; j < COLS; j++) {
        simdgroup_float8x8 scaled = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        simdgroup_multiply_accumulate(scaled, scale, acc[i][j], scaled);
        acc[i][j] = scaled;
      }
    }
    for (int first = 0; first < 32; first += KEYS) {
      if (first > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
      attend_stage<T, KEYS, HD>(kv, values_of, tokens, n, p, a.head, uint(first), 0, tid);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int c = 0; c < KEYS; c += 8) {
        simdgroup_matrix<T, 8, 8> x[R / 8], y;
        for (int i = 0; i < R / 8; i++) simdgroup_load(x[i], ps + i * 8 * 32 + first + c, 32);
        for (int j = 0; j < COLS; j++) {
          simdgroup_load(y, kv + c * HD + (int(simd) * COLS + j) * 8, HD);
          for (int i = 0; i < R / 8; i++) simdgroup_multiply_accumulate(acc[i][j], x[i], y, acc[i][j]);
        }
      }
    }
  }

  // every simdgroup spills its tiles one by one to its own part of ss
  if (tid % EACH == 0) sums[tid / EACH] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float *spill = ss + simd * 64;
  for (int i = 0; i < R / 8; i++)
    for (int j = 0; j < COLS; j++) {
      simdgroup_store(acc[i][j], spill, 8);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (uint e = lane; e < 64; e += SIMD_WIDTH) {
        const uint r = uint(i) * 8 + e / 8, c = (simd * COLS + uint(j)) * 8 + e % 8;
        if (r < a.count && c < p.hd) {
          const ulong query = attend_query(a, p, r);
          o[query * p.hd + c] = spill[e] / sums[r] * sigmoid(qg[(query * 2 + 1) * p.hd + c]);
        }
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
}
#define QSA_ATTEND(name, type, dims, rows, gather) \
  template [[host_name(#name)]] [[kernel]] decltype(qsa_attend<type, dims, rows, gather>) qsa_attend<type, dims, rows, gather>;
QSA_ATTEND(qsa_attend_dense_half_32, half, 32, DENSE_ROWS, false)
QSA_ATTEND(qsa_attend_dense_half_64, half, 64, DENSE_ROWS, false)
QSA_ATTEND(qsa_attend_dense_half_128, half, 128, DENSE_ROWS, false)
QSA_ATTEND(qsa_attend_dense_half_256, half, 256, DENSE_ROWS, false)
QSA_ATTEND(qsa_attend_gather_half_32, half, 32, GATHER_ROWS, true)
QSA_ATTEND(qsa_attend_gather_half_64, half, 64, GATHER_ROWS, true)
QSA_ATTEND(qsa_attend_gather_half_128, half, 128, GATHER_ROWS, true)
QSA_ATTEND(qsa_attend_gather_half_256, half, 256, GATHER_ROWS, true)
// in float32 the dense form has no more rows than the gathered one: staged Q would not fit
QSA_ATTEND(qsa_attend_dense_float_32, float, 32, GATHER_ROWS, false)
QSA_ATTEND(qsa_attend_dense_float_64, float, 64, GATHER_ROWS, false)
QSA_ATTEND(qsa_attend_dense_float_128, float, 128, GATHER_ROWS, false)
QSA_ATTEND(qsa_attend_dense_float_256, float, 256, GATHER_ROWS, false)
QSA_ATTEND(qsa_attend_gather_float_32, float, 32, GATHER_ROWS, true)
QSA_ATTEND(qsa_attend_gather_float_64, float, 64, GATHER_ROWS, true)
QSA_ATTEND(qsa_attend_gather_float_128, float, 128, GATHER_ROWS, true)
QSA_ATTEND(qsa_attend_gather_float_256, float, 256, GATHER_ROWS, true)

// How many keys a row of the chunk sees.
METAL_FUNC uint attend_keys(constant AttendParams &p, uint row) {
  const uint position = p.pos + row, blocks = (position + 1) / p.ratio;
  return blocks > p.budget ? position + 1 - (blocks - p.budget) * p.ratio : position + 1;
}

// Dims [c, c+4) of a head of a row, zeros from hd on.
template <int FORMAT>
METAL_FUNC float4 attend_four(AttendCache cache, constant AttendParams &p, uint token, uint head, uint c) {
  if (FORMAT == ROWS_F32 && p.hd % 4 == 0) { // whole float4s
    const float4 four = *(device const float4 *)(cache.data + ((ulong(token) * p.hkv + head) * p.hd + min(c, p.hd - 4)) * 4);
    return c < p.hd ? four : float4(0.0f);
  }
  float4 v = float4(0.0f);
  for (uint i = 0; i < 4; i++)
    if (c + i < p.hd) v[i] = attend_value<FORMAT>(cache, p, token, head, c + i);
  return v;
}

// A part of a row's keys, and the query heads that attend to it.
struct AttendFew {
  uint head;  // key head
  uint heads; // query heads, FEW_HEADS at most
  uint n;     // keys
};

// ss[key][head] = q . k. Eight lanes share a key, four dims each in turn.
template <int HD, int FORMAT>
METAL_FUNC void attend_few_scores(threadgroup float4 *ss, threadgroup const float4 *qs, AttendCache keys, threadgroup const uint *tokens,
                                  constant AttendParams &p, uint head, uint tid) {
  const uint part = tid % 8;
  for (uint i = tid / 8; i < FEW_KEYS; i += BLOCK_THREADS / 8) {
    float4 dots = float4(0.0f), own[HD / 32];
    for (int j = 0; j < HD / 32; j++) own[j] = attend_four<FORMAT>(keys, p, tokens[i], head, (part + uint(j) * 8) * 4); // all under way at once
    for (int j = 0; j < HD / 32; j++) {
      const float4 key = own[j];
      for (int h = 0; h < FEW_HEADS; h++) {
        const float4 q = qs[h * (HD / 4) + int(part) + j * 8];
        dots[h] = fma(q[3], key[3], fma(q[2], key[2], fma(q[1], key[1], fma(q[0], key[0], dots[h]))));
      }
    }
    for (int h = 0; h < FEW_HEADS; h++)
      for (ushort m = 1; m < 8; m *= 2) dots[h] += simd_shuffle_xor(dots[h], m);
    if (part == 0) ss[i] = dots;
  }
}

// Columns of the sums of values, each thread every BLOCK_THREADS'th of them, keys in their order.
template <int HD, int FORMAT>
METAL_FUNC void attend_few_values(device float *out, uint pitch, threadgroup const float4 *ss, AttendCache values, threadgroup const uint *tokens,
                                  constant AttendParams &p, AttendFew few, uint tid) {
  for (uint c = tid; c < p.hd; c += BLOCK_THREADS) {
    float4 sums = float4(0.0f);
    for (uint i = 0; i < FEW_KEYS; i += FEW_KEYS / 2) { // as many loads under way at once
      if (i >= few.n) break;
      float v[FEW_KEYS / 2];
      for (uint j = 0; j < FEW_KEYS / 2; j++) v[j] = attend_value<FORMAT>(values, p, tokens[i + j], few.head, c);
      for (uint j = 0; j < FEW_KEYS / 2; j++) {
        const float4 weights = ss[i + j];
        for (int h = 0; h < FEW_HEADS; h++) sums[h] = fma(weights[h], v[j], sums[h]);
      }
    }
    for (uint h = 0; h < FEW_HEADS; h++)
      if (h < few.heads) out[h * pitch + c] = sums[h];
  }
}

// qsa_attend_few: attention by few rows to FEW_KEYS of the keys that a row sees, float32 from end to end. One threadgroup
// per (part of the keys, key head and FEW_HEADS of its query heads, row). Which keys are a part's goes by the row alone,
// so that a row's bits do not depend on the rows beside it. A row that has fewer parts leaves the others alone.
//
//   part  [rows, hq, parts, hd+2]   sums of weighted values, the top score, the sum of the weights
//   the others as in qsa_attend
//   grid: x over parts, y over key heads and, in each, tiles of query heads, z over rows
template <int HD>
kernel void qsa_attend_few(device float *part [[buffer(ATTEND_PART)]],
                           device const float *qg [[buffer(ATTEND_QG)]],
                           device const uchar *k [[buffer(ATTEND_K)]],
                           device const uchar *v [[buffer(ATTEND_V)]],
                           device const half *k_scales [[buffer(ATTEND_K_SCALES)]],
                           device const half *v_scales [[buffer(ATTEND_V_SCALES)]],
                           device const int *list [[buffer(ATTEND_LIST)]],
                           constant AttendParams &p [[buffer(PARAMS)]],
                           uint3 group [[threadgroup_position_in_grid]],
                           uint tid [[thread_index_in_threadgroup]],
                           uint simd [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 qs[FEW_HEADS * HD / 4]; // [head][dims]
  threadgroup float4 ss[FEW_KEYS];           // [key][head]: scores, then weights
  threadgroup uint tokens[FEW_KEYS];
  const uint row = p.first_row + group.z, per = p.hq / p.hkv, tiles = (per + FEW_HEADS - 1) / FEW_HEADS;
  const uint keys = attend_keys(p, row), first = group.x * FEW_KEYS;
  if (first >= keys) return; // the whole threadgroup
  AttendFew few;
  few.head = group.y / tiles;
  few.heads = min(uint(FEW_HEADS), per - group.y % tiles * FEW_HEADS);
  few.n = min(uint(FEW_KEYS), keys - first);
  const ulong query = ulong(row) * p.hq + few.head * per + group.y % tiles * FEW_HEADS;
  AttendCache keys_of, values_of;
  keys_of.data = k;
  keys_of.scales = k_scales;
  values_of.data = v;
  values_of.scales = v_scales;

  for (uint e = tid; e < FEW_HEADS * HD; e += BLOCK_THREADS) {
    const uint h = e / HD, c = e % HD;
    ((threadgroup float *)qs)[e] = h < few.heads && c < p.hd ? qg[(query + h) * 2 * p.hd + c] * p.scale : 0.0f;
  }
  if (tid < FEW_KEYS) tokens[tid] = attend_token(list, p, row, first + min(tid, few.n - 1));
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (p.format == ROWS_F32) attend_few_scores<HD, ROWS_F32>(ss, qs, keys_of, tokens, p, few.head, tid);
  else if (p.format == ROWS_F16) attend_few_scores<HD, ROWS_F16>(ss, qs, keys_of, tokens, p, few.head, tid);
  else attend_few_scores<HD, ROWS_Q8>(ss, qs, keys_of, tokens, p, few.head, tid);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // a simdgroup for each head: weights of the part's keys, and nothing for those past them
  threadgroup float *scores = (threadgroup float *)ss + simd;
  float score[FEW_KEYS / SIMD_WIDTH], top = -FLT_MAX, sum = 0.0f;
  for (uint i = 0; i < FEW_KEYS / SIMD_WIDTH; i++) {
    score[i] = i * SIMD_WIDTH + lane < few.n ? scores[(i * SIMD_WIDTH + lane) * FEW_HEADS] : -FLT_MAX;
    top = max(top, score[i]);
  }
  top = simd_max(top);
  for (uint i = 0; i < FEW_KEYS / SIMD_WIDTH; i++) {
    const float e = i * SIMD_WIDTH + lane < few.n ? exp(score[i] - top) : 0.0f;
    scores[(i * SIMD_WIDTH + lane) * FEW_HEADS] = e;
    sum += e;
  }
  sum = simd_sum(sum);
  const uint pitch = p.parts * (p.hd + 2);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device float *out = part + ((ulong(group.z) * p.hq + few.head * per + group.y % tiles * FEW_HEADS) * p.parts + group.x) * (p.hd + 2);
  if (lane == 0 && simd < few.heads) {
    out[simd * pitch + p.hd] = top;
    out[simd * pitch + p.hd + 1] = sum;
  }
  if (p.format == ROWS_F32) attend_few_values<HD, ROWS_F32>(out, pitch, ss, values_of, tokens, p, few, tid);
  else if (p.format == ROWS_F16) attend_few_values<HD, ROWS_F16>(out, pitch, ss, values_of, tokens, p, few, tid);
  else attend_few_values<HD, ROWS_Q8>(out, pitch, ss, values_of, tokens, p, few, tid);
}
static_assert(FEW_HEADS == BLOCK_SIMDS && FEW_HEADS == 4, "a simdgroup weighs one head's keys, and float4 holds all heads");
#define QSA_ATTEND_FEW(name, dims) template [[host_name(#name)]] [[kernel]] decltype(qsa_attend_few<dims>) qsa_attend_few<dims>;
QSA_ATTEND_FEW(qsa_attend_few_32, 32)
QSA_ATTEND_FEW(qsa_attend_few_64, 64)
QSA_ATTEND_FEW(qsa_attend_few_128, 128)
QSA_ATTEND_FEW(qsa_attend_few_256, 256)

// qsa_attend_join: the parts of qsa_attend_few, ascending: o = their sums of values, each scaled to the row's top score,
// over their weights * sigmoid(gate). One threadgroup per (query head, row, BLOCK_THREADS dims), a thread a dim.
//
//   o   [*, hq*hd]    qg  [*, hq*2*hd]    part  [rows, hq, parts, hd+2]
kernel void qsa_attend_join(device float *o [[buffer(ATTEND_O)]],
                            device const float *qg [[buffer(ATTEND_QG)]],
                            device const float *part [[buffer(ATTEND_PART)]],
                            constant AttendParams &p [[buffer(PARAMS)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]]) {
  threadgroup float shares[BLOCK_THREADS]; // of some parts: what their sums are scaled by
  threadgroup float sums[BLOCK_THREADS];   // and their weights
  const uint row = p.first_row + group.y, parts = (attend_keys(p, row) + FEW_KEYS - 1) / FEW_KEYS;
  device const float *in = part + (ulong(group.y) * p.hq + group.x) * p.parts * (p.hd + 2);
  const uint pitch = p.hd + 2, c = group.z * BLOCK_THREADS + tid, column = min(c, p.hd - 1);
  const ulong query = ulong(row) * p.hq + group.x;
  const float gate = qg[(query * 2 + 1) * p.hd + column];
  float top = -FLT_MAX;
  for (uint i = tid % SIMD_WIDTH; i < parts; i += SIMD_WIDTH) top = max(top, in[i * pitch + p.hd]);
  top = simd_max(top);
  float sum = 0.0f, weights = 0.0f;
  for (uint from = 0; from < parts; from += BLOCK_THREADS) {
    const uint n = min(uint(BLOCK_THREADS), parts - from);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < n) {
      shares[tid] = exp(in[(from + tid) * pitch + p.hd] - top);
      sums[tid] = in[(from + tid) * pitch + p.hd + 1];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < n; i += 16) { // as many loads under way at once
      float one[16];
      for (uint j = 0; j < 16; j++) one[j] = in[(from + min(i + j, n - 1)) * pitch + column];
      for (uint j = 0; j < 16; j++) {
        if (i + j >= n) break;
        sum = fma(shares[i + j], one[j], sum);
        weights = fma(shares[i + j], sums[i + j], weights);
      }
    }
  }
  if (c < p.hd) o[query * p.hd + c] = sum / weights * sigmoid(gate);
}
