// The part of the Metal standard library that threads meet in, for an NVIDIA GPU: a simdgroup is a warp, a threadgroup
// a block, threadgroup memory is .shared. Address spaces are erased; the compiler finds them again after inlining.
//
// Every simdgroup function is called by all 32 lanes, as the software device checks.
#pragma once
#define MSL_SHARED __attribute__((address_space(3)))
#define MSL_REGISTER(name) __nvvm_read_ptx_sreg_##name()
#define MSL_ALL_LANES 0xffffffffu

// However large a kernel is, its arguments stay in registers.
#undef kernel
#define kernel static inline __attribute__((always_inline))

// Threadgroup memory sized by the host: one block, in which each argument has its offset.
extern "C" MSL_SHARED __attribute__((aligned(16))) char msl_dynamic[];

#define MSL_THREADGROUP_ARRAY(slot, name, type, ...)                                                                   \
  typedef ::metal::impl::bare<void type> name##_element;                                                               \
  typedef name##_element name##_array __VA_ARGS__;                                                                     \
  static MSL_SHARED __attribute__((loader_uninitialized, aligned(16))) name##_array name##_memory;                     \
  name##_array &name = *(name##_array *)&name##_memory
#define MSL_THREADGROUP_VALUE(slot, name, type)                                                                        \
  typedef ::metal::impl::bare<void type> name##_element;                                                               \
  static MSL_SHARED __attribute__((loader_uninitialized, aligned(16))) name##_element name##_memory;                   \
  name##_element &name = *(name##_element *)&name##_memory

