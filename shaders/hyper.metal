// The hyper-connection's n streams of h floats, stream after stream in a row of wide. In every kernel here one thread
// takes one column of x and that column of every stream; grid: x over columns, y over rows.

// Every stream of wide = x.
//
//   wide [rows, n*h], x [rows, h]
kernel void hyper_replicate(constant StreamParams &p [[buffer(PARAMS)]],
                            device float *wide [[buffer(STREAM_WIDE)]],
                            device const float *x [[buffer(STREAM_X)]],
                            uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  device float *to = wide + ulong(at.y) * p.streams * p.width + at.x;
  const float v = x[ulong(at.y) * p.width + at.x];
  for (uint g = 0; g < p.streams; g++) to[g * p.width] = v;
}

// Every stream of wide += x.
//
//   wide [rows, n*h], x [rows, h]
kernel void hyper_add(constant StreamParams &p [[buffer(PARAMS)]],
                      device float *wide [[buffer(STREAM_WIDE)]],
                      device const float *x [[buffer(STREAM_X)]],
                      uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  device float *to = wide + ulong(at.y) * p.streams * p.width + at.x;
  const float v = x[ulong(at.y) * p.width + at.x];
  for (uint g = 0; g < p.streams; g++) to[g * p.width] += v;
}

// Stream g of wide += gain[g] * x.
//
//   wide [rows, n*h], x [rows, h], gain [rows, n]
kernel void hyper_inject(constant StreamParams &p [[buffer(PARAMS)]],
                         device float *wide [[buffer(STREAM_WIDE)]],
                         device const float *x [[buffer(STREAM_X)]],
                         device const float *gain [[buffer(STREAM_GAIN)]],
                         uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  device float *to = wide + ulong(at.y) * p.streams * p.width + at.x;
  const float v = x[ulong(at.y) * p.width + at.x];
  for (uint g = 0; g < p.streams; g++) to[g * p.width] = fma(gain[ulong(at.y) * p.streams + g], v, to[g * p.width]);
}

// x = mean over streams of gain * wide, streams ascending.
//
//   wide [rows, n*h], x [rows, h], gain [rows, n*h]
kernel void hyper_mix(constant StreamParams &p [[buffer(PARAMS)]],
                      device const float *wide [[buffer(STREAM_WIDE)]],
                      device float *x [[buffer(STREAM_X)]],
                      device const float *gain [[buffer(STREAM_GAIN)]],
                      uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  const ulong first = ulong(at.y) * p.streams * p.width + at.x;
  float sum = 0.0f;
  for (uint g = 0; g < p.streams; g++) sum = fma(gain[first + g * p.width], wide[first + g * p.width], sum);
  x[ulong(at.y) * p.width + at.x] = sum / float(p.streams);
}
