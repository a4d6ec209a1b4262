// The tile of a product with a stored matrix: TILE_ROWS rows of x times TILE_OUTPUTS outputs, TILE_INPUTS inputs at a
// time. TILE_THREADS threads stage both operands in threadgroup memory as T, half or float; each of their simdgroups
// multiplies all rows with its own TILE_SPAN outputs and adds up in float. Rows, outputs and inputs past the ends are
// staged as zeros, so what lies behind the operands in memory never meets them.

#define TILE_SPAN (TILE_OUTPUTS / (TILE_THREADS / SIMD_WIDTH))
#define TILE_ROW_BLOCKS (TILE_ROWS / 8)
#define TILE_SPAN_BLOCKS (TILE_SPAN / 8)
// Elements from one staged row to the next: 16 bytes more than a row, so that the columns of a matrix don't all fall
// into the same bank.
#define TILE_STRIDE(T) (TILE_INPUTS + 16 / sizeof(T))

// The sums of one simdgroup: block [i][j] is rows 8i.. and outputs 8j.. of its span.
struct TileSums {
  simdgroup_float8x8 at[TILE_ROW_BLOCKS][TILE_SPAN_BLOCKS];
};

METAL_FUNC void tile_clear(thread TileSums &sums) {
  for (int i = 0; i < TILE_ROW_BLOCKS; i++)
    for (int j = 0; j < TILE_SPAN_BLOCKS; j++) sums.at[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// Writes eight staged values; their place is a multiple of eight elements from the start of a row.
template <typename T>
METAL_FUNC void tile_put(threadgroup T *to, float4 low, float4 high) {
  threadgroup vec<T, 4> *fours = (threadgroup vec<T, 4> *)to;
  vec<T, 4> a, b;
  for (int i = 0; i < 4; i++) {
    a[i] = T(low[i]);
    b[i] = T(high[i]);
  }
  fours[0] = a;
  fours[1] = b;
}

// Stages inputs [k0, k0+TILE_INPUTS) of one row, eight a thread: slot is the row's place in the tile, part (0..3) which
// eight. row points at the row's first input, or anywhere when `there` is false, and then the slot is zeros.
template <typename T>
METAL_FUNC void tile_stage_row(threadgroup T *xs, device const float *row, bool there, uint inputs, uint k0, uint slot, uint part) {
  threadgroup T *to = xs + slot * TILE_STRIDE(T) + part * 8;
  const uint k = k0 + part * 8;
  if (inputs % 4 == 0 && k + 8 <= inputs) { // 16 bytes at a time: a row is whole float4s
    device const float4 *from = (device const float4 *)(row + k);
    const float4 low = there ? from[0] : float4(0.0f), high = there ? from[1] : float4(0.0f);
    tile_put(to, low, high);
    return;
  }
  for (uint i = 0; i < 8; i++) to[i] = there && k + i < inputs ? T(row[k + i]) : T(0.0f);
}

// Stages inputs [k0, k0+TILE_INPUTS) of the outputs [first, first+TILE_OUTPUTS) of m, those from `outputs` on as zeros up
// to the next block of eight; what is past that is not staged, and tile_multiply does not read it.
template <typename T, bool WIDE>
METAL_FUNC void tile_stage_weights(threadgroup T *ws, StoredMatrix m, uint first, uint outputs, uint k0, uint index) {
  const uint staged = first < outputs ? min(uint(TILE_OUTPUTS), (outputs - first + 7) / 8 * 8) : 0u;
  for (uint c = index; c < staged * (TILE_INPUTS / 8); c += TILE_THREADS) {
    const uint o = c / (TILE_INPUTS / 8), part = c % (TILE_INPUTS / 8), k = k0 + part * 8;
    threadgroup T *to = ws + o * TILE_STRIDE(T) + part * 8;
    if (sizeof(T) == sizeof(half) && stored_format == FORMAT_F16 && m.in % 8 == 0) { // halves stay what they are
      device const uint *pairs = (device const uint *)(m.data + (ulong(first + o) * m.in + k) * 2);
      const bool there = first + o < outputs && k < m.in;
      uint4 words = uint4(0u);
      if (there) words = WIDE ? *(device const uint4 *)pairs : uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      *(threadgroup uint4 *)to = words;
      continue;
    }
    float v[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (first + o < outputs && k < m.in) stored_eight<WIDE>(v, m, first + o, k);
    tile_put(to, float4(v[0], v[1], v[2], v[3]), float4(v[4], v[5], v[6], v[7]));
  }
}

// Adds the product of `inputs` staged inputs, rows of xs and of ws `stride` elements apart. Only the first row_blocks and
// span_blocks blocks of eight hold anything. A device whose matrix unit takes more than eight inputs at a time has its
// own form of it, which is more special than this one.
template <typename S, typename T>
METAL_FUNC void tile_products(thread S &sums, threadgroup const T *xs, threadgroup const T *ws, int stride, int inputs, int row_blocks,
                              int span_blocks) {
  if (row_blocks == TILE_ROW_BLOCKS && span_blocks == TILE_SPAN_BLOCKS) { // the rule: no branch between products
    for (int k = 0; k < inputs; k += 8) {
      simdgroup_matrix<T, 8, 8> a[TILE_ROW_BLOCKS], b[TILE_SPAN_BLOCKS];
      for (int i = 0; i < TILE_ROW_BLOCKS; i++) simdgroup_load(a[i], xs + i * 8 * stride + k, stride);
      for (int j = 0; j < TILE_SPAN_BLOCKS; j++) simdgroup_load(b[j], ws + j * 8 * stride + k, stride, ulong2(0), true);
      for (int i = 0; i < TILE_ROW_BLOCKS; i++)
        for (int j = 0; j < TILE_SPAN_BLOCKS; j++) simdgroup_multiply_accumulate(sums.at[i][j], a[i], b[j], sums.at[i][j]);
    }
    return;
  }
  for (int k = 0; k < inputs; k += 8) {
    simdgroup_matrix<T, 8, 8> a[TILE_ROW_BLOCKS], b[TILE_SPAN_BLOCKS];
    for (int i = 0; i < TILE_ROW_BLOCKS; i++)
      if (i < row_blocks) simdgroup_load(a[i], xs + i * 8 * stride + k, stride);
    for (int j = 0; j < TILE_SPAN_BLOCKS; j++)
      if (j < span_blocks) simdgroup_load(b[j], ws + j * 8 * stride + k, stride, ulong2(0), true);
    for (int i = 0; i < TILE_ROW_BLOCKS; i++)
      for (int j = 0; j < TILE_SPAN_BLOCKS; j++)
        if (i < row_blocks && j < span_blocks) simdgroup_multiply_accumulate(sums.at[i][j], a[i], b[j], sums.at[i][j]);
  }
}

// Adds the product of what is staged: xs whole, ws from the simdgroup's first output on. Only the first row_blocks and
// span_blocks blocks of eight hold anything; both are the same for all lanes.
template <typename T>
METAL_FUNC void tile_multiply(thread TileSums &sums, threadgroup const T *xs, threadgroup const T *ws, int row_blocks, int span_blocks) {
  tile_products(sums, xs, ws, int(TILE_STRIDE(T)), TILE_INPUTS, row_blocks, span_blocks);
}

// Writes the simdgroup's sums to y, whose element [0][0] is the first row and output of its span: `rows` rows of
// `stride` floats, of which `outputs` are written. Whole blocks go straight to y; ragged ones through spare [64], which
// is this simdgroup's alone.
METAL_FUNC void tile_store(thread TileSums &sums, device float *y, uint stride, uint rows, uint outputs, threadgroup float *spare, uint lane) {
  for (uint i = 0; i < TILE_ROW_BLOCKS; i++) {
    for (uint j = 0; j < TILE_SPAN_BLOCKS; j++) {
      if (i * 8 >= rows || j * 8 >= outputs) continue;
      device float *to = y + ulong(i) * 8 * stride + j * 8;
      if (i * 8 + 8 <= rows && j * 8 + 8 <= outputs) {
        simdgroup_store(sums.at[i][j], to, stride);
        continue;
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
      simdgroup_store(sums.at[i][j], spare, 8);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (uint e = lane; e < 64; e += SIMD_WIDTH)
        if (i * 8 + e / 8 < rows && j * 8 + e % 8 < outputs) to[ulong(e / 8) * stride + e % 8] = spare[e];
    }
  }
}
