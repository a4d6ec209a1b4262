// Rotates the heads of every row in place, by angles whose cosines and sines the host has tabulated. One thread for a
// pair (j, j + half_rot) of a head.
//
//   x: rows of row_floats; table [rows, 2*half_rot]: cosines, then sines
//   grid: x over the pairs of a row's heads, y over rows
kernel void dense_rope(constant RopeParams &p [[buffer(PARAMS)]],
                       device float *x [[buffer(ROPE_X)]],
                       device const float *table [[buffer(ROPE_TABLE)]],
                       uint2 at [[thread_position_in_grid]]) {
  const uint head = at.x / p.half_rot, j = at.x % p.half_rot;
  if (head >= p.heads) return;
  device const float *angles = table + ulong(at.y) * 2 * p.half_rot;
  device float *pair = x + ulong(at.y) * p.row_floats + p.from + head * p.stride + j;
  const float cosine = angles[j], sine = angles[p.half_rot + j];
  const float u = pair[0], v = pair[p.half_rot];
  pair[0] = u * cosine - v * sine;
  pair[p.half_rot] = v * cosine + u * sine;
}
