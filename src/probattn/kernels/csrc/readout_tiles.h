// Tiles of the vocabulary that a readout works through, and what is done with the logits of one.
//
// A tile of logits is (words, rows), so that what is done per row of hidden states runs over whole vectors. Tiles depend
// on the sizes alone: results are the same bits for any number of threads.
//
// Size letters: R rows, M tiles.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "vector_math.h"

namespace probattn {

// Words of a tile: with 256 rows it fills half a megabyte.
constexpr int64_t kTileWords = 512;
// At most this many threads share the gradient of the hidden states; each has a sum (R, D) of its own.
constexpr int64_t kMaxGroups = 8;

struct Tile {
  int64_t first, words;
};

inline int64_t num_tiles(int64_t vocabulary) { return (vocabulary + kTileWords - 1) / kTileWords; }

inline Tile tile_at(int64_t number, int64_t vocabulary) {
  const int64_t first = number * kTileWords;
  return {first, std::min(kTileWords, vocabulary - first)};
}

inline void check_bias(const std::optional<at::Tensor>& bias, int64_t vocabulary) {
  TORCH_CHECK(!bias.has_value() || (bias->scalar_type() == at::kFloat && bias->is_contiguous() &&
                                    bias->numel() == vocabulary),
              "expected a contiguous float32 bias, or gradient of it, of ", vocabulary, " words, got ",
              bias.has_value() ? bias->sizes() : at::IntArrayRef());
}

// Calls work(task) for all tasks. Two tasks at least are handed out, so that they always run inside a parallel region,
// where the matrix library uses one thread: with one task it would use all of them, and sum in another order.
template <typename Work>
void for_each_task(int64_t tasks, const Work& work) {
  at::parallel_for(0, std::max<int64_t>(2, tasks), 1, [&](int64_t begin, int64_t end) {
    const FlushToZero flush;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t task = begin; task < std::min(end, tasks); ++task) work(task);
  });
}

// Logits (words, rows) of a tile, without bias -> exp(logits + bias - maximum); maximum and sum of each row.
inline void exponentiate_tile(float* logits, const float* bias, Tile tile, int64_t rows, float* maximum, float* sum) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();  // not -inf: a tile may hold nothing but that
  std::fill(maximum, maximum + rows, kLowest);
  std::fill(sum, sum + rows, 0.0f);
  for (int64_t word = 0; word < tile.words; ++word) {
    const float* line = logits + word * rows;
    const float added = bias == nullptr ? 0.0f : bias[tile.first + word];
#pragma omp simd
    for (int64_t row = 0; row < rows; ++row) {
      const float logit = line[row] + added;
      maximum[row] = logit > maximum[row] ? logit : maximum[row];
    }
  }
  for (int64_t word = 0; word < tile.words; ++word) {
    float* line = logits + word * rows;
    const float added = bias == nullptr ? 0.0f : bias[tile.first + word];
#pragma omp simd
    for (int64_t row = 0; row < rows; ++row) {
      const float share = fast_exp(line[row] + added - maximum[row]);
      line[row] = share;
      sum[row] += share;
    }
  }
}

// From maxima and sums (M, R) of tiles to log-likelihoods, and in place of the maxima the factors that make a tile's
// numbers probabilities.
inline void finish_rows(float* maximum, const float* sum, const float* picked, int64_t tiles, int64_t rows,
                        float* log_lik) {
  for (int64_t row = 0; row < rows; ++row) {
    float largest = maximum[row];
    for (int64_t tile = 1; tile < tiles; ++tile) largest = std::max(largest, maximum[tile * rows + row]);
    double norm = 0.0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      float& factor = maximum[tile * rows + row];
      factor = std::exp(factor - largest);
      norm += static_cast<double>(factor) * sum[tile * rows + row];
    }
    log_lik[row] = picked[row] - largest - static_cast<float>(std::log(norm));
    for (int64_t tile = 0; tile < tiles; ++tile) {
      maximum[tile * rows + row] = static_cast<float>(maximum[tile * rows + row] / norm);
    }
  }
}

}  // namespace probattn
