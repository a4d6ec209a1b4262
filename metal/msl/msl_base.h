// The Metal standard library, as far as our kernels use it: scalars, vectors, packed vectors, conversions,
// limits and mathematics. Two targets read it: MSL_CPU runs kernels with address spaces erased, MSL_CHECK
// only parses, as C++ for OpenCL, with address spaces kept apart.
#pragma once
#define MSL_FN __attribute__((always_inline, nodebug)) inline

// ---- scalars ----------------------------------------------------------------
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long uint64_t;
typedef long int64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
#if defined(MSL_CHECK)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
struct bfloat {
  ushort bits;
  bfloat() = default;
  explicit bfloat(float);
  operator float() const;
  operator float() const __global;
  operator float() const __local;
  operator float() const __constant;
};
#else
typedef _Float16 half;
typedef __bf16 bfloat;
#endif

// ---- vectors ----------------------------------------------------------------
namespace metal {
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
}
#define MSL_VECTORS(T)                                \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_VECTORS(char) MSL_VECTORS(uchar) MSL_VECTORS(short) MSL_VECTORS(ushort) MSL_VECTORS(int) MSL_VECTORS(uint)
MSL_VECTORS(long) MSL_VECTORS(ulong) MSL_VECTORS(half) MSL_VECTORS(float)
#if defined(MSL_CPU)
MSL_VECTORS(bfloat)
#endif
#undef MSL_VECTORS

// ---- address spaces ---------------------------------------------------------
#if defined(MSL_CHECK)
#define device __global
#define constant const __constant
#define threadgroup __local
#else
#define device
#define constant const
#define threadgroup
#endif
#define thread
#define kernel static inline

