// What every library starts with: activations and the sum over a threadgroup.

// How a function that kernels share is declared. Apple's library has it; the language's own text does not.
#ifndef METAL_FUNC
#define METAL_FUNC inline __attribute__((always_inline))
#endif

// Threads of a simdgroup, on every device that runs these kernels.
#define SIMD_WIDTH 32

// 1 / (1 + e^-x): e^-x may overflow to infinity, which gives 0 as it should.
METAL_FUNC float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

METAL_FUNC float silu(float x) { return x * sigmoid(x); }

// Whether it pays to load 16 bytes at once from p on. A device where it does, and which can tell what addresses allow
// it, has its own form, which is more special than this one.
template <typename P>
METAL_FUNC bool loads_wide(P p) {
  return false;
}

// A device may begin a kernel while the one before it still runs. A kernel that calls inputs_ready(0) does not wait for that
// one before the call, and until then reads nothing that kernels write but to guess what it will need; all threads call it.
// fetch_ahead says that n bytes from p on will be read. Devices that make use of them have their own, more special forms.
template <typename T>
METAL_FUNC void inputs_ready(T) {}
template <typename P>
METAL_FUNC void fetch_ahead(P p, uint n) {}
// *p for such a guess: it leaves nothing behind that a later read might take for the truth.
template <typename P>
METAL_FUNC uint glance(P p) {
  return *p;
}

// The sum of v over a threadgroup of whole simdgroups, at most 32 of them, in an order that depends on their number
// alone (sg is this one's). Every thread calls it and gets it. partial [32] belongs to the caller, who uses it for nothing else.
METAL_FUNC float threadgroup_sum(float v, threadgroup float *partial, uint sg, uint lane, uint simdgroups) {
  v = simd_sum(v);
  if (lane == 0) partial[sg] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return total;
}
