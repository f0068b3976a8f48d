// Elementary functions that a compiler can turn into vector instructions, in float32 to about one unit in the last
// place. float64 is for checks of gradients and calls the standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

// A function that stays a call keeps the loop around it from becoming vector instructions.
#define PROBATTN_INLINE inline __attribute__((always_inline))

namespace probattn {

template <typename To, typename From>
PROBATTN_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "both must have one size");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// exp(x); zero where the result, or a factor of it, would be subnormal.
PROBATTN_INLINE float fast_exp(float x) {
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the last bits now hold the rounded product
  const float n = shifted - 12582912.0f;
  const float rest = (x - n * 0.693145752f) - n * 1.42860677e-6f;  // log 2 in two parts; the first product is exact
  float series = 1.0f / 5040.0f;
  series = series * rest + 1.0f / 720.0f;
  series = series * rest + 1.0f / 120.0f;
  series = series * rest + 1.0f / 24.0f;
  series = series * rest + 1.0f / 6.0f;
  series = series * rest + 0.5f;
  series = series * rest + 1.0f;
  series = series * rest + 1.0f;
  // 2^(n - 1), times 2 below: 2^128 is no float, but results between 2^127 and 2^128 are.
  const float power = bits_as<float>((bits_as<uint32_t>(shifted) + 126u) << 23);
  const float result = series * power * 2.0f;
  const float not_small = x < -86.9f ? 0.0f : result;
  return x > 88.72283f ? std::numeric_limits<float>::infinity() : not_small;
}

PROBATTN_INLINE double fast_exp(double x) { return std::exp(x); }

// log(x) of positive normal numbers. With x = m * 2^e and f = (m - 1) / (m + 1), log m = 2 (f + f^3/3 + f^5/5 + ...).
PROBATTN_INLINE float fast_log(float x) {
  constexpr uint32_t kRootOfHalf = 0x3f3504f3u;
  const auto bits = bits_as<uint32_t>(x);
  const int32_t exponent = static_cast<int32_t>(bits - kRootOfHalf) >> 23;
  const auto mantissa = bits_as<float>(bits - (static_cast<uint32_t>(exponent) << 23));  // in [0.707, 1.414)
  const float f = (mantissa - 1.0f) / (mantissa + 1.0f);
  const float square = f * f;
  float series = 1.0f / 9.0f;
  series = series * square + 1.0f / 7.0f;
  series = series * square + 1.0f / 5.0f;
  series = series * square + 1.0f / 3.0f;
  const float log_mantissa = 2.0f * f + 2.0f * f * square * series;
  return static_cast<float>(exponent) * 0.693147181f + log_mantissa;
}

PROBATTN_INLINE double fast_log(double x) { return std::log(x); }

// exp(x) of numbers that are not positive, to 1e-7; zero below -87, for minus infinity too.
PROBATTN_INLINE float exp_below_one(float x) {
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the last bits now hold the rounded product
  const float n = shifted - 12582912.0f;
  const float rest = x - n * 0.693147182f;
  // Minimax on |rest| <= log(2) / 2; two halves that do not wait for each other.
  const float square = rest * rest;
  const float lower = (1.000000072f + 0.999999692f * rest) + (0.4999889485f + 0.1666757475f * rest) * square;
  const float series = lower + (0.04191538193f + 0.008297653916f * rest) * (square * square);
  const float power = bits_as<float>((bits_as<uint32_t>(shifted) + 127u) << 23);
  return x < -87.0f ? 0.0f : series * power;
}

PROBATTN_INLINE double exp_below_one(double x) { return std::exp(x); }

// log(x) of positive normal numbers, to 2e-7 of its own size: log(1 + t) = t Q(t), with a minimax Q.
PROBATTN_INLINE float quick_log(float x) {
  constexpr uint32_t kRootOfHalf = 0x3f3504f3u;
  const auto bits = bits_as<uint32_t>(x);
  const int32_t exponent = static_cast<int32_t>(bits - kRootOfHalf) >> 23;
  const auto mantissa = bits_as<float>(bits - (static_cast<uint32_t>(exponent) << 23));  // in [0.707, 1.414)
  const float t = mantissa - 1.0f, square = t * t;
  const float lower = (0.9999999179f - 0.5000034429f * t) + (0.3333560782f - 0.2497155993f * t) * square;
  const float upper = (0.1988423796f - 0.1721243308f * t) + (0.1633812753f - 0.1037867003f * t) * square;
  return static_cast<float>(exponent) * 0.693147181f + t * (lower + upper * (square * square));
}

PROBATTN_INLINE double quick_log(double x) { return std::log(x); }

