// Element by element: one thread an element, in every kernel here.

// y = silu(y * scale). y [count]
kernel void dense_silu(constant ElementParams &p [[buffer(PARAMS)]],
                       device float *y [[buffer(ELEMENT_Y)]],
                       uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = silu(y[i] * p.scale);
}

// y = gain * sigmoid(y * scale). y [count]
kernel void dense_sigmoid(constant ElementParams &p [[buffer(PARAMS)]],
                          device float *y [[buffer(ELEMENT_Y)]],
                          uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = p.gain * sigmoid(y[i] * p.scale);
}

// y = silu(gate) * x. y, x, gate [count]; y may be gate.
kernel void dense_swiglu(constant ElementParams &p [[buffer(PARAMS)]],
                         device float *y [[buffer(ELEMENT_Y)]],
                         device const float *x [[buffer(ELEMENT_X)]],
                         device const float *gate [[buffer(ELEMENT_GATE)]],
                         uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = silu(gate[i]) * x[i];
}

// y += x. y, x [count]
kernel void dense_add(constant ElementParams &p [[buffer(PARAMS)]],
                      device float *y [[buffer(ELEMENT_Y)]],
                      device const float *x [[buffer(ELEMENT_X)]],
                      uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] += x[i];
}

// y[r] += sigmoid(gate[r]) * x[r]. y, x [count / cols, cols], gate [count / cols]
kernel void dense_add_gated(constant ElementParams &p [[buffer(PARAMS)]],
                            device float *y [[buffer(ELEMENT_Y)]],
                            device const float *x [[buffer(ELEMENT_X)]],
                            device const float *gate [[buffer(ELEMENT_GATE)]],
                            uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = fma(sigmoid(gate[i / p.cols]), x[i], y[i]);
}

// A rectangle of floats from src to dst.
//
//   dst: rows of dst_floats, src: rows of src_floats, `cols` of each
//   grid: x over columns, y over rows
kernel void dense_copy(constant CopyParams &p [[buffer(PARAMS)]],
                       device float *dst [[buffer(COPY_DST)]],
                       device const float *src [[buffer(COPY_SRC)]],
                       uint2 at [[thread_position_in_grid]]) {
  if (at.x < p.cols) dst[ulong(at.y) * p.dst_floats + at.x] = src[ulong(at.y) * p.src_floats + at.x];
}
