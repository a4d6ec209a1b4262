#include <metal_stdlib>
using namespace metal;

// to[i] = from[i], 16 bytes a thread.
kernel void figure_copy(device const float4 *from [[buffer(0)]], device float4 *to [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  to[i] = from[i];
}

// Nothing: what a dispatch costs.
kernel void figure_nothing(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i == 0) x[0] += 1.0f;
}