// Digamma of positive numbers: psi(x) = psi(x + n) - 1/x - ... - 1/(x + n - 1), and the asymptotic series at x + n.
PROBATTN_INLINE float digamma(float x) {
  float sum = 0.0f;
  for (int step = 0; step < 6; ++step) sum += 1.0f / (x + static_cast<float>(step));
  const float y = x + 6.0f, inverse = 1.0f / (y * y);
  const float series = inverse * (1.0f / 12.0f - inverse * (1.0f / 120.0f - inverse / 252.0f));
  return fast_log(y) - 0.5f / y - series - sum;
}

PROBATTN_INLINE double digamma(double x) {
  double sum = 0.0;
  for (int step = 0; step < 12; ++step) sum += 1.0 / (x + step);
  const double y = x + 12.0, inverse = 1.0 / (y * y);
  double series = 1.0 / 240.0 - inverse * (1.0 / 132.0 - inverse * (691.0 / 32760.0 - inverse / 12.0));
  series = inverse * (1.0 / 12.0 - inverse * (1.0 / 120.0 - inverse * (1.0 / 252.0 - inverse * series)));
  return std::log(y) - 0.5 / y - series - sum;
}

// numbers = log(-log(numbers)): logarithms of exponential numbers. Two loops: one would need more registers than there
// are.
template <typename Number>
PROBATTN_INLINE void log_exponentials(Number* __restrict numbers, int64_t count) {
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) numbers[at] = -quick_log(numbers[at]);
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) numbers[at] = quick_log(numbers[at]);
}

// Quantile of the standard normal distribution, (2 u - 1) Q(w) with w = -log(1 - (2 u - 1)^2) (the form of Giles,
// "Approximating the erfinv function", 2010). Q was fitted on Chebyshev nodes, in w below 5 and in sqrt(w) above; its
// relative error is below 1e-8.
PROBATTN_INLINE float normal_quantile(float u) {
  const float w = -fast_log(4.0f * u * (1.0f - u));
  const float near = w - 2.5f;
  float central = -1.263165085e-8f;
  central = central * near + 3.30020413e-8f;
  central = central * near + 6.620377014e-7f;
  central = central * near - 4.898814945e-6f;
  central = central * near - 7.032063363e-6f;
  central = central * near + 3.087926634e-4f;
  central = central * near - 1.771622653e-3f;
  central = central * near - 5.907725659e-3f;
  central = central * near + 0.3488020277f;
  central = central * near + 2.12331348f;
  const float far = std::sqrt(w < 5.0f ? 5.0f : w) - 3.093033989f;
  float tail = 1.951088242e-4f;
  tail = tail * far - 2.949463671e-4f;
  tail = tail * far - 4.064098185e-4f;
  tail = tail * far + 1.943950365e-3f;
  tail = tail * far - 3.920540089e-3f;
  tail = tail * far + 5.948511199e-3f;
  tail = tail * far - 8.219996741e-3f;
  tail = tail * far + 1.072156767e-2f;
  tail = tail * far + 1.418811654f;
  tail = tail * far + 4.138332017f;
  return (2.0f * u - 1.0f) * (w < 5.0f ? central : tail);
}

// The float32 answer, improved by Newton steps on the distribution function; in the lower half, where it is exact.
PROBATTN_INLINE double normal_quantile(double u) {
  const double lower = u < 0.5 ? u : 1.0 - u;
  const double clamped = lower < 0x1p-24 ? 0x1p-24 : lower;
  double x = normal_quantile(static_cast<float>(clamped));
  for (int step = 0; step < 4; ++step) {
    const double excess = 0.5 * std::erfc(-x * 0.70710678118654752440) - lower;
    const double density = 0.39894228040143267794 * std::exp(-0.5 * x * x);
    const double newton = excess / density;
    x -= newton / (1.0 + 0.5 * x * newton);  // Halley's form
  }
  return u < 0.5 ? x : -x;
}

// Asks for `count` numbers before they are needed: neighbours of a node lie anywhere in memory.
template <typename Number>
PROBATTN_INLINE void prefetch(const Number* numbers, int64_t count) {
  constexpr int64_t kNumbersPerLine = 64 / sizeof(Number);
  for (int64_t at = 0; at < count; at += kNumbersPerLine) __builtin_prefetch(numbers + at);
}

// Treats subnormal numbers as zero while it lives, on this thread: one of them costs a hundred cycles.
class FlushToZero {
 public:
#if defined(__SSE2__)
  FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
  ~FlushToZero() { _mm_setcsr(before_); }

 private:
  unsigned int before_;
#else
  FlushToZero() {}
  ~FlushToZero() {}
#endif
};

}  // namespace probattn
