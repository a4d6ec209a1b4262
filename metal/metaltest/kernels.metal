#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

constant bool choice_bool [[function_constant(0)]];
constant int choice_int [[function_constant(1)]];
constant uint choice_uint [[function_constant(2)]];
constant float choice_float [[function_constant(5)]];
constant uint choice_sum = choice_uint + 1u;

struct Step { uint count; uint factor; uint term; };

// x[i] = factor x[i] + term, modulo 2^32. One thread an element; x is [count].
kernel void suite_step(device uint *x [[buffer(0)]], constant Step &s [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  if (i < s.count) x[i] = x[i] * s.factor + s.term;
}

// out[i] = in[i] + 1. One thread an element; both are [count].
kernel void suite_copy(device const uint *in [[buffer(0)]], device uint *out [[buffer(3)]], constant uint &count [[buffer(7)]],
                       uint i [[thread_position_in_grid]]) {
  if (i < count) out[i] = in[i] + 1;
}

// Writes the constants of the pipeline; out is [5].
kernel void suite_constants(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i != 0) return;
  out[0] = choice_bool ? 1 : 0;
  out[1] = float(choice_int);
  out[2] = float(choice_uint);
  out[3] = choice_float;
  out[4] = float(choice_sum);
}

// Each thread writes who it is: 12 words at its place in the grid.
kernel void suite_geometry(device uint *out [[buffer(0)]], uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
                           uint3 group [[threadgroup_position_in_grid]], ushort3 local [[thread_position_in_threadgroup]],
                           uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]], uint3 groups [[threadgroups_per_grid]],
                           uint3 threads [[threads_per_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  device uint *o = out + ((at.z * grid.y + at.y) * grid.x + at.x) * 12;
  o[0] = group.x | group.y << 8 | group.z << 16;
  o[1] = local.x | local.y << 8 | local.z << 16;
  o[2] = index;
  o[3] = simdgroup * 32 + lane;
  o[4] = groups.x | groups.y << 8 | groups.z << 16;
  o[5] = threads.x | threads.y << 8 | threads.z << 16;
  o[6] = simdgroups;
  o[7] = at.x | at.y << 8 | at.z << 16;
}

// Reverses each group's block by way of the threadgroup memory that the host sized.
kernel void suite_reverse(device uint *x [[buffer(0)]], threadgroup uint *shared [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]],
                          uint g [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]]) {
  shared[i] = x[g * n + i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[g * n + i] = shared[n - 1 - i];
}

// out[g] is the sum of the 256 numbers of group g, by simdgroups and then across them.
kernel void suite_sum(device const float *in [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_index_in_threadgroup]],
                      uint g [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float part[8];
  float s = simd_sum(in[g * 256 + i]);
  if (lane == 0) part[simdgroup] = s;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup == 0) {
    s = simd_sum(lane < 8 ? part[lane] : 0.0f);
    if (lane == 0) out[g] = s;
  }
}

// c = a b for one 8 x 8 tile of half in float; one simdgroup.
kernel void suite_tile(device const half *a [[buffer(0)]], device const half *b [[buffer(1)]], device float *c [[buffer(2)]]) {
  simdgroup_half8x8 x, y;
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(x, a, 8);
  simdgroup_load(y, b, 8);
  simdgroup_multiply_accumulate(sum, x, y, sum);
  simdgroup_store(sum, c, 8);
}

// out[i] = block[i] of a constant block of 1024 words.
kernel void suite_block(device uint *out [[buffer(0)]], constant uint *block [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = block[i];
}

// Counts threads; at most 64 of them a group.
[[max_total_threads_per_threadgroup(64)]] kernel void suite_count(device atomic_uint *counter [[buffer(0)]]) {
  atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
}

template <typename T> kernel void suite_fill(device T *out [[buffer(0)]], constant float &value [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = T(value);
}
template [[host_name("suite_fill_float")]] [[kernel]] decltype(suite_fill<float>) suite_fill<float>;
template [[host_name("suite_fill_half")]] [[kernel]] decltype(suite_fill<half>) suite_fill<half>;
