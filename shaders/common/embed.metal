// y[r] = row ids[r] of a stored matrix. One thread for eight columns of a row.
//
//   y [rows, cols], ids [rows], data, scales, biases: [*, cols] as stored
//   grid: x over runs of eight columns, y over rows
kernel void dense_embed(constant EmbedParams &p [[buffer(PARAMS)]],
                        device float *y [[buffer(EMBED_Y)]],
                        device const int *ids [[buffer(EMBED_IDS)]],
                        device const uchar *data [[buffer(EMBED_DATA)]],
                        device const uchar *scales [[buffer(EMBED_SCALES)]],
                        device const uchar *biases [[buffer(EMBED_BIASES)]],
                        uint2 at [[thread_position_in_grid]]) {
  const uint c = at.x * 8, r = at.y;
  if (c >= p.cols) return;
  StoredMatrix w;
  w.data = data;
  w.scales = scales;
  w.biases = biases;
  w.in = p.cols;
  float v[8];
  stored_eight<false>(v, w, uint(ids[r]), c);
  for (uint i = 0; i < 8; i++)
    if (c + i < p.cols) y[ulong(r) * p.cols + c + i] = v[i];
}
