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

// The sums of a simdgroup: of OUTPUTS outputs from `first` on, of which `outputs` are there, and ROWS rows, of which
// `rows` are. A lane takes every 32nd run of eight inputs of the runs that fall to its simdgroup, every SIMDS'th 32 of
// them, and decodes a run once for all rows. Every row adds up by itself, in one order.
template <int ROWS, int OUTPUTS, int SIMDS, bool WIDE>
METAL_FUNC void matvec_sums(thread float *sums, StoredMatrix w, uint first, uint outputs, device const float *x, uint rows, uint sg, uint lane) {
  for (int i = 0; i < ROWS * OUTPUTS; i++) sums[i] = 0.0f;
  for (uint k = (sg * SIMD_WIDTH + lane) * 8; k < w.in; k += SIMDS * SIMD_WIDTH * 8) {
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
