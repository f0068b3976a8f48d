// The data of one call of dense attention, and how its work is cut into tiles.
//
// Size letters: K draws, B batch, H heads, G heads of keys, T queries, S keys, D features, Dv features of a value.
//
// phi = scale * query . key + bias is a score, and the weights are softmax(sharpness * phi + s * n) with noise n.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "gemm.h"
#include "philox.h"
#include "vector_math.h"

namespace probattn {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// What is added to a score: nothing, s * log(E) with E exponential (Weibull; Gumbel with s < 0), or s * a normal number.
enum class DenseNoise : int64_t { kNone = 0, kLogExponential = 1, kNormal = 2 };

// What the KL is made of, with L = logsumexp of the visible phi under the softmax anchor, else 0:
//   Gamma:     sum_j constant_j - weight_j (phi_ij - L_i)
//   lognormal: sum_j constant_j + (phi_ij - L_i - weight_j)^2 / 2
enum class DensePrior : int64_t { kNone = 0, kGamma = 1, kLognormal = 2 };

// (B, H, rows, features) in float32, bfloat16 or float16, features side by side. The tensor must outlive it.
struct Rows {
  explicit Rows(const at::Tensor& tensor)
      : dtype(tensor.scalar_type()),
        data(tensor.const_data_ptr()),
        strides{tensor.stride(0), tensor.stride(1), tensor.size(2) > 1 ? tensor.stride(2) : tensor.size(3)},
        width(tensor.size(3)) {}

  // Rows first, ..., first + count - 1 of a head, as they lie in memory or converted into the buffer.
  Matrix block(int64_t batch, int64_t head, int64_t first, int64_t count, float* buffer) const {
    const int64_t start = batch * strides[0] + head * strides[1] + first * strides[2];
    if (dtype == at::kFloat) return {static_cast<const float*>(data) + start, std::max<int64_t>(1, strides[2])};
    if (dtype == at::kBFloat16) return converted(static_cast<const c10::BFloat16*>(data) + start, count, buffer);
    return converted(static_cast<const c10::Half*>(data) + start, count, buffer);
  }

  int64_t buffer_size(int64_t count) const { return dtype == at::kFloat ? 0 : count * width; }

  at::ScalarType dtype;
  const void* data;
  std::array<int64_t, 3> strides;
  int64_t width;

 private:
  template <typename Half>
  Matrix converted(const Half* from, int64_t count, float* buffer) const {
    for (int64_t row = 0; row < count; ++row) {
      const Half* source = from + row * strides[2];
      float* target = buffer + row * width;
      for (int64_t column = 0; column < width; ++column) target[column] = static_cast<float>(source[column]);
    }
    return {buffer, width};
  }
};

// (B, H, T, S) bool, True where a query may look, or float, added to the scores; strides may be zero.
struct Mask {
  const void* data = nullptr;
  bool is_bool = false;
  std::array<int64_t, 4> strides{};

  explicit operator bool() const { return data != nullptr; }
  bool is_same_for_all_queries() const { return strides[2] == 0; }

  // What is added to the scores of one query.
  void row(int64_t batch, int64_t head, int64_t query, int64_t first, int64_t count, float* bias) const {
    const int64_t start = batch * strides[0] + head * strides[1] + query * strides[2] + first * strides[3];
    if (is_bool) {
      const auto* visible = static_cast<const bool*>(data) + start;
      for (int64_t at = 0; at < count; ++at) bias[at] = visible[at * strides[3]] ? 0.0f : kNothing;
    } else {
      const auto* added = static_cast<const float*>(data) + start;
      for (int64_t at = 0; at < count; ++at) bias[at] = added[at * strides[3]];
    }
  }

  // Whether the first `keys` keys are visible to all queries of a head.
  bool is_open(int64_t batch, int64_t head, int64_t keys) const {
    if (data == nullptr) return true;
    if (!is_bool || !is_same_for_all_queries()) return false;
    const auto* visible = static_cast<const bool*>(data) + batch * strides[0] + head * strides[1];
    for (int64_t key = 0; key < keys; ++key) {
      if (!visible[key * strides[3]]) return false;
    }
    return true;
  }

  // One more than the last key that a query sees, where all queries of a head see the same keys.
  int64_t last_key(int64_t batch, int64_t head, int64_t keys) const {
    if (data == nullptr || !is_same_for_all_queries() || keys == 0) return keys;
    const int64_t start = batch * strides[0] + head * strides[1];
    while (keys > 0) {
      const int64_t place = start + (keys - 1) * strides[3];
      const bool is_seen = is_bool ? static_cast<const bool*>(data)[place]
                                   : static_cast<const float*>(data)[place] > kNothing;
      if (is_seen) break;
      --keys;
    }
    return keys;
  }
};

struct AttentionProblem {
  Rows query, key, value;
  Mask mask;
  const float* weight;       // (B, H, S) or null
  const float* constant;     // (B, H, S) or null
  const float* noise_scale;  // (H)
  int64_t batch, heads, key_heads, queries, keys, draws;
  DenseNoise noise;
  DensePrior prior;
  bool is_softmax_anchor, is_causal;
  uint64_t seed, dropout_seed;
  float scale, sharpness, dropout;