// Function constants are names in the PTX, which a pipeline replaces by numbers before the driver compiles it.
#define MSL_CONSTANT(type, accessor, index)                              \
  static MSL_FN type accessor() {                                        \
    uint bits;                                                           \
    asm("mov.b32 %0, MSL_CONSTANT_" #index ";" : "=r"(bits));            \
    return ::metal::impl::constant_value<type>(bits);                    \
  }
#define MSL_CONSTANT_DEFINED(index)                                      \
  ([]() {                                                                \
    uint bits;                                                           \
    asm("mov.b32 %0, MSL_DEFINED_" #index ";" : "=r"(bits));             \
    return bits != 0;                                                    \
  }())
#define MSL_DERIVED(type, accessor) static MSL_FN type accessor()

namespace metal {
namespace impl {
// The type between parentheses, as the macros above get it.
template <class F> struct argument;
template <class T> struct argument<void(T)> { typedef T type; };
template <class F> using bare = typename argument<F>::type;

template <class T> MSL_FN T constant_value(uint bits) { return __builtin_bit_cast(T, bits); }
template <> MSL_FN bool constant_value<bool>(uint bits) { return bits != 0; }

// ---- launchers bind by conversion, because they do not know the types of a template's parameters ----
struct pointer_to {
  void *p;
  template <class T> MSL_FN operator T *() const { return (T *)p; }
};
struct reference_to {
  void *p;
  template <class T> MSL_FN operator T &() const { return *(T *)p; }
};
// The kernels before this one have ended, and the next one may take its place on the device: it waits here in turn.
MSL_FN void enter() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// A constant block as a launch hands it over: the bytes themselves where they fit, else where they are.
struct block {
  const void *at; // null: the bytes are here
  ulong unused;
  alignas(16) uint words[60];
};
// What a kernel cannot write is read once into registers: otherwise every store might have changed it.
struct constant_reference {
  const block &b;
  alignas(16) char copy[512];
  MSL_FN explicit constant_reference(const block &from) : b(from) {}
  template <class T> MSL_FN operator T &() {
    if constexpr (sizeof(T) > sizeof(b.words) || sizeof(T) % 4 != 0) {
      if constexpr (sizeof(T) > sizeof(copy)) return *(T *)b.at;
      __builtin_memcpy(copy, b.at ? b.at : b.words, sizeof(T));
    } else {
      // The two ways to a word are kept apart: one pointer for both would put the block into memory.
      for (uint i = 0; i < sizeof(T) / 4; i++) {
        uint word = b.words[i];
        if (b.at) asm("ld.global.u32 %0, [%1];" : "=r"(word) : "l"((const uint *)b.at + i));
        ((uint *)copy)[i] = word;
      }
    }
    return *(T *)copy;
  }
};
MSL_FN pointer_to threadgroup_at(ulong offset) { return pointer_to{(void *)(msl_dynamic + offset)}; }

MSL_FN uint index_in_group() {
  return (uint)(MSL_REGISTER(tid_x) + MSL_REGISTER(ntid_x) * (MSL_REGISTER(tid_y) + MSL_REGISTER(ntid_y) * MSL_REGISTER(tid_z)));
}
MSL_FN uint threads_in_group() { return (uint)(MSL_REGISTER(ntid_x) * MSL_REGISTER(ntid_y) * MSL_REGISTER(ntid_z)); }
MSL_FN int lane() { return (int)(index_in_group() & 31); }

#define MSL_POSITION(name, a, b, c)                                                                     \
  struct at_##name {                                                                                    \
    MSL_FN operator uint() const { return (uint)(a); }                                                  \
    MSL_FN operator ushort() const { return (ushort)(a); }                                              \
    MSL_FN operator vec<uint, 2>() const { return uint2((uint)(a), (uint)(b)); }                        \
    MSL_FN operator vec<uint, 3>() const { return uint3((uint)(a), (uint)(b), (uint)(c)); }             \
    MSL_FN operator vec<ushort, 2>() const { return ushort2((ushort)(a), (ushort)(b)); }                \
    MSL_FN operator vec<ushort, 3>() const { return ushort3((ushort)(a), (ushort)(b), (ushort)(c)); }   \
  };
#define MSL_REGISTERS(name) MSL_REGISTER(name##_x), MSL_REGISTER(name##_y), MSL_REGISTER(name##_z)
#define MSL_POSITION_OF(name, ...) MSL_POSITION(name, __VA_ARGS__)
MSL_POSITION_OF(position_in_group, MSL_REGISTERS(tid))
MSL_POSITION_OF(group_position, MSL_REGISTERS(ctaid))
MSL_POSITION_OF(groups, MSL_REGISTERS(nctaid))
MSL_POSITION_OF(threads, MSL_REGISTERS(ntid))
MSL_POSITION(position_in_grid, MSL_REGISTER(ctaid_x) * MSL_REGISTER(ntid_x) + MSL_REGISTER(tid_x),
             MSL_REGISTER(ctaid_y) * MSL_REGISTER(ntid_y) + MSL_REGISTER(tid_y),
             MSL_REGISTER(ctaid_z) * MSL_REGISTER(ntid_z) + MSL_REGISTER(tid_z))
MSL_POSITION(grid, MSL_REGISTER(ntid_x) * MSL_REGISTER(nctaid_x), MSL_REGISTER(ntid_y) * MSL_REGISTER(nctaid_y),
             MSL_REGISTER(ntid_z) * MSL_REGISTER(nctaid_z))
MSL_POSITION(index, index_in_group(), 0, 0)
MSL_POSITION(simdgroup, index_in_group() >> 5, 0, 0)
MSL_POSITION(lane, index_in_group() & 31, 0, 0)
MSL_POSITION(simdgroups, (threads_in_group() + 31) >> 5, 0, 0)

// ---- moving values between lanes: the hardware moves 32 bits at a time ----
template <class T, class F> MSL_FN T by_words(T x, F move) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, move(__builtin_bit_cast(int, x)));
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bit_cast(T, (ushort)move((int)__builtin_bit_cast(ushort, x)));
  } else if constexpr (sizeof(T) == 1) {
    return (T)move((int)x);
  } else {
    static_assert(sizeof(T) % 4 == 0, "lanes exchange whole words");
    struct words { int at[sizeof(T) / 4]; };
    words w = __builtin_bit_cast(words, x);
    for (int &v : w.at) v = move(v);
    return __builtin_bit_cast(T, w);
  }
}
template <class T> MSL_FN T from_lane(T x, int from) {
  return by_words(x, [=](int v) { return __nvvm_shfl_sync_idx_i32(MSL_ALL_LANES, v, from, 31); });
}
template <class T> MSL_FN T from_xor(T x, int mask) {
  return by_words(x, [=](int v) { return __nvvm_shfl_sync_bfly_i32(MSL_ALL_LANES, v, mask, 31); });
}
template <class T> MSL_FN T from_below(T x, int by) {
  return by_words(x, [=](int v) { return __nvvm_shfl_sync_up_i32(MSL_ALL_LANES, v, by, 0); });
}
template <class T> MSL_FN T from_above(T x, int by) {
  return by_words(x, [=](int v) { return __nvvm_shfl_sync_down_i32(MSL_ALL_LANES, v, by, 31); });
}

// Halves the distance each round: every lane adds up in the order of lane 0 of the software device.
template <class T, class F> MSL_FN T reduce(T x, F combine) {
  for (int distance = 16; distance > 0; distance >>= 1) x = combine(x, from_xor(x, distance));
  return x;
}
} // namespace impl

// For kernels that wait by themselves, after what they can do before.
MSL_FN void inputs_ready(int) { impl::enter(); }
// Brings bytes to the cache that all processors share, in pieces of 16, which no allocation divides.
MSL_FN void fetch_ahead(const void *p, uint n) {
  const ulong from = (ulong)p & ~15ul;
  const uint size = (uint)(((ulong)p + n + 15 & ~15ul) - from);
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(size) : "memory");
}
MSL_FN void fetch_ahead(const uchar *p, uint n) { fetch_ahead((const void *)p, n); }
MSL_FN void fetch_ahead(const float *p, uint n) { fetch_ahead((const void *)p, n); }

