// Transcendental functions for a GPU without its vendor's library of them: sums and products in float32 around the
// hardware's approximations of 2^x, sine and cosine. exp and log are within 3 units of the last place; powers, sines
// and cosines of large arguments are worse. They stand before msl_base.h, whose functions call them in place of
// the compiler's.
#pragma once
#define MSL_MATH static inline __attribute__((always_inline))

// e^x = 2^n e^r with n whole and |r| <= ln 2 / 2. 2^n goes in as two factors: at both ends one would overflow first.
MSL_MATH float msl_exp(float x) {
  x = x < -110.0f ? -110.0f : x > 100.0f ? 100.0f : x; // as good as the ends, and NaN stays
  const float n = __builtin_rintf(x * 1.44269504088896f);
  float r = __builtin_fmaf(n, -0.693145752f, x);
  r = __builtin_fmaf(n, -1.42860677e-6f, r);
  const float half = __builtin_rintf(n * 0.5f);
  return __nvvm_ex2_approx_f(r * 1.44269504088896f) * __nvvm_ex2_approx_f(half) * __nvvm_ex2_approx_f(n - half);
}
MSL_MATH float msl_exp2(float x) { return __nvvm_ex2_approx_f(x); }

// log(2^k (1+f)) by the series of log((1+s)/(1-s)), s = f/(2+f): the hardware's logarithm has an absolute error, which
// near 1 is a large relative one.
MSL_MATH float msl_log(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
  if (x == __builtin_inff()) return x;
  int k = 0;
  if (x < 1.175494351e-38f) x *= 33554432.0f, k = -25;
  unsigned bits = __builtin_bit_cast(unsigned, x) + (0x3f800000u - 0x3f3504f3u);
  k += (int)(bits >> 23) - 127;
  bits = (bits & 0x7fffffu) + 0x3f3504f3u;
  const float f = __builtin_bit_cast(float, bits) - 1.0f;
  const float s = f / (2.0f + f), z = s * s, w = z * z;
  const float even = w * __builtin_fmaf(w, 0.24279078841f, 0.40000972152f);
  const float odd = z * __builtin_fmaf(w, 0.28498786688f, 0.66666662693f);
  const float square = 0.5f * f * f, e = (float)k;
  return s * (square + (even + odd)) + e * 9.0580006145e-06f - square + f + e * 6.9313812256e-01f;
}
MSL_MATH float msl_log2(float x) { return msl_log(x) * 1.44269504088896f; }

// The hardware's sine and cosine are good within a turn around 0.
MSL_MATH float msl_turn(float x) {
  const float n = __builtin_rintf(x * 0.159154943f);
  return __builtin_fmaf(n, 1.7484556e-7f, __builtin_fmaf(n, -6.28318548f, x));
}
MSL_MATH float msl_sin(float x) { return __nvvm_sin_approx_f(msl_turn(x)); }
MSL_MATH float msl_cos(float x) { return __nvvm_cos_approx_f(msl_turn(x)); }
MSL_MATH float msl_tan(float x) { return msl_sin(x) / msl_cos(x); }

MSL_MATH float msl_tanh(float x) {
  const float a = __builtin_fabsf(x), q = x * x;
  if (a < 0.1f) return x * __builtin_fmaf(q, __builtin_fmaf(q, 0.133333333f, -0.333333333f), 1.0f);
  const float t = msl_exp(-2.0f * a);
  return __builtin_copysignf((1.0f - t) / (1.0f + t), x);
}

// Negative bases have powers where the exponent is whole.
MSL_MATH float msl_pow(float x, float y) {
  if (y == 0.0f || x == 1.0f) return 1.0f;
  const float a = __builtin_fabsf(x);
  const bool whole = __builtin_truncf(y) == y, odd = whole && __builtin_truncf(y * 0.5f) * 2.0f != y;
  if (x < 0.0f && !whole) return __builtin_nanf("");
  const float p = a == 0.0f ? (y > 0.0f ? 0.0f : __builtin_inff()) : msl_exp(y * msl_log(a));
  return x < 0.0f && odd ? -p : p;
}

#define __builtin_expf msl_exp
#define __builtin_exp2f msl_exp2
#define __builtin_logf msl_log
#define __builtin_log2f msl_log2
#define __builtin_sinf msl_sin
#define __builtin_cosf msl_cos
#define __builtin_tanf msl_tan
#define __builtin_tanhf msl_tanh
#define __builtin_powf msl_pow