  int64_t group() const { return heads / key_heads; }
  // One more than the last key that queries up to `last_query` can see.
  int64_t key_end(int64_t batch_row, int64_t head, int64_t last_query) const {
    const int64_t end = mask.last_key(batch_row, head, keys);
    return is_causal ? std::min(end, last_query + 1) : end;
  }
  // Whether nothing has to be added to the scores of a head, once hidden keys at the end are left out.
  bool is_open(int64_t batch_row, int64_t head) const {
    return mask.is_open(batch_row, head, mask.last_key(batch_row, head, keys));
  }
  // How many of the keys from `first` on a query may see, as far as causality says.
  int64_t visible(int64_t query_row, int64_t first, int64_t count) const {
    return is_causal ? std::clamp<int64_t>(query_row + 1 - first, 0, count) : count;
  }
};

// Tiles depend on sizes alone, so that results do not depend on the number of threads. Columns are whole Philox blocks.
struct Tiles {
  int64_t rows, columns;

  Tiles(int64_t queries, int64_t keys, int64_t most_rows, int64_t most_columns)
      : rows(std::max<int64_t>(1, std::min(queries, most_rows))),
        columns(std::max<int64_t>(1, std::min(keys, most_columns))) {}
  // Space for a row: noise is made for whole batches of lanes.
  int64_t padded() const { return (columns + 4 * kLanes - 1) / (4 * kLanes) * (4 * kLanes); }
};

// Uniform numbers of one row, from column 4 * first_block on, in whole batches of lanes.
//
// Three words of a counter are the same for the whole row, and so are half of the first two rounds.
inline void uniform_row(
    uint64_t seed, const std::array<uint32_t, 3>& place, int64_t first_block, int64_t columns, float* out) {
  constexpr int kVectors = kLanes / kLanesPerVector;
  constexpr int kRounds = 7;
  constexpr uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u, kFirstKey = 0x9E3779B9u, kSecondKey = 0xBB67AE85u;
  const auto low = [](uint64_t word) { return word & 0xFFFFFFFFull; };
  const uint32_t seed0 = static_cast<uint32_t>(seed), seed1 = static_cast<uint32_t>(seed >> 32);
  const uint64_t lead = static_cast<uint64_t>(place[1]) * kSecond;
  const uint64_t middle = low((lead >> 32) ^ place[0] ^ seed0) * kFirst;
  const uint64_t into_first = low(lead) ^ low(seed0 + kFirstKey), into_second = (middle >> 32) ^ low(seed1 + kSecondKey);
  const uint64_t into_start = static_cast<uint64_t>(place[2] ^ seed1);
  for (int64_t done = 0; done < columns; done += 4 * kLanes) {
    Words word0[kVectors], word1[kVectors], word2[kVectors], word3[kVectors];
    for (int vector = 0; vector < kVectors; ++vector) {
      for (int lane = 0; lane < kLanesPerVector; ++lane) {
        word0[vector][lane] = static_cast<uint64_t>(first_block + done / 4 + vector * kLanesPerVector + lane);
      }
      const Words start = product_of_words(word0[vector], kFirst);
      const Words next = product_of_words((start >> 32) ^ into_start, kSecond);
      word0[vector] = (next >> 32) ^ into_first;
      word1[vector] = next;
      word2[vector] = start ^ into_second;
      word3[vector] = Words{} + low(middle);
    }
    uint32_t key0 = seed0 + 2 * kFirstKey, key1 = seed1 + 2 * kSecondKey;
    for (int round = 2; round < kRounds; ++round) {
      for (int vector = 0; vector < kVectors; ++vector) {
        const Words product0 = product_of_words(word0[vector], kFirst);
        const Words product1 = product_of_words(word2[vector], kSecond);
        word0[vector] = (product1 >> 32) ^ word1[vector] ^ static_cast<uint64_t>(key0);
        word1[vector] = product1;
        word2[vector] = (product0 >> 32) ^ word3[vector] ^ static_cast<uint64_t>(key1);
        word3[vector] = product0;
      }
      key0 += kFirstKey;
      key1 += kSecondKey;
    }
    alignas(64) uint64_t pairs[2 * kLanes];
    for (int vector = 0; vector < kVectors; ++vector) {
      const Words first = (word0[vector] & 0xFFFFFFFFull) | (word1[vector] << 32);
      const Words second = (word2[vector] & 0xFFFFFFFFull) | (word3[vector] << 32);
#if defined(__AVX512F__)
      typedef long long Places __attribute__((vector_size(64)));
      const Words lower = __builtin_shuffle(first, second, (Places){0, 8, 1, 9, 2, 10, 3, 11});
      const Words upper = __builtin_shuffle(first, second, (Places){4, 12, 5, 13, 6, 14, 7, 15});
#else
      typedef long long Places __attribute__((vector_size(32)));
      const Words lower = __builtin_shuffle(first, second, (Places){0, 4, 1, 5});
      const Words upper = __builtin_shuffle(first, second, (Places){2, 6, 3, 7});
#endif
      std::memcpy(pairs + 2 * vector * kLanesPerVector, &lower, sizeof(lower));
      std::memcpy(pairs + (2 * vector + 1) * kLanesPerVector, &upper, sizeof(upper));
    }
    uint32_t random[4 * kLanes];
    std::memcpy(random, pairs, sizeof(random));
    to_unit_interval(random, out + done);
  }
}

}  // namespace probattn
