// Products of simdgroup matrices whose values are read, copied and replaced at every possible moment.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

static simdgroup_float8x8 square(simdgroup_float8x8 m) {
  simdgroup_float8x8 r(0.0f);
  simdgroup_multiply_accumulate(r, m, m, r);
  return r;
}

// out is [8][8][8]: one 8 x 8 result each. a and b are [8][8]; one simdgroup.
kernel void matrix_uses(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]], device float *out [[buffer(2)]],
                        uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float shared[64];
  simdgroup_float8x8 x, y, sum(1.0f), other(0.0f);
  simdgroup_load(x, a);
  simdgroup_load(y, b, 8, ulong2(0, 0), true);
  // 0: two products into one sum: 1 + 2 a bT
  simdgroup_multiply_accumulate(sum, x, y, sum);
  simdgroup_multiply_accumulate(sum, x, y, sum);
  simdgroup_store(sum, out);
  // 1: the result of one as the operand of the next: (a bT) a
  simdgroup_multiply(other, x, y);
  simdgroup_multiply(sum, other, x);
  simdgroup_store(sum, out + 64);
  // 2: an operand and a start that are replaced before the product is needed: a bT + 3
  simdgroup_float8x8 start(3.0f), left;
  simdgroup_load(left, a);
  simdgroup_multiply_accumulate(sum, left, y, start);
  simdgroup_load(left, b);
  start = left;
  simdgroup_store(sum, out + 128);
  // 3: elements that are changed by hand between products: 2 (a bT) + a bT
  simdgroup_multiply(sum, x, y);
  sum.thread_elements() *= 2.0f;
  simdgroup_multiply_accumulate(sum, x, y, sum);
  simdgroup_float8x8 copy = sum;
  sum = start;
  simdgroup_store(copy, out + 192);
  // 4: through functions and across a barrier: (a a)(a a)
  simdgroup_multiply(sum, x, x);
  threadgroup_barrier(mem_flags::mem_none);
  simdgroup_store(square(sum), shared);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < 64; i += 32) out[256 + i] = shared[i];
  // 5: more products than wait at once: 200 a bT
  simdgroup_float8x8 many(0.0f);
  for (int i = 0; i < 200; i++) {
    simdgroup_float8x8 unused(0.0f);
    simdgroup_multiply_accumulate(unused, x, y, unused);
    simdgroup_multiply_accumulate(many, x, y, many);
  }
  simdgroup_store(many, out + 320);
  // 6: half operands and a transposed store: (a bT)T
  simdgroup_half8x8 h, g;
  h.thread_elements() = half2(x.thread_elements());
  g.thread_elements() = half2(y.thread_elements());
  simdgroup_multiply(sum, h, g);
  simdgroup_store(sum, out + 384, 8, ulong2(0, 0), true);
  // 7: a simdgroup function while a product waits: the sum of all elements of a bT, everywhere
  simdgroup_multiply(sum, x, y);
  float2 mine = sum.thread_elements();
  float total = simd_sum(mine.x + mine.y);
  for (uint i = lane; i < 64; i += 32) out[448 + i] = total;
}