MSL_FN uint glance(const uint *p) {
  uint v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

// Whether 16 bytes can be loaded at once from p on: the kernels ask, and have an answer of their own for others.
MSL_FN bool loads_wide(const uchar *p) { return (ulong)p % 16 == 0; }

// ---- barriers: both order the memory accesses of those who meet ----
MSL_FN void threadgroup_barrier(mem_flags) { __nvvm_bar_sync(0); }
MSL_FN void simdgroup_barrier(mem_flags) { __nvvm_bar_warp_sync(MSL_ALL_LANES); }

// ---- simdgroup functions ----
#define MSL_REDUCTION(name, expression) \
  template <class T> MSL_FN T name(T x) { return impl::reduce(x, [](T a, T b) { return (T)(expression); }); }
MSL_REDUCTION(simd_sum, a + b)
MSL_REDUCTION(simd_product, a * b)
MSL_REDUCTION(simd_max, a > b ? a : b)
MSL_REDUCTION(simd_min, a < b ? a : b)
// whole numbers, whose order does not matter, in one instruction
#define MSL_REDUCTION_OF_UINT(name, operation)                                                        \
  MSL_FN uint name(uint x) {                                                                          \
    uint y;                                                                                           \
    asm volatile("redux.sync." #operation ".u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x) : "memory"); \
    return y;                                                                                         \
  }
MSL_REDUCTION_OF_UINT(simd_sum, add)
MSL_REDUCTION_OF_UINT(simd_max, max)
MSL_REDUCTION_OF_UINT(simd_min, min)
#undef MSL_REDUCTION_OF_UINT
MSL_REDUCTION(simd_or, a | b)
MSL_REDUCTION(simd_and, a & b)
MSL_REDUCTION(simd_xor, a ^ b)
template <class T> MSL_FN T simd_prefix_inclusive_sum(T x) {
  const int lane = impl::lane();
  for (int by = 1; by < 32; by <<= 1) {
    const T below = impl::from_below(x, by);
    if (lane >= by) x += below;
  }
  return x;
}
template <class T> MSL_FN T simd_prefix_exclusive_sum(T x) {
  const T below = impl::from_below(simd_prefix_inclusive_sum(x), 1);
  return impl::lane() == 0 ? (T)0 : below;
}
template <class T> MSL_FN T simd_shuffle(T x, ushort from) { return impl::from_lane(x, from); }
template <class T> MSL_FN T simd_shuffle_xor(T x, ushort mask) { return impl::from_xor(x, mask); }
template <class T> MSL_FN T simd_shuffle_up(T x, ushort by) { return impl::from_below(x, by); }
template <class T> MSL_FN T simd_shuffle_down(T x, ushort by) { return impl::from_above(x, by); }
template <class T> MSL_FN T simd_broadcast(T x, ushort from) { return impl::from_lane(x, from); }
template <class T> MSL_FN T simd_broadcast_first(T x) { return impl::from_lane(x, 0); }
MSL_FN bool simd_all(bool b) { return __nvvm_vote_all_sync(MSL_ALL_LANES, b); }
MSL_FN bool simd_any(bool b) { return __nvvm_vote_any_sync(MSL_ALL_LANES, b); }
MSL_FN bool simd_is_first() { return impl::lane() == 0; }

// ---- atomics ----
template <class T> struct atomic { T v; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;
template <class T> MSL_FN T atomic_load_explicit(const volatile atomic<T> *a, memory_order) { return a->v; }
template <class T> MSL_FN void atomic_store_explicit(volatile atomic<T> *a, T v, memory_order) { a->v = v; }
template <class T> MSL_FN T atomic_exchange_explicit(volatile atomic<T> *a, T v, memory_order) {
  T old;
  __atomic_exchange((T *)&a->v, &v, &old, __ATOMIC_RELAXED);
  return old;
}
template <class T> MSL_FN bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *a, T *expected, T v, memory_order, memory_order) {
  return __atomic_compare_exchange((T *)&a->v, expected, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
#define MSL_ATOMIC(name, operation)                                                      \
  template <class T> MSL_FN T name(volatile atomic<T> *a, T v, memory_order) {           \
    return operation((T *)&a->v, v, __ATOMIC_RELAXED);                                   \
  }
MSL_ATOMIC(atomic_fetch_add_explicit, __atomic_fetch_add)
MSL_ATOMIC(atomic_fetch_sub_explicit, __atomic_fetch_sub)
MSL_ATOMIC(atomic_fetch_max_explicit, __atomic_fetch_max)
MSL_ATOMIC(atomic_fetch_min_explicit, __atomic_fetch_min)
MSL_ATOMIC(atomic_fetch_or_explicit, __atomic_fetch_or)
MSL_ATOMIC(atomic_fetch_and_explicit, __atomic_fetch_and)
#undef MSL_ATOMIC
} // namespace metal
