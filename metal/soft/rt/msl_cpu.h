// The part of the Metal standard library that threads meet in, for kernels that run as fibers: barriers,
// simdgroup functions, simdgroup matrices, atomics, threadgroup memory, function constants.
//
// Functions are nodebug: clang then gives their instructions the place of the call, which is what an error
// should name.
#pragma once
#include "msl_abi.h"
#define MSL_EXPORT __attribute__((visibility("default")))
#define MSL_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

#define MSL_THREADGROUP_ARRAY(slot, name, type, ...)               \
  typedef ::metal::impl::bare<void type> name##_element;           \
  typedef name##_element name##_array __VA_ARGS__;                       \
  name##_array &name = *(name##_array *)msl_rt_array(slot, #name, sizeof(name##_array), alignof(name##_array))
#define MSL_THREADGROUP_VALUE(slot, name, type)                    \
  typedef ::metal::impl::bare<void type> name##_element;           \
  name##_element &name = *(name##_element *)msl_rt_array(slot, #name, sizeof(name##_element), alignof(name##_element))

#define MSL_CONSTANT(type, accessor, index)                                         \
  static MSL_FN type accessor() {                                                   \
    if (!(msl_now.constants->defined >> index & 1)) msl_rt_missing_constant(#accessor, index); \
    return ::metal::impl::constant_value<type>(msl_now.constants->value[index]);    \
  }
#define MSL_CONSTANT_DEFINED(index) ((bool)(msl_now.constants->defined >> index & 1))
#define MSL_DERIVED(type, accessor) static MSL_FN type accessor()

namespace metal {
namespace impl {
// The type between parentheses, as the macros above get it.
template <class F> struct argument;
template <class T> struct argument<void(T)> { typedef T type; };
template <class F> using bare = typename argument<F>::type;

template <class T> MSL_FN T constant_value(uint bits) { return __builtin_bit_cast(T, bits); }
template <> MSL_FN bool constant_value<bool>(uint bits) { return bits != 0; }

// Launchers bind by conversion, because they do not know the types of a template's parameters.
struct pointer_to {
  void *p;
  template <class T> MSL_FN operator T *() const { return (T *)p; }
};
struct reference_to {
  void *p;
  ulong bytes;
  int index;
  template <class T> MSL_FN operator T &() const {
    if (bytes < sizeof(T)) msl_rt_short_binding(index, bytes, sizeof(T));
    return *(T *)p;
  }
};
struct position {
  const uint *p;
  MSL_FN operator uint() const { return p[0]; }
  MSL_FN operator ushort() const { return (ushort)p[0]; }
  MSL_FN operator vec<uint, 2>() const { return uint2(p[0], p[1]); }
  MSL_FN operator vec<uint, 3>() const { return uint3(p[0], p[1], p[2]); }
  MSL_FN operator vec<ushort, 2>() const { return ushort2(p[0], p[1]); }
  MSL_FN operator vec<ushort, 3>() const { return ushort3(p[0], p[1], p[2]); }
};

MSL_FN int lane() { return msl_now.lane; }

// ---- what a collective computes ------------------------------------------------
struct add { template <class T> static T of(T a, T b) { return a + b; } };
struct multiply { template <class T> static T of(T a, T b) { return a * b; } };
struct larger { template <class T> static T of(T a, T b) { return a > b ? a : b; } };
struct smaller { template <class T> static T of(T a, T b) { return a < b ? a : b; } };
struct either { template <class T> static T of(T a, T b) { return a | b; } };
struct both { template <class T> static T of(T a, T b) { return a & b; } };
struct differ { template <class T> static T of(T a, T b) { return a ^ b; } };

// Halves the distance each round, as hardware does: lane i takes lane i+16, then i+8, ...
template <class T, class Op> void reduce_lanes(void **payloads, unsigned active) {
  T t[32];
  bool has[32];
  for (int i = 0; i < 32; i++)
    if ((has[i] = active >> i & 1)) t[i] = *(T *)payloads[i];
  for (int o = 16; o; o >>= 1)
    for (int i = 0; i < o; i++) {
      if (has[i] && has[i + o]) t[i] = Op::of(t[i], t[i + o]);
      else if (has[i + o]) t[i] = t[i + o], has[i] = true;
    }
  for (int i = 0; i < 32; i++)
    if (active >> i & 1) *(T *)payloads[i] = t[0];
}
template <class T, class Op> MSL_FN T reduce(T x, const char *file, int line) {
  msl_rt_simd(reduce_lanes<T, Op>, &x, file, line);
  return x;
}

template <class T, class Op, bool Inclusive> void scan_lanes(void **payloads, unsigned active) {
  T sum = Op::template of<T>((T)0, (T)0);
  bool first = true;
  for (int i = 0; i < 32; i++) {
    if (!(active >> i & 1)) continue;
    T *p = (T *)payloads[i], v = *p, next = first ? v : Op::of(sum, v);
    *p = Inclusive ? next : first ? (T)0 : sum;
    sum = next, first = false;
  }
}
template <class T, class Op, bool Inclusive> MSL_FN T scan(T x, const char *file, int line) {
  msl_rt_simd(scan_lanes<T, Op, Inclusive>, &x, file, line);
  return x;
}

template <class T> struct shuffled {
  T value;
  int from;
};
// A lane that names no active lane keeps its own value; Metal leaves it undefined.
template <class T> void shuffle_lanes(void **payloads, unsigned active) {
  T t[32];
  for (int i = 0; i < 32; i++)
    if (active >> i & 1) t[i] = ((shuffled<T> *)payloads[i])->value;
  for (int i = 0; i < 32; i++)
    if (active >> i & 1) {
      shuffled<T> *s = (shuffled<T> *)payloads[i];
      if (s->from >= 0 && s->from < 32 && (active >> s->from & 1)) s->value = t[s->from];
    }
}
template <class T> MSL_FN T shuffle(T x, int from, const char *file, int line) {
  shuffled<T> s{x, from};
  msl_rt_simd(shuffle_lanes<T>, &s, file, line);
  return s.value;
}
} // namespace impl

// ---- barriers -------------------------------------------------------------------
MSL_FN void threadgroup_barrier(mem_flags f, MSL_PLACE) { msl_rt_barrier((int)f, file, line); }
MSL_FN void simdgroup_barrier(mem_flags f, MSL_PLACE) { msl_rt_simd_barrier((int)f, file, line); }

// ---- simdgroup functions ----------------------------------------------------------
template <class T> MSL_FN T simd_sum(T x, MSL_PLACE) { return impl::reduce<T, impl::add>(x, file, line); }
template <class T> MSL_FN T simd_product(T x, MSL_PLACE) { return impl::reduce<T, impl::multiply>(x, file, line); }
template <class T> MSL_FN T simd_max(T x, MSL_PLACE) { return impl::reduce<T, impl::larger>(x, file, line); }
template <class T> MSL_FN T simd_min(T x, MSL_PLACE) { return impl::reduce<T, impl::smaller>(x, file, line); }
template <class T> MSL_FN T simd_or(T x, MSL_PLACE) { return impl::reduce<T, impl::either>(x, file, line); }
template <class T> MSL_FN T simd_and(T x, MSL_PLACE) { return impl::reduce<T, impl::both>(x, file, line); }
template <class T> MSL_FN T simd_xor(T x, MSL_PLACE) { return impl::reduce<T, impl::differ>(x, file, line); }
template <class T> MSL_FN T simd_prefix_inclusive_sum(T x, MSL_PLACE) { return impl::scan<T, impl::add, true>(x, file, line); }
template <class T> MSL_FN T simd_prefix_exclusive_sum(T x, MSL_PLACE) { return impl::scan<T, impl::add, false>(x, file, line); }
template <class T> MSL_FN T simd_shuffle(T x, ushort from, MSL_PLACE) { return impl::shuffle<T>(x, from, file, line); }
template <class T> MSL_FN T simd_shuffle_xor(T x, ushort mask, MSL_PLACE) { return impl::shuffle<T>(x, impl::lane() ^ mask, file, line); }
template <class T> MSL_FN T simd_shuffle_up(T x, ushort by, MSL_PLACE) { return impl::shuffle<T>(x, impl::lane() - by, file, line); }
template <class T> MSL_FN T simd_shuffle_down(T x, ushort by, MSL_PLACE) { return impl::shuffle<T>(x, impl::lane() + by, file, line); }
template <class T> MSL_FN T simd_broadcast(T x, ushort from, MSL_PLACE) { return impl::shuffle<T>(x, from, file, line); }
template <class T> MSL_FN T simd_broadcast_first(T x, MSL_PLACE) { return impl::shuffle<T>(x, 0, file, line); }
MSL_FN bool simd_all(bool b, MSL_PLACE) { return impl::reduce<int, impl::both>(b, file, line); }
MSL_FN bool simd_any(bool b, MSL_PLACE) { return impl::reduce<int, impl::either>(b, file, line); }
MSL_FN bool simd_is_first() { return impl::lane() == 0; }

// ---- simdgroup matrices: 8x8, two elements a lane, in Apple's lane map ---------------
namespace impl {
MSL_FN int matrix_row(int lane) { return (lane / 4 & 4) + lane / 2 % 4; }
MSL_FN int matrix_column(int lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

typedef float row8 __attribute__((ext_vector_type(8)));

template <class T> MSL_FN vec<float, 2> from_bits(const ulong &bits) { return __builtin_convertvector(*(const vec<T, 2> *)&bits, vec<float, 2>); }
template <class T> MSL_FN ulong to_bits(vec<T, 2> v) {
  ulong bits = 0;
  *(vec<T, 2> *)&bits = v;
  return bits;
}

// d = a b + c in float32 for all lanes: each sum runs over k upwards from c. Where Continues, c is d.
template <class D, class A, class B, class C, bool Continues> void multiply_lanes(msl_product *p) {
  float x[8][8];
  row8 y[8], z[8];
#pragma clang loop unroll(full)
  for (int l = 0; l < 32; l++) {
    int r = matrix_row(l), k = matrix_column(l);
    *(vec<float, 2> *)&x[r][k] = from_bits<A>(p->a[l]);
    *(vec<float, 2> *)((float *)&y[r] + k) = from_bits<B>(p->b[l]);
    *(vec<float, 2> *)((float *)&z[r] + k) = Continues ? __builtin_convertvector(*(vec<D, 2> *)p->result[l], vec<float, 2>) : from_bits<C>(p->start[l]);
  }
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < 8; k++) z[i] = __builtin_elementwise_fma((row8)x[i][k], y[k], z[i]);
#pragma clang loop unroll(full)
  for (int l = 0; l < 32; l++)
    *(vec<D, 2> *)p->result[l] = __builtin_convertvector(*(vec<float, 2> *)((float *)&z[matrix_row(l)] + matrix_column(l)), vec<D, 2>);
}
} // namespace impl

// A matrix whose value is still to be computed has the lane's epoch in pending. Whatever reads or replaces the
// value, or ends the matrix, has it computed first; products on the way are taken down and computed together,
// since the lanes of a simdgroup then meet once and not for each.
template <class T, int R, int C> struct simdgroup_matrix {
  static_assert(R == 8 && C == 8, "simdgroup matrices are 8x8");
  vec<T, 2> e;
  uint pending = 0;
  MSL_FN simdgroup_matrix() {}
  MSL_FN explicit simdgroup_matrix(T v) { e[0] = v, e[1] = v; }
  MSL_FN simdgroup_matrix(const simdgroup_matrix &from, MSL_PLACE) {
    from.settle(file, line);
    e = from.e;
  }
  MSL_FN simdgroup_matrix &operator=(const simdgroup_matrix &from) {
    settle(nullptr, 0);
    from.settle(nullptr, 0);
    e = from.e;
    return *this;
  }
  MSL_FN ~simdgroup_matrix() { settle(nullptr, 0); }
  MSL_FN void settle(const char *file, int line) const {
    if (pending == msl_now.pending->epoch) msl_rt_settle(file, line);
  }
  MSL_FN vec<T, 2> &thread_elements(MSL_PLACE) {
    settle(file, line);
    return e;
  }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int R, int C> MSL_FN simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) { return simdgroup_matrix<T, R, C>(v); }
template <class T> MSL_FN void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const T *p, ulong stride = 8, vec<ulong, 2> origin = 0, bool transposed = false, MSL_PLACE) {
  m.settle(file, line);
  int r = impl::matrix_row(impl::lane()), c = impl::matrix_column(impl::lane());
  p += origin[1] * stride + origin[0];
  for (int i = 0; i < 2; i++) m.e[i] = transposed ? p[(ulong)(c + i) * stride + r] : p[(ulong)r * stride + c + i];
}
template <class T> MSL_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, T *p, ulong stride = 8, vec<ulong, 2> origin = 0, bool transposed = false, MSL_PLACE) {
  m.settle(file, line);
  int r = impl::matrix_row(impl::lane()), c = impl::matrix_column(impl::lane());
  p += origin[1] * stride + origin[0];
  for (int i = 0; i < 2; i++) {
    if (transposed) p[(ulong)(c + i) * stride + r] = m.e[i];
    else p[(ulong)r * stride + c + i] = m.e[i];
  }
}
template <class D, class A, class B, class C>
MSL_FN void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a, const simdgroup_matrix<B, 8, 8> &b,
                                          const simdgroup_matrix<C, 8, 8> &c, MSL_PLACE) {
  a.settle(file, line);
  b.settle(file, line);
  const bool continues = (const void *)&c == (const void *)&d;
  if (!continues) c.settle(file, line);
  if (msl_now.pending->count == MSL_PRODUCTS) msl_rt_settle(file, line);
  msl_pending *mine = msl_now.pending;
  msl_product *p = &mine->rows[mine->count++];
  const int lane = impl::lane();
  p->result[lane] = &d.e;
  p->a[lane] = impl::to_bits<A>(a.e);
  p->b[lane] = impl::to_bits<B>(b.e);
  p->run[lane] = impl::multiply_lanes<D, A, B, C, true>;
  if (!continues) {
    p->start[lane] = impl::to_bits<C>(c.e);
    p->run[lane] = impl::multiply_lanes<D, A, B, C, false>;
  }
  p->line[lane] = line, p->file = file;
  d.pending = mine->epoch;
}
template <class D, class A, class B>
MSL_FN void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a, const simdgroup_matrix<B, 8, 8> &b, MSL_PLACE) {
  simdgroup_matrix<D, 8, 8> zero((D)0);
  simdgroup_multiply_accumulate(d, a, b, zero, file, line);
}