namespace metal {
// ---- traits -----------------------------------------------------------------
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional { typedef T type; };
template <class T, class F> struct conditional<false, T, F> { typedef F type; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class T, class U> constexpr bool is_same_v = false;
template <class T> constexpr bool is_same_v<T, T> = true;
template <class T, class U> struct is_same { static constexpr bool value = is_same_v<T, U>; };
template <class T> constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
template <class T> constexpr bool is_integral_v = __is_integral(T);
template <class T> constexpr bool is_unsigned_v = is_integral_v<T> && !(T(-1) < T(0));
template <class T> constexpr bool is_signed_v = !is_unsigned_v<T>;

namespace impl {
template <class T> struct shape { typedef T element; static constexpr int width = 1; static constexpr bool vector = false; };
template <class T, int M> struct shape<vec<T, M>> { typedef T element; static constexpr int width = M; static constexpr bool vector = true; };
template <class V> using if_vector = enable_if_t<shape<V>::vector>;

// What float4(...) and its like mean: scalars and vectors end to end, one scalar for all, or a conversion.
template <class T, int N> struct construct {
  template <class... A> static MSL_FN vec<T, N> from(A... a) {
    if constexpr (sizeof...(A) == 1) {
      return one(a...);
    } else {
      static_assert((shape<A>::width + ...) == N, "wrong number of components");
      T t[N];
      int k = 0;
      (put(t, k, a), ...);
      vec<T, N> r;
      for (int i = 0; i < N; i++) r[i] = t[i];
      return r;
    }
  }
  static MSL_FN vec<T, N> from() { return (vec<T, N>)(T)0; }
  template <class A> static MSL_FN vec<T, N> one(A a) {
    if constexpr (shape<A>::vector) {
      static_assert(shape<A>::width == N, "vectors of different width");
      return __builtin_convertvector(a, vec<T, N>);
    } else {
      vec<T, N> r;
      for (int i = 0; i < N; i++) r[i] = (T)a;
      return r;
    }
  }
  template <class A> static MSL_FN void put(T *t, int &k, A a) {
    if constexpr (shape<A>::vector) {
      for (int i = 0; i < shape<A>::width; i++) t[k++] = (T)a[i];
    } else {
      t[k++] = (T)a;
    }
  }
};
} // namespace impl
} // namespace metal
#define char2(...) (::metal::impl::construct<char, 2>::from(__VA_ARGS__))
#define char3(...) (::metal::impl::construct<char, 3>::from(__VA_ARGS__))
#define char4(...) (::metal::impl::construct<char, 4>::from(__VA_ARGS__))
#define uchar2(...) (::metal::impl::construct<uchar, 2>::from(__VA_ARGS__))
#define uchar3(...) (::metal::impl::construct<uchar, 3>::from(__VA_ARGS__))
#define uchar4(...) (::metal::impl::construct<uchar, 4>::from(__VA_ARGS__))
#define short2(...) (::metal::impl::construct<short, 2>::from(__VA_ARGS__))
#define short3(...) (::metal::impl::construct<short, 3>::from(__VA_ARGS__))
#define short4(...) (::metal::impl::construct<short, 4>::from(__VA_ARGS__))
#define ushort2(...) (::metal::impl::construct<ushort, 2>::from(__VA_ARGS__))
#define ushort3(...) (::metal::impl::construct<ushort, 3>::from(__VA_ARGS__))
#define ushort4(...) (::metal::impl::construct<ushort, 4>::from(__VA_ARGS__))
#define int2(...) (::metal::impl::construct<int, 2>::from(__VA_ARGS__))
#define int3(...) (::metal::impl::construct<int, 3>::from(__VA_ARGS__))
#define int4(...) (::metal::impl::construct<int, 4>::from(__VA_ARGS__))
#define uint2(...) (::metal::impl::construct<uint, 2>::from(__VA_ARGS__))
#define uint3(...) (::metal::impl::construct<uint, 3>::from(__VA_ARGS__))
#define uint4(...) (::metal::impl::construct<uint, 4>::from(__VA_ARGS__))
#define long2(...) (::metal::impl::construct<long, 2>::from(__VA_ARGS__))
#define long4(...) (::metal::impl::construct<long, 4>::from(__VA_ARGS__))
#define ulong2(...) (::metal::impl::construct<ulong, 2>::from(__VA_ARGS__))
#define ulong4(...) (::metal::impl::construct<ulong, 4>::from(__VA_ARGS__))
#define half2(...) (::metal::impl::construct<half, 2>::from(__VA_ARGS__))
#define half3(...) (::metal::impl::construct<half, 3>::from(__VA_ARGS__))
#define half4(...) (::metal::impl::construct<half, 4>::from(__VA_ARGS__))
#define float2(...) (::metal::impl::construct<float, 2>::from(__VA_ARGS__))
#define float3(...) (::metal::impl::construct<float, 3>::from(__VA_ARGS__))
#define float4(...) (::metal::impl::construct<float, 4>::from(__VA_ARGS__))

namespace metal {
// ---- packed vectors: no padding, the element's alignment ----------------------
template <class T, int N> struct packed_vec {
  T e[N];
  packed_vec() = default;
#if defined(MSL_CHECK)
  packed_vec(vec<T, N> v);
  operator vec<T, N>() const;
  operator vec<T, N>() const __global;
  operator vec<T, N>() const __constant;
  operator vec<T, N>() const __local;
  void operator=(vec<T, N>);
  void operator=(vec<T, N>) __global;
  void operator=(vec<T, N>) __local;
  T operator[](int i) const;
  T operator[](int i) const __global;
  T operator[](int i) const __constant;
  T operator[](int i) const __local;
#else
  MSL_FN packed_vec(vec<T, N> v) {
    for (int i = 0; i < N; i++) e[i] = v[i];
  }
  MSL_FN operator vec<T, N>() const {
    vec<T, N> r;
    for (int i = 0; i < N; i++) r[i] = e[i];
    return r;
  }
  MSL_FN T &operator[](int i) { return e[i]; }
  MSL_FN const T &operator[](int i) const { return e[i]; }
#endif
};
typedef packed_vec<float, 2> packed_float2;
typedef packed_vec<float, 3> packed_float3;
typedef packed_vec<float, 4> packed_float4;
typedef packed_vec<half, 2> packed_half2;
typedef packed_vec<half, 3> packed_half3;
typedef packed_vec<half, 4> packed_half4;
typedef packed_vec<uchar, 4> packed_uchar4;
typedef packed_vec<uint, 2> packed_uint2;
typedef packed_vec<uint, 4> packed_uint4;

template <class To, class From> MSL_FN To as_type(From f) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs equal sizes");
  return __builtin_bit_cast(To, f);
}
} // namespace metal

