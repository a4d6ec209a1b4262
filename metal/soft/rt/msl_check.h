// Declarations only, as C++ for OpenCL: what clang needs to type-check a kernel with its address spaces.
#pragma once
#define MSL_EXPORT
#define MSL_THREADGROUP_ARRAY(slot, name, type, ...)                                  \
  typedef ::metal::impl::bare<void type> name##_element;                              \
  threadgroup name##_element(&name) __VA_ARGS__ = *(threadgroup name##_element(*) __VA_ARGS__)(unsigned long)(slot + 1)
#define MSL_THREADGROUP_VALUE(slot, name, type)                                       \
  typedef ::metal::impl::bare<void type> name##_element;                              \
  threadgroup name##_element &name = *(threadgroup name##_element *)(unsigned long)(slot + 1)
#define MSL_CONSTANT(type, accessor, index) type accessor();
#define MSL_CONSTANT_DEFINED(index) true
#define MSL_DERIVED(type, accessor) static inline type accessor()

namespace metal {
namespace impl {
template <class F> struct argument;
template <class T> struct argument<void(T)> { typedef T type; };
template <class F> using bare = typename argument<F>::type;
struct any_pointer {
  template <class T> operator __global T *() const;
  template <class T> operator __local T *() const;
  template <class T> operator __constant T *() const;
};
struct any_reference {
  template <class T> operator __global T &() const;
  template <class T> operator __constant T &() const;
};
struct any_position {
  operator uint() const;
  operator ushort() const;
  operator vec<uint, 2>() const;
  operator vec<uint, 3>() const;
  operator vec<ushort, 2>() const;
  operator vec<ushort, 3>() const;
};
} // namespace impl

void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

#define MSL_SIMD1(name) template <class T> T name(T x);
MSL_SIMD1(simd_sum) MSL_SIMD1(simd_product) MSL_SIMD1(simd_max) MSL_SIMD1(simd_min) MSL_SIMD1(simd_or) MSL_SIMD1(simd_and)
MSL_SIMD1(simd_xor) MSL_SIMD1(simd_prefix_inclusive_sum) MSL_SIMD1(simd_prefix_exclusive_sum) MSL_SIMD1(simd_broadcast_first)
#undef MSL_SIMD1
#define MSL_SIMD2(name) template <class T> T name(T x, ushort lane);
MSL_SIMD2(simd_shuffle) MSL_SIMD2(simd_shuffle_xor) MSL_SIMD2(simd_shuffle_up) MSL_SIMD2(simd_shuffle_down) MSL_SIMD2(simd_broadcast)
#undef MSL_SIMD2
bool simd_all(bool);
bool simd_any(bool);
bool simd_is_first();

template <class T, int R, int C> struct simdgroup_matrix {
  static_assert(R == 8 && C == 8, "simdgroup matrices are 8x8");
  T e[2];
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T v);
  thread vec<T, 2> &thread_elements();
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v);
#define MSL_MATRIX_MOVES(space)                                                                                          \
  template <class T> void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &m, const space T *p, ulong stride = 8,        \
                                         vec<ulong, 2> origin = 0, bool transposed = false);
MSL_MATRIX_MOVES(__global) MSL_MATRIX_MOVES(__local)
#undef MSL_MATRIX_MOVES
template <class T> void simdgroup_store(simdgroup_matrix<T, 8, 8> m, __global T *p, ulong stride = 8, vec<ulong, 2> origin = 0, bool transposed = false);
template <class T> void simdgroup_store(simdgroup_matrix<T, 8, 8> m, __local T *p, ulong stride = 8, vec<ulong, 2> origin = 0, bool transposed = false);
template <class D, class A, class B, class C2>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C2, 8, 8> c);
template <class D, class A, class B> void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b);

template <class T> struct atomic { T v; };
#define MSL_ATOMIC(name)                                                            \
  template <class T> T name(volatile __global atomic<T> *a, T v, memory_order o);   \
  template <class T> T name(volatile __local atomic<T> *a, T v, memory_order o);
MSL_ATOMIC(atomic_fetch_add_explicit) MSL_ATOMIC(atomic_fetch_sub_explicit) MSL_ATOMIC(atomic_fetch_max_explicit)
MSL_ATOMIC(atomic_fetch_min_explicit) MSL_ATOMIC(atomic_fetch_or_explicit) MSL_ATOMIC(atomic_fetch_and_explicit)
MSL_ATOMIC(atomic_exchange_explicit) MSL_ATOMIC(atomic_store_explicit)
#undef MSL_ATOMIC
template <class T> T atomic_load_explicit(const volatile __global atomic<T> *a, memory_order o);
template <class T> T atomic_load_explicit(const volatile __local atomic<T> *a, memory_order o);
template <class T> bool atomic_compare_exchange_weak_explicit(volatile __global atomic<T> *a, thread T *expected, T v, memory_order s, memory_order f);
template <class T> bool atomic_compare_exchange_weak_explicit(volatile __local atomic<T> *a, thread T *expected, T v, memory_order s, memory_order f);
} // namespace metal
// OpenCL has types of these names.
#define atomic_int metal::atomic<int>
#define atomic_uint metal::atomic<uint>
#define atomic_float metal::atomic<float>
#define atomic_ulong metal::atomic<ulong>
// Words that OpenCL reserves and Metal does not.
#define local msl_local
#define global msl_global
#define private msl_private
#define generic msl_generic
#define pipe msl_pipe
#define uniform msl_uniform
#define read_only msl_read_only
#define write_only msl_write_only
#define read_write msl_read_write
