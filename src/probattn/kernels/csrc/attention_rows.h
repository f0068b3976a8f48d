// One row of a tile of scores: noise, exponentials and sums. Every loop is simple enough to become vector instructions.
#pragma once

#include "attention.h"

namespace probattn {

// Raw noise of `count` keys from `first` on, in a buffer that is padded to whole batches of lanes.
inline void noise_row(
    const AttentionProblem& problem, int64_t draw, int64_t lead, int64_t query, int64_t first, int64_t count,
    float* __restrict out) {
  const std::array<uint32_t, 3> place{
      static_cast<uint32_t>(query), static_cast<uint32_t>(lead), static_cast<uint32_t>(draw)};
  uniform_row(problem.seed, place, first / 4, count, out);
  if (problem.noise == DenseNoise::kLogExponential) {
    log_exponentials(out, count);
  } else {
#pragma omp simd
    for (int64_t at = 0; at < count; ++at) out[at] = normal_quantile(out[at]);
  }
}

// Zero for weights that are dropped, else 1 / (1 - rate).
inline void dropout_row(
    const AttentionProblem& problem, int64_t draw, int64_t lead, int64_t query, int64_t first, int64_t count,
    float* __restrict out) {
  const std::array<uint32_t, 3> place{
      static_cast<uint32_t>(query), static_cast<uint32_t>(lead), kParticlesPerStream + static_cast<uint32_t>(draw)};
  uniform_row(problem.dropout_seed, place, first / 4, count, out);
  const float rate = problem.dropout, kept = 1.0f / (1.0f - rate);
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) out[at] = out[at] >= rate ? kept : 0.0f;
}

inline void add_row(const float* __restrict bias, int64_t count, float* __restrict scores) {
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) scores[at] += bias[at];
}

inline void multiply_row(const float* __restrict factors, int64_t count, float* __restrict numbers) {
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) numbers[at] *= factors[at];
}

inline float largest(const float* __restrict numbers, int64_t count) {
  float found = kNothing;
#pragma omp simd reduction(max : found)
  for (int64_t at = 0; at < count; ++at) found = numbers[at] > found ? numbers[at] : found;
  return found;
}

// noise = sharpness * scores + noise_scale * noise; returns the largest.
inline float perturb_row(
    const float* __restrict scores, float sharpness, float noise_scale, int64_t count, float* __restrict noise) {
  float found = kNothing;
#pragma omp simd reduction(max : found)
  for (int64_t at = 0; at < count; ++at) {
    const float number = sharpness * scores[at] + noise_scale * noise[at];
    noise[at] = number;
    found = number > found ? number : found;
  }
  return found;
}

// weights = exp(numbers - shift), of which they may take the place; returns their sum.
inline float exponentiate_row(const float* numbers, float shift, int64_t count, float* weights) {
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (int64_t at = 0; at < count; ++at) {
    const float weight = exp_below_one(numbers[at] - shift);
    weights[at] = weight;
    total += weight;
  }
  return total;
}

// The same, with the sum of exp(scores - clean_shift); weights may take the scores' place.
inline float exponentiate_both(
    const float* __restrict numbers, float shift, const float* scores, float clean_shift, int64_t count,
    float* weights, double* clean_total) {
  float total = 0.0f, clean = 0.0f;
#pragma omp simd reduction(+ : total, clean)
  for (int64_t at = 0; at < count; ++at) {
    const float weight = exp_below_one(numbers[at] - shift);
    clean += exp_below_one(scores[at] - clean_shift);
    weights[at] = weight;
    total += weight;
  }
  *clean_total += clean;
  return total;
}

// Sums over the visible keys of a row, relative to a reference score, from which the KL is put together.
struct PriorSums {
  float largest = kNothing;
  float constant = 0.0f;  // of constant_j
  float first = 0.0f;     // Gamma: of weight_j; lognormal: of x = phi - reference - weight_j
  float second = 0.0f;    // Gamma: of weight_j (phi - reference); lognormal: of x^2
  float count = 0.0f;
};

// Where every key is visible, sums that have no score in them are known beforehand.
template <bool is_lognormal>
PriorSums open_prior_sums(
    const float* __restrict scores, const float* __restrict weight, float reference, int64_t count) {
  float first = 0.0f, second = 0.0f, found = kNothing;
#pragma omp simd reduction(+ : first, second) reduction(max : found)
  for (int64_t at = 0; at < count; ++at) {
    found = scores[at] > found ? scores[at] : found;
    const float score = scores[at] - reference;
    const float x = is_lognormal ? score - weight[at] : weight[at];
    first += is_lognormal ? x : 0.0f;
    second += x * (is_lognormal ? x : score);
  }
  return {found, 0.0f, first, second, static_cast<float>(count)};
}

template <bool is_lognormal>
PriorSums masked_prior_sums(
    const float* __restrict scores, const float* __restrict weight, const float* __restrict constant, float reference,
    int64_t count) {
  float constants = 0.0f, first = 0.0f, second = 0.0f, seen = 0.0f, found = kNothing;
#pragma omp simd reduction(+ : constants, first, second, seen) reduction(max : found)
  for (int64_t at = 0; at < count; ++at) {
    const bool is_seen = scores[at] > kNothing;
    found = scores[at] > found ? scores[at] : found;
    const float score = (is_seen ? scores[at] : reference) - reference;
    const float own = is_seen ? weight[at] : 0.0f;
    constants += is_seen ? constant[at] : 0.0f;
    seen += is_seen ? 1.0f : 0.0f;
    const float x = is_lognormal ? score - own : own;
    first += x;
    second += x * (is_lognormal ? x : score);
  }
  return {found, constants, first, second, seen};
}

}  // namespace probattn
