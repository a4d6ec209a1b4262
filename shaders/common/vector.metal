// Sums of products with few rows, float32 from end to end: they are bound by how fast weights come.

// u = inputs [k, k+8) of a row, zeros past its end.
METAL_FUNC void matvec_inputs(thread float *u, device const float *row, uint k, uint inputs) {
  if (inputs % 4 == 0 && k + 8 <= inputs) { // 16 bytes at a time: a row is whole float4s
    device const float4 *from = (device const float4 *)(row + k);
    const float4 low = from[0], high = from[1];
    for (int i = 0; i < 4; i++) {
      u[i] = low[i];
      u[i + 4] = high[i];
    }
    return;
  }
  for (uint i = 0; i < 8; i++) u[i] = k + i < inputs ? row[k + i] : 0.0f;
}

// The same sums over codes of 4 bits, without a value of its own for each code: a group's scale and bias multiply whole
// runs, sum of (scale code + bias) u = scale (sum of code u) + bias (sum of u). A code stands below the units of 2^23
// where it is in its word, and what it is worth more there its input is worth less. A lane takes WORDS words at a time, of
// one group.
template <int ROWS, int OUTPUTS, int SIMDS, int WORDS>
METAL_FUNC void matvec_four_bits(thread float *sums, StoredMatrix w, uint first, uint outputs, device const float *x, uint rows, uint sg, uint lane) {
  const uint words = w.in / 8, groups = w.in / stored_group;
  for (uint k = (sg * SIMD_WIDTH + lane) * WORDS; k < words; k += SIMDS * SIMD_WIDTH * WORDS) {
    uint codes[OUTPUTS][WORDS];
    float scale[OUTPUTS], bias[OUTPUTS];
    for (uint o = 0; o < OUTPUTS; o++) {
      const uint row = first + min(o, outputs - 1);
      device const uint *from = (device const uint *)w.data + (ulong(row) * words + k);
      for (uint i = 0; i < WORDS; i++) codes[o][i] = from[i];
      const ulong side = ulong(row) * groups + k * 8 / stored_group;
      scale[o] = plain_value(w.scales, stored_side, side);
      bias[o] = plain_value(w.biases, stored_side, side);
    }
    for (uint word = 0; word < WORDS; word++) {
      float u[ROWS][8], whole[ROWS];
      for (uint r = 0; r < ROWS; r++) {
        matvec_inputs(u[r], x + ulong(min(r, rows - 1)) * w.in, (k + word) * 8, w.in);
        whole[r] = ((u[r][0] + u[r][1]) + (u[r][2] + u[r][3])) + ((u[r][4] + u[r][5]) + (u[r][6] + u[r][7]));
        float worth = 1.0f;
        for (int i = 0; i < 4; i++) {
          u[r][i] *= worth;
          u[r][i + 4] *= worth;
          worth *= 0.0625f;
        }
      }
      for (uint o = 0; o < OUTPUTS; o++) {
        float code[8];
        for (int i = 0; i < 4; i++) {
          const uint mask = 15u << (4 * i);
          code[i] = as_type<float>((codes[o][word] & mask) | 0x4b000000u) - 8388608.0f;
          code[i + 4] = as_type<float>(((codes[o][word] >> 16) & mask) | 0x4b000000u) - 8388608.0f;
        }
        for (int r = 0; r < ROWS; r++) {
          float dot = code[0] * u[r][0];
          for (int i = 1; i < 8; i++) dot = fma(code[i], u[r][i], dot);
          sums[r * OUTPUTS + o] = fma(scale[o], dot, fma(bias[o], whole[r], sums[r * OUTPUTS + o]));
        }
      }
    }
  }
}

// The sums of a simdgroup: of OUTPUTS outputs from `first` on, of which `outputs` are there, and ROWS rows, of which
// `rows` are. A lane takes every 32nd run of eight inputs of the runs that fall to its simdgroup, every SIMDS'th 32 of
// them, and decodes a run once for all rows. Every row adds up by itself, in one order.
template <int ROWS, int OUTPUTS, int SIMDS, bool WIDE>
METAL_FUNC void matvec_sums(thread float *sums, StoredMatrix w, uint first, uint outputs, device const float *x, uint rows, uint sg, uint lane) {
  for (int i = 0; i < ROWS * OUTPUTS; i++) sums[i] = 0.0f;
  const bool codes = stored_format == FORMAT_AFFINE && stored_bits == 4;
  if (codes && w.in >= VECTOR_LONG) matvec_four_bits<ROWS, OUTPUTS, SIMDS, 2>(sums, w, first, outputs, x, rows, sg, lane);
  else if (codes) matvec_four_bits<ROWS, OUTPUTS, SIMDS, 1>(sums, w, first, outputs, x, rows, sg, lane);
  else for (uint k = (sg * SIMD_WIDTH + lane) * 8; k < w.in; k += SIMDS * SIMD_WIDTH * 8) {
    float u[ROWS][8];
    for (uint r = 0; r < ROWS; r++) matvec_inputs(u[r], x + ulong(min(r, rows - 1)) * w.in, k, w.in);
    for (uint o = 0; o < OUTPUTS; o++) {
      float v[8];
      stored_eight<WIDE>(v, w, first + min(o, outputs - 1), k);
      for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 8; i++) sums[r * OUTPUTS + o] = fma(v[i], u[r][i], sums[r * OUTPUTS + o]);
    }
  }
  for (int i = 0; i < ROWS * OUTPUTS; i++) sums[i] = simd_sum(sums[i]);
}
