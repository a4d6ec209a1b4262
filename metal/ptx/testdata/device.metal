#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

constant bool left_across [[function_constant(0)]];
constant bool right_across [[function_constant(1)]];
constant bool result_across [[function_constant(2)]];
constant uint optional_factor [[function_constant(3)]];

// c = a b + a's own elements doubled, each operand read and the result written across or not; one simdgroup.
template <typename T>
kernel void device_product(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device float *c [[buffer(2)]],
                           constant uint &stride [[buffer(3)]]) {
  simdgroup_matrix<T, 8, 8> x, y;
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(x, a, stride, ulong2(0), left_across);
  simdgroup_load(y, b, stride, ulong2(0), right_across);
  simdgroup_multiply_accumulate(sum, x, y, sum);
  for (int i = 0; i < 2; i++) sum.thread_elements()[i] += 2.0f * float(x.thread_elements()[i]);
  simdgroup_store(sum, c, stride, ulong2(0), result_across);
}
template [[host_name("device_product_half")]] [[kernel]] decltype(device_product<half>) device_product<half>;
template [[host_name("device_product_float")]] [[kernel]] decltype(device_product<float>) device_product<float>;

// out[f*count + i] = function f of in[i].
kernel void device_mathematics(device const float *in [[buffer(0)]], device float *out [[buffer(1)]], constant uint &count [[buffer(2)]],
                               uint i [[thread_position_in_grid]]) {
  if (i >= count) return;
  const float x = in[i];
  out[i] = exp(x);
  out[count + i] = log(fabs(x));
  out[2 * count + i] = tanh(x);
  out[3 * count + i] = sin(x);
  out[4 * count + i] = cos(x);
  out[5 * count + i] = rsqrt(fabs(x));
  out[6 * count + i] = pow(fabs(x), 1.5f);
}

// Moves a group's numbers through two threadgroup arguments: x[i] = x[n-1-i] + 1000 x[i^1].
kernel void device_exchange(device uint *x [[buffer(0)]], threadgroup uint *first [[threadgroup(0)]], threadgroup uint *second [[threadgroup(3)]],
                            uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  first[i] = x[i];
  second[i] = 1000 * x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = first[n - 1 - i] + second[i ^ 1];
}

// to[i] = 3 from[n-1-i] + add: what other threadgroups of the dispatch before have written.
struct TurnParams {
  uint add;
  uint n;
};
kernel void device_turn(device uint *to [[buffer(0)]], device const uint *from [[buffer(1)]], constant TurnParams &p [[buffer(2)]],
                        uint i [[thread_position_in_grid]]) {
  if (i < p.n) to[i] = 3 * from[p.n - 1 - i] + p.add;
}

// What lanes tell each other: 16 words a lane.
kernel void device_lanes(device uint *out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  device uint *o = out + lane * 16;
  const uint v = lane * 3 + 1;
  o[0] = simd_sum(v);
  o[1] = simd_max(v);
  o[2] = simd_min(v);
  o[3] = simd_prefix_inclusive_sum(v);
  o[4] = simd_prefix_exclusive_sum(v);
  o[5] = simd_shuffle_xor(v, 5);
  o[6] = simd_shuffle_up(v, 2);
  o[7] = simd_shuffle_down(v, 3);
  o[8] = simd_broadcast(v, 9);
  o[9] = simd_all(lane < 32) && !simd_all(lane < 31) ? 1 : 0;
  o[10] = simd_any(lane == 7) && !simd_any(lane == 77) ? 1 : 0;
  o[11] = uint(simd_sum(half(lane)));
  o[12] = uint(simd_sum(ulong(lane) << 40) >> 40);
  o[13] = simd_xor(v);
}

// counters[lane % 4] counts threads; counters[4] is the largest i, and sum the sum of halves.
kernel void device_count(device atomic_uint *counters [[buffer(0)]], device atomic_float *sum [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&counters[i % 4], 1u, memory_order_relaxed);
  atomic_fetch_max_explicit(&counters[4], i, memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 0.5f, memory_order_relaxed);
}

// out[0] = optional_factor where it is given, else 7.
kernel void device_optional(device uint *out [[buffer(0)]]) {
  out[0] = is_function_constant_defined(optional_factor) ? optional_factor : 7;
}

// Writes far outside of its buffer.
kernel void device_fault(device uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[ulong(i + 1) << 44] = 1; }
