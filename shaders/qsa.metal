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

// qsa_select_blocks: the `budget` best of a row's complete blocks, ties to the lower block, without sorting.
// One simdgroup per row. Scores are not negative, so their bits order as they do: four counting passes of eight bits
// find the budget-th highest; the last pass lists, ascending, what is above it and the first of those equal to it.
// Only rows with more complete blocks than the budget come here.
//
//   list   [*, budget]    of all rows of the chunk
//   mask   [*, words]     the same as bits, block j at bit j%32 of word j/32; words may be 0
//   score  [rows, stride] of the rows first_row.. of the chunk
kernel void qsa_select_blocks(device int *list [[buffer(SELECT_LIST)]],
                              device uint *mask [[buffer(SELECT_MASK)]],
                              device const float *score [[buffer(SELECT_SCORE)]],
                              constant SelectBlocksParams &p [[buffer(PARAMS)]],
                              uint row [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]]) {
  threadgroup atomic_uint bins[256];
  const uint complete = (p.pos + p.first_row + row + 1) / p.ratio;
  device const float *s = score + ulong(row) * p.stride;
  uint known = 0, seen = 0, want = p.budget; // leading bits of the threshold, their mask, its rank among their equals
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (uint i = lane; i < 256; i += 32) atomic_store_explicit(&bins[i], 0u, memory_order_relaxed);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = lane; j < complete; j += 32) {
      const uint bits = as_type<uint>(s[j]);
      if ((bits & seen) == known) atomic_fetch_add_explicit(&bins[(bits >> shift) & 255u], 1u, memory_order_relaxed);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    // lane l owns the bins [8l, 8l+8); `above` counts those of the lanes past it
    uint own = 0;
    for (uint i = 0; i < 8; i++) own += atomic_load_explicit(&bins[lane * 8 + i], memory_order_relaxed);
    uint above = simd_sum(own) - simd_prefix_inclusive_sum(own);
    uint found = 0, rank = 0; // digit + 1 and the rank within it, in the one lane that holds it
    for (int i = 7; i >= 0; i--) {
      const uint n = atomic_load_explicit(&bins[lane * 8 + uint(i)], memory_order_relaxed);
      if (found == 0 && above < want && above + n >= want) {
        found = lane * 8 + uint(i) + 1;
        rank = want - above;
      }
      above += n;
    }
    found = simd_max(found);
    want = simd_max(rank);
    known |= (found - 1) << uint(shift);
    seen |= 255u << uint(shift);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  uint taken = 0, equal = 0; // listed so far, and equals met so far
  for (uint base = 0; base < complete; base += 32) {
    const uint j = base + lane;
    const uint bits = j < complete ? as_type<uint>(s[j]) : 0u;
    const uint tie = j < complete && bits == known ? 1u : 0u;
    const uint before = equal + simd_prefix_exclusive_sum(tie);
    const uint chosen = j < complete && (bits > known || (tie == 1u && before < want)) ? 1u : 0u;
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