// ---- atomics ------------------------------------------------------------------------
template <class T> struct atomic { T v; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;
template <class T> MSL_FN T atomic_load_explicit(const volatile atomic<T> *a, memory_order) {
  T r;
  __atomic_load((const T *)&a->v, &r, __ATOMIC_RELAXED);
  return r;
}
template <class T> MSL_FN void atomic_store_explicit(volatile atomic<T> *a, T v, memory_order) { __atomic_store((T *)&a->v, &v, __ATOMIC_RELAXED); }
template <class T> MSL_FN T atomic_exchange_explicit(volatile atomic<T> *a, T v, memory_order) {
  T r;
  __atomic_exchange((T *)&a->v, &v, &r, __ATOMIC_RELAXED);
  return r;
}
template <class T> MSL_FN bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *a, T *expected, T v, memory_order, memory_order) {
  return __atomic_compare_exchange((T *)&a->v, expected, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
namespace impl {
template <class T, class F> MSL_FN T update(volatile atomic<T> *a, F next) {
  T old, value;
  __atomic_load((const T *)&a->v, &old, __ATOMIC_RELAXED);
  do value = next(old);
  while (!__atomic_compare_exchange((T *)&a->v, &old, &value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
} // namespace impl
template <class T> MSL_FN T atomic_fetch_add_explicit(volatile atomic<T> *a, T v, memory_order) { return impl::update(a, [=](T o) { return (T)(o + v); }); }
template <class T> MSL_FN T atomic_fetch_sub_explicit(volatile atomic<T> *a, T v, memory_order) { return impl::update(a, [=](T o) { return (T)(o - v); }); }
template <class T> MSL_FN T atomic_fetch_max_explicit(volatile atomic<T> *a, T v, memory_order) { return impl::update(a, [=](T o) { return o > v ? o : v; }); }
template <class T> MSL_FN T atomic_fetch_min_explicit(volatile atomic<T> *a, T v, memory_order) { return impl::update(a, [=](T o) { return o < v ? o : v; }); }
template <class T> MSL_FN T atomic_fetch_or_explicit(volatile atomic<T> *a, T v, memory_order) { return impl::update(a, [=](T o) { return (T)(o | v); }); }
template <class T> MSL_FN T atomic_fetch_and_explicit(volatile atomic<T> *a, T v, memory_order) { return impl::update(a, [=](T o) { return (T)(o & v); }); }
} // namespace metal
