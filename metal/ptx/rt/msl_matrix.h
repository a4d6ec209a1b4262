// simdgroup matrices on tensor cores. NVIDIA's lane map, the one place that knows it: lane l holds the elements
// (l/4, 2*(l%4)) and (l/4, 2*(l%4)+1) of an 8x8 matrix. So lie the accumulators and the left operand of mma.m16n8k8,
// whose lower eight rows stay zero here; the right operand lies like its transpose.
//
// A matrix remembers whether its lanes hold it or its transpose: loading a transposed matrix is then one aligned load
// a lane, and so is what the right operand wants. After inlining the flag is a constant, and costs nothing.
#pragma once
namespace metal {
namespace impl {
MSL_FN int matrix_row(int lane) { return lane >> 2; }
MSL_FN int matrix_column(int lane) { return (lane & 3) * 2; }
MSL_FN int matrix_lane(int row, int column) { return row * 4 + (column >> 1); }

template <class T> MSL_FN vec<T, 2> load_pair(const T *p) {
  if ((ulong)p % (2 * sizeof(T)) == 0) return *(const vec<T, 2> *)p;
  vec<T, 2> r;
  r[0] = p[0], r[1] = p[1];
  return r;
}
template <class T> MSL_FN void store_pair(T *p, vec<T, 2> v) {
  if ((ulong)p % (2 * sizeof(T)) == 0) {
    *(vec<T, 2> *)p = v;
  } else {
    p[0] = v[0], p[1] = v[1];
  }
}

// The transpose of what the lanes hold.
template <class T> MSL_FN vec<T, 2> transposed(vec<T, 2> e) {
  vec<T, 2> r;
  if constexpr (sizeof(T) == 2) {
    uint out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(__builtin_bit_cast(uint, e)));
    r = __builtin_bit_cast(vec<T, 2>, out);
  } else {
    const int row = matrix_row(lane()), column = matrix_column(lane());
    for (int i = 0; i < 2; i++) {
      const int from = matrix_lane(column + i, row);
      const T even = from_lane((T)e[0], from), odd = from_lane((T)e[1], from);
      r[i] = row & 1 ? odd : even;
    }
  }
  return r;
}
} // namespace impl

template <class T, int R, int C> struct simdgroup_matrix {
  static_assert(R == 8 && C == 8, "simdgroup matrices are 8x8");
  vec<T, 2> e;
  bool flipped; // the lanes hold the transpose
  simdgroup_matrix() = default;
  MSL_FN explicit simdgroup_matrix(T v) : flipped(false) { e[0] = v, e[1] = v; }
  MSL_FN vec<T, 2> &thread_elements() {
    e = upright();
    flipped = false;
    return e;
  }
  MSL_FN vec<T, 2> upright() const { return flipped ? impl::transposed<T>(e) : e; }
  MSL_FN vec<T, 2> across() const { return flipped ? e : impl::transposed<T>(e); }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int R, int C> MSL_FN simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) { return simdgroup_matrix<T, R, C>(v); }
template <class T> MSL_FN void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const T *p, ulong stride = 8, vec<ulong, 2> origin = 0, bool transposed = false) {
  const int r = impl::matrix_row(impl::lane()), c = impl::matrix_column(impl::lane());
  m.e = impl::load_pair(p + (origin[1] + (ulong)r) * stride + origin[0] + c);
  m.flipped = transposed;
}
template <class T> MSL_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, T *p, ulong stride = 8, vec<ulong, 2> origin = 0, bool transposed = false) {
  const int r = impl::matrix_row(impl::lane()), c = impl::matrix_column(impl::lane());
  impl::store_pair(p + (origin[1] + (ulong)r) * stride + origin[0] + c, transposed ? m.across() : m.upright());
}

namespace impl {
// d = a b + c on tensor cores: half in, float out.
MSL_FN vec<float, 2> multiply_halves(vec<half, 2> a, vec<half, 2> across_b, vec<float, 2> c) {
  float d0, d1, none0, none1;
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
               : "=f"(d0), "=f"(d1), "=f"(none0), "=f"(none1)
               : "r"(__builtin_bit_cast(uint, a)), "r"(0u), "r"(__builtin_bit_cast(uint, across_b)), "f"((float)c[0]), "f"((float)c[1]), "f"(0.0f), "f"(0.0f));
  vec<float, 2> d;
  d[0] = d0, d[1] = d1;
  return d;
}

// The same for two left operands at once, which is all that the instruction can do.
MSL_FN void multiply_half_pairs(vec<float, 2> &d, vec<float, 2> &e, vec<half, 2> a, vec<half, 2> below, vec<half, 2> across_b) {
  float d0 = d[0], d1 = d[1], e0 = e[0], e1 = e[1];
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d0), "+f"(d1), "+f"(e0), "+f"(e1)
               : "r"(__builtin_bit_cast(uint, a)), "r"(__builtin_bit_cast(uint, below)), "r"(__builtin_bit_cast(uint, across_b)));
  d[0] = d0, d[1] = d1, e[0] = e0, e[1] = e1;
}

// d = a b + c in float32: each sum runs over k upwards from c. The lane has row r and columns c, c+1 of d.
MSL_FN vec<float, 2> multiply_floats(vec<float, 2> a, vec<float, 2> across_b, vec<float, 2> d) {
  const int r = matrix_row(lane()), c = matrix_column(lane());
  for (int k = 0; k < 8; k++) {
    const float left = from_lane((float)a[k & 1], matrix_lane(r, k));
    for (int i = 0; i < 2; i++) d[i] = __builtin_fmaf(left, from_lane((float)across_b[k & 1], matrix_lane(c + i, k)), d[i]);
  }
  return d;
}
template <class T> MSL_FN vec<float, 2> widened(vec<T, 2> v) {
  vec<float, 2> r;
  r[0] = (float)v[0], r[1] = (float)v[1];
  return r;
}
} // namespace impl

template <class D, class A, class B, class C>
MSL_FN void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a, const simdgroup_matrix<B, 8, 8> &b,
                                          const simdgroup_matrix<C, 8, 8> &c) {
  const vec<float, 2> from = impl::widened<C>(c.upright());
  vec<float, 2> sum;
  if constexpr (is_same_v<A, half> && is_same_v<B, half>) {
    sum = impl::multiply_halves(a.upright(), b.across(), from);
  } else {
    sum = impl::multiply_floats(impl::widened<A>(a.upright()), impl::widened<B>(b.across()), from);
  }
  d.e[0] = (D)sum[0], d.e[1] = (D)sum[1];
  d.flipped = false;
}
// d += a b and e += c b: tensor cores do sixteen rows at a time. More special than the kernels' own, so it is taken.
template <class T>
MSL_FN void simdgroup_multiply_accumulate_pair(simdgroup_float8x8 &d, simdgroup_float8x8 &e, const simdgroup_matrix<T, 8, 8> &a,
                                               const simdgroup_matrix<T, 8, 8> &c, const simdgroup_matrix<T, 8, 8> &b) {
  if constexpr (is_same_v<T, half>) {
    d.e = d.upright(), e.e = e.upright();
    d.flipped = false, e.flipped = false;
    impl::multiply_half_pairs(d.e, e.e, a.upright(), c.upright(), b.across());
  } else {
    simdgroup_multiply_accumulate(d, a, b, d);
    simdgroup_multiply_accumulate(e, c, b, e);
  }
}
template <class D, class A, class B>
MSL_FN void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a, const simdgroup_matrix<B, 8, 8> &b) {
  simdgroup_multiply_accumulate(d, a, b, simdgroup_matrix<D, 8, 8>((D)0));
}
} // namespace metal
