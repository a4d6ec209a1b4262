// Kernels that are wrong on purpose. Each is named for its fault; the tests name the lines that are marked.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

kernel void fault_no_barrier(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[64];
  shared[i] = x[i]; // MARK no_barrier
  x[i] = shared[63 - i];
}
kernel void fault_no_simd_barrier(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32];
  shared[i] = x[i]; // MARK no_simd_barrier
  x[i] = shared[31 - i];
}
kernel void fault_wrong_simd_fence(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32];
  shared[i] = x[i];
  simdgroup_barrier(mem_flags::mem_device);
  x[i] = shared[31 - i]; // MARK wrong_simd_fence
}
kernel void fault_wrong_fence(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[64 + i] = x[63 - i]; // MARK wrong_fence
}
kernel void fault_groups(device uint *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] += 1; // MARK groups
}
kernel void fault_read_beyond(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] = x[i + 64]; // MARK read_beyond
}
kernel void fault_write_beyond(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i + 1] = 1; // MARK write_beyond
}
kernel void fault_array_beyond(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32];
  shared[i + 1] = x[i]; // MARK array_beyond
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = shared[i];
}
kernel void fault_unwritten(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[64];
  if (i < 32) shared[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = shared[i] + 1;
}
kernel void fault_some_at_barrier(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < 40) threadgroup_barrier(mem_flags::mem_threadgroup); // MARK some_at_barrier
  x[i] = 1;
}
kernel void fault_two_barriers(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < 32) threadgroup_barrier(mem_flags::mem_threadgroup);
  else threadgroup_barrier(mem_flags::mem_threadgroup); // MARK two_barriers
  x[i] = 1;
}
kernel void fault_some_at_sum(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < 10) x[i] = simd_sum(x[i]); // MARK some_at_sum
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
kernel void fault_two_sums(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i & 1) x[i] = simd_sum(x[i]);
  else x[i] = simd_max(x[i]); // MARK two_sums
}
kernel void fault_too_much(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float a[6000];
  threadgroup float4 large[600];
  a[i] = 1;
  large[i] = 2;
  x[i] = a[i] + large[i].x;
}
kernel void fault_divide(device int *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] = 7 / x[i]; // MARK divide
}
struct Wide { float a; float b; float c; };
kernel void fault_short(device float *x [[buffer(0)]], constant Wide &w [[buffer(1)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] = w.a;
}
constant uint wanted [[function_constant(3)]];
kernel void fault_constant(device uint *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) { x[i] = wanted; }

kernel void undefined_shift(device uint *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] = 1u << (i + 1); // MARK shift
}
kernel void undefined_alignment(device const uchar *x [[buffer(0)]], device float4 *y [[buffer(1)]], uint i [[thread_index_in_threadgroup]]) {
  y[i] = *(device const float4 *)(x + 4); // MARK alignment
}
kernel void undefined_index(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  float a[4] = {0, 1, 2, 3};
  x[i] = a[i & 7]; // MARK index
}
kernel void undefined_conversion(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] = float(int(x[i] + 1e20f)); // MARK conversion
}
kernel void fault_some_multiply(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  simdgroup_float8x8 a(1.0f), b(2.0f), sum(0.0f);
  if (i != 5) simdgroup_multiply_accumulate(sum, a, b, sum); // MARK some_multiply
  threadgroup_barrier(mem_flags::mem_none);
  simdgroup_store(sum, x);
}
kernel void fault_few_lanes(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  simdgroup_float8x8 a(1.0f), b(2.0f), sum(0.0f);
  simdgroup_multiply_accumulate(sum, a, b, sum);
  simdgroup_store(sum, x);
}
// Correct: neighbours write halves and bytes of one word, and barriers stand where they are needed.
kernel void sound(device half *x [[buffer(0)]], device uchar *y [[buffer(1)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup half shared[64];
  shared[i] = half(i);
  y[i] = uchar(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = shared[63 - i];
  threadgroup_barrier(mem_flags::mem_device);
  y[64 + i] = uchar(x[(i + 1) & 63]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[63 - i] = 0.5h;
}
