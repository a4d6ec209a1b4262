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

// Four 8x8 matrices of halves from threadgroup memory, a register each: lane l names row l%8 of matrix l/8, 16 bytes
// that begin at a multiple of 16.
MSL_FN void load_four(uint (&r)[4], const half *row) {
  const uint at = (uint)(ulong)(const MSL_SHARED half *)row;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// d and the rows below it, e, grow by the product of sixteen rows and sixteen inputs: all that the instruction can do.
MSL_FN void multiply_sixteen(vec<float, 2> &d, vec<float, 2> &e, const uint (&a)[4], uint low, uint high) {
  float d0 = d[0], d1 = d[1], e0 = e[0], e1 = e[1];
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d0), "+f"(d1), "+f"(e0), "+f"(e1)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
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
namespace impl {
// Sixteen inputs after the other; where the tile is WHOLE there is no branch between products.
template <bool WHOLE, int ROWS, int SPAN>
MSL_FN void multiply_tile(simdgroup_float8x8 (&sums)[ROWS][SPAN], const half *rows, const half *outputs, int stride, int inputs, int row_blocks, int span_blocks) {
  for (int k = 0; k < inputs; k += 16) {
    uint a[ROWS / 2][4], b[SPAN / 2][4];
    for (int i = 0; i < ROWS / 2; i++) load_four(a[i], rows + i * 16 * stride + k);
    for (int j = 0; j < SPAN / 2; j++) load_four(b[j], outputs + j * 16 * stride + k);
    for (int i = 0; i < ROWS / 2; i++)
      for (int j = 0; j < SPAN; j++)
        if (WHOLE || (2 * i < row_blocks && j < span_blocks))
          multiply_sixteen(sums[2 * i][j].e, sums[2 * i + 1][j].e, a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}
} // namespace impl
// The kernels' products of staged tiles, for halves: more special than their own, so it is taken. Rows of both tiles
// begin at multiples of 16 bytes. Sixteen rows and inputs go at a time, of those that are not there the sums are
// nobody's: xs is staged whole, and an output's sums depend on its own column of ws alone.
namespace impl {
template <int ROWS, int SPAN>
MSL_FN void multiply_tile(simdgroup_float8x8 (&sums)[ROWS][SPAN], const half *xs, const half *ws, int stride, int inputs, int row_blocks, int span_blocks) {
  static_assert(ROWS % 2 == 0 && SPAN % 2 == 0, "blocks are taken in pairs");
  const int lane = impl::lane();
  const half *rows = xs + (lane & 15) * stride + (lane >> 4) * 8;
  const half *outputs = ws + ((lane >> 4) * 8 + (lane & 7)) * stride + ((lane >> 3) & 1) * 8;
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < SPAN; j++) sums[i][j].thread_elements();
  if (row_blocks == ROWS && span_blocks == SPAN) impl::multiply_tile<true>(sums, rows, outputs, stride, inputs, row_blocks, span_blocks);
  else impl::multiply_tile<false>(sums, rows, outputs, stride, inputs, row_blocks, span_blocks);
}
} // namespace impl
template <class S>
MSL_FN void tile_products(S &sums, const half *xs, const half *ws, int stride, int inputs, int row_blocks, int span_blocks) {
  impl::multiply_tile(sums.at, xs, ws, stride, inputs, row_blocks, span_blocks);
}
template <class D, class A, class B>
MSL_FN void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a, const simdgroup_matrix<B, 8, 8> &b) {
  simdgroup_multiply_accumulate(d, a, b, simdgroup_matrix<D, 8, 8>((D)0));
}
} // namespace metal
