// What of Metal's library a kernel sees on the soft device, one function an output.
#include <metal_stdlib>
#include <metal_atomic>
using namespace metal;

struct Pair { float a; packed_float3 b; };

// out is [32][16]: each thread writes 16 results of its number x = in[i].
kernel void shim_math(device const float *in [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float x = in[i];
  device float *o = out + i * 16;
  o[0] = exp(x);
  o[1] = precise::log(fabs(x) + 1.0);
  o[2] = rsqrt(fabs(x) + 0.5);
  o[3] = fast::tanh(x);
  o[4] = pow(fabs(x), 1.5f);
  o[5] = floor(x) + 10 * ceil(x);
  o[6] = clamp(x, -1.0f, 1.0f) + max(x, 2.0f) + min(x, 3.0f);
  o[7] = fma(x, 3.0f, 1.0f);
  o[8] = select(1.0f, 2.0f, x > 0.0f) + (isnan(x) ? 1.0f : 0.0f);
  o[9] = rint(x) + 100 * trunc(x);
  o[10] = sin(x) + 2 * cos(x);
  o[11] = float(half(x) * 2.0h);
  o[12] = float(bfloat(x));
  o[13] = as_type<float>(as_type<uint>(x) ^ 0x80000000u);
  o[14] = mix(x, 4.0f, 0.25f);
  o[15] = sign(x);
}

// Vectors, packed structs, integers and atomics; one simdgroup.
kernel void shim_types(device Pair *p [[buffer(0)]], device half4 *h [[buffer(1)]], device const uchar4 *u [[buffer(2)]], device uint *out [[buffer(3)]],
                       device atomic_uint *counts [[buffer(4)]], device atomic_float *sum [[buffer(5)]], ushort2 at [[thread_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]]) {
  float3 b = p[lane].b;
  p[lane].b = b.zyx * 2.0f;
  p[lane].a = dot(b, float3(1, 10, 100));
  half4 v = h[lane];
  v.xy = v.yx;
  h[lane] = half4(float4(v) + float4(u[lane]) / 2.0f);
  uint4 w = uint4(uint2(lane, 2), 3u, 4u);
  out[lane * 8] = popcount(lane) + 100 * clz(lane) + 10000 * ctz(lane);
  out[lane * 8 + 1] = w.x + w.y + w.z + w.w;
  out[lane * 8 + 2] = simd_prefix_exclusive_sum(lane) + 1000 * simd_prefix_inclusive_sum(1u);
  out[lane * 8 + 3] = simd_shuffle_down(lane, 1) + 100 * simd_shuffle_xor(lane, 3) + 10000 * simd_broadcast(lane, 7);
  out[lane * 8 + 4] = simd_max(lane) + 100 * simd_min(lane + 5) + 10000 * simd_or(lane & 1u);
  out[lane * 8 + 5] = uint(simd_all(lane < 32)) + 2 * uint(simd_any(lane == 40)) + 4 * uint(simd_is_first());
  out[lane * 8 + 6] = at.x;
  out[lane * 8 + 7] = extract_bits(0xabcd1234u, 8u, 12u);
  atomic_fetch_add_explicit(&counts[0], lane, memory_order_relaxed);
  atomic_fetch_max_explicit(&counts[1], lane * 3, memory_order_relaxed);
  atomic_fetch_or_explicit(&counts[2], 1u << lane, memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 0.5f, memory_order_relaxed);
}