// ---- limits -----------------------------------------------------------------
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f
#define M_SQRT1_2_F 0.70710678118654752440f
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.1920929e-7f
#define HALF_MAX ((half)65504.0f)
#define UINT_MAX 0xffffffffu
#define INT_MAX 0x7fffffff
#define INT_MIN (-0x7fffffff - 1)
namespace metal {
template <class T> struct numeric_limits;
#define MSL_INTEGER_LIMITS(T, low, high)              \
  template <> struct numeric_limits<T> {              \
    static constexpr T max() { return high; }         \
    static constexpr T min() { return low; }          \
    static constexpr T lowest() { return low; }       \
  };
MSL_INTEGER_LIMITS(char, -128, 127)
MSL_INTEGER_LIMITS(uchar, 0, 255)
MSL_INTEGER_LIMITS(short, -32768, 32767)
MSL_INTEGER_LIMITS(ushort, 0, 65535)
MSL_INTEGER_LIMITS(int, INT_MIN, INT_MAX)
MSL_INTEGER_LIMITS(uint, 0u, UINT_MAX)
MSL_INTEGER_LIMITS(long, (-0x7fffffffffffffffl - 1), 0x7fffffffffffffffl)
MSL_INTEGER_LIMITS(ulong, 0ul, ~0ul)
#undef MSL_INTEGER_LIMITS
template <> struct numeric_limits<float> {
  static constexpr float max() { return FLT_MAX; }
  static constexpr float min() { return FLT_MIN; }
  static constexpr float lowest() { return -FLT_MAX; }
  static constexpr float epsilon() { return FLT_EPSILON; }
  static constexpr float infinity() { return INFINITY; }
  static constexpr float quiet_NaN() { return NAN; }
};
template <> struct numeric_limits<half> {
  static constexpr half max() { return (half)65504.0f; }
  static constexpr half lowest() { return (half)-65504.0f; }
  static constexpr half infinity() { return (half)INFINITY; }
  static constexpr half quiet_NaN() { return (half)NAN; }
};

// ---- mathematics --------------------------------------------------------------
// Precision is the host's library's; what a GPU approximates is not modelled.
#if defined(MSL_CHECK)
#define MSL_MATH1(name) \
  template <class T> T name(T x);
#define MSL_MATH2(name) \
  template <class T> T name(T x, T y);
#else
#define MSL_MATH1(name)                                                                                \
  MSL_FN float name(float x) { return __builtin_##name##f(x); }                                        \
  MSL_FN half name(half x) { return (half)__builtin_##name##f((float)x); }                             \
  template <class V, class = impl::if_vector<V>> MSL_FN V name(V x) {                                  \
    V r;                                                                                               \
    for (int i = 0; i < impl::shape<V>::width; i++) r[i] = name(x[i]);                                 \
    return r;                                                                                          \
  }
#define MSL_MATH2(name)                                                                                \
  MSL_FN float name(float x, float y) { return __builtin_##name##f(x, y); }                            \
  MSL_FN half name(half x, half y) { return (half)__builtin_##name##f((float)x, (float)y); }           \
  template <class V, class = impl::if_vector<V>> MSL_FN V name(V x, V y) {                             \
    V r;                                                                                               \
    for (int i = 0; i < impl::shape<V>::width; i++) r[i] = name(x[i], y[i]);                           \
    return r;                                                                                          \
  }
#endif
MSL_MATH1(exp) MSL_MATH1(exp2) MSL_MATH1(log) MSL_MATH1(log2) MSL_MATH1(sqrt) MSL_MATH1(sin) MSL_MATH1(cos)
MSL_MATH1(tan) MSL_MATH1(tanh) MSL_MATH1(sinh) MSL_MATH1(cosh) MSL_MATH1(asin) MSL_MATH1(acos) MSL_MATH1(atan)
MSL_MATH1(fabs) MSL_MATH1(floor) MSL_MATH1(ceil) MSL_MATH1(trunc) MSL_MATH1(rint) MSL_MATH1(round)
MSL_MATH2(pow) MSL_MATH2(fmod) MSL_MATH2(atan2) MSL_MATH2(fmax) MSL_MATH2(fmin) MSL_MATH2(copysign)
#undef MSL_MATH1
#undef MSL_MATH2
template <class T> MSL_FN T rsqrt(T x) { return (T)1 / sqrt(x); }
template <class T> MSL_FN T powr(T x, T y) { return pow(x, y); }
template <class T> MSL_FN T fract(T x) { return x - floor(x); }
namespace precise {
using metal::exp; using metal::exp2; using metal::log; using metal::log2; using metal::sqrt; using metal::rsqrt;
using metal::sin; using metal::cos; using metal::tan; using metal::tanh; using metal::pow;
} // namespace precise
namespace fast {
using metal::exp; using metal::exp2; using metal::log; using metal::log2; using metal::sqrt; using metal::rsqrt;
using metal::sin; using metal::cos; using metal::tan; using metal::tanh; using metal::pow;
} // namespace fast

#if defined(MSL_CHECK)
template <class T> T fma(T a, T b, T c);
#else
MSL_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MSL_FN half fma(half a, half b, half c) { return (half)__builtin_fmaf((float)a, (float)b, (float)c); }
template <class V, class = impl::if_vector<V>> MSL_FN V fma(V a, V b, V c) {
  V r;
  for (int i = 0; i < impl::shape<V>::width; i++) r[i] = fma(a[i], b[i], c[i]);
  return r;
}
#endif
#define MSL_EACH2(name, expression)                                                                    \
  template <class T> MSL_FN enable_if_t<!impl::shape<T>::vector, T> name(T a, T b) { return expression; } \
  template <class V, class = impl::if_vector<V>> MSL_FN V name(V a, V b) {                             \
    V r;                                                                                               \
    for (int i = 0; i < impl::shape<V>::width; i++) r[i] = name((typename impl::shape<V>::element)a[i], (typename impl::shape<V>::element)b[i]); \
    return r;                                                                                          \
  }
MSL_EACH2(max, a > b ? a : (b == b ? b : a))
MSL_EACH2(min, a < b ? a : (b == b ? b : a))
#undef MSL_EACH2
template <class T> MSL_FN T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <class V, class = impl::if_vector<V>> MSL_FN V clamp(V x, typename impl::shape<V>::element low, typename impl::shape<V>::element high) { return min(max(x, (V)low), (V)high); }
template <class T> MSL_FN T saturate(T x) { return clamp(x, (T)0, (T)1); }
template <class T> MSL_FN enable_if_t<!impl::shape<T>::vector, T> abs(T x) { return x < (T)0 ? (T)-x : x; }
template <class V, class = impl::if_vector<V>> MSL_FN V abs(V x) {
  V r;
  for (int i = 0; i < impl::shape<V>::width; i++) r[i] = abs((typename impl::shape<V>::element)x[i]);
  return r;
}
template <class T> MSL_FN T sign(T x) { return x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : (T)0; }
template <class T> MSL_FN T select(T a, T b, bool c) { return c ? b : a; }
template <class T> MSL_FN T mix(T a, T b, T t) { return a + (b - a) * t; }
template <class T> MSL_FN T step(T edge, T x) { return x < edge ? (T)0 : (T)1; }
template <class T, int N> MSL_FN T dot(vec<T, N> a, vec<T, N> b) {
  T s = a[0] * b[0];
  for (int i = 1; i < N; i++) s += a[i] * b[i];
  return s;
}
template <class T, int N> MSL_FN T length(vec<T, N> a) { return sqrt(dot(a, a)); }
template <class T> MSL_FN bool isnan(T x) { return x != x; }
template <class T> MSL_FN bool isinf(T x) { return fabs(x) == (T)INFINITY; }
template <class T> MSL_FN bool isfinite(T x) { return fabs(x) < (T)INFINITY; }
MSL_FN uint popcount(uint x) { return (uint)__builtin_popcount(x); }
MSL_FN uint clz(uint x) { return x ? (uint)__builtin_clz(x) : 32u; }
MSL_FN uint ctz(uint x) { return x ? (uint)__builtin_ctz(x) : 32u; }
MSL_FN uint mulhi(uint a, uint b) { return (uint)(((ulong)a * b) >> 32); }
MSL_FN uint rotate(uint x, uint n) { return (n & 31) ? (x << (n & 31)) | (x >> (32 - (n & 31))) : x; }
MSL_FN uint extract_bits(uint x, uint offset, uint bits) { return bits == 0 ? 0 : (x >> offset) & (bits >= 32 ? ~0u : (1u << bits) - 1); }

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
MSL_FN constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
enum memory_order { memory_order_relaxed };
} // namespace metal
