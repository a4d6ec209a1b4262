// Causal depthwise convolution: y[r, c] = sum over taps j of w[c, j] * in[r - (taps-1-j)*dilation, c], oldest first,
// where rows before 0 are the tail's. One thread an element of y.
//
//   y, x [rows, cols], tail [tail_rows, cols] oldest first, w [cols, taps]; y shares nothing with x
//   grid: x over columns, y over rows
kernel void dense_conv(constant ConvParams &p [[buffer(PARAMS)]],
                       device float *y [[buffer(CONV_Y)]],
                       device const float *x [[buffer(CONV_X)]],
                       device const float *tail [[buffer(CONV_TAIL)]],
                       device const float *w [[buffer(CONV_WEIGHT)]],
                       uint2 at [[thread_position_in_grid]]) {
  const uint c = at.x, r = at.y;
  if (c >= p.cols) return;
  float sum = 0.0f;
  for (uint j = 0; j < p.taps; j++) {
    const uint back = (p.taps - 1 - j) * p.dilation;
    const float in = r >= back ? x[ulong(r - back) * p.cols + c] : tail[ulong(p.tail_rows + r - back) * p.cols + c];
    sum = fma(w[c * p.taps + j], in, sum);
  }
  y[ulong(r) * p.cols + c] = p.activate != 0 ? silu(sum) : sum;
}

// tail = its own rows followed by those of x, the last tail_rows of them. One thread a column, which moves its rows in
// order, each from further on.
//
//   x [rows, cols], tail [tail_rows, cols] oldest first
kernel void dense_shift_tail(constant ConvParams &p [[buffer(PARAMS)]],
                             device const float *x [[buffer(CONV_X)]],
                             device float *tail [[buffer(CONV_TAIL)]],
                             uint c [[thread_position_in_grid]]) {
  if (c >= p.cols) return;
  for (uint i = 0; i < p.tail_rows; i++) {
    const uint from = i + p.rows; // in the tail followed by x
    tail[ulong(i) * p.cols + c] = from < p.tail_rows ? tail[ulong(from) * p.cols + c] : x[ulong(from - p.tail_rows) * p.cols + c];
  }
}
