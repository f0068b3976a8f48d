// Log-likelihoods of rows of hidden states and their gradients: the native form of a chunk of
// probattn/kernels/row_readout.py.
//
// Work goes through tiles of the vocabulary. A tile of logits is (words, rows): so all three products run over rows that
// lie one after the other, and what is done per row of hidden states (maximum, sum, factor) runs over whole vectors.
// Maximum, exponential and sum follow the product while the tile is in the cache; so does the derivative with respect
// to the logits, which is made in a scratch tile and never written to memory as a whole.
//
// Tiles and their groups depend on the sizes alone, every tile of a gradient has one owner, and sums over groups are
// taken in their order: results are the same bits for any number of threads.
//
// Size letters: R rows, D width, V words, G groups of tiles, M tiles.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "readout_tiles.h"

namespace probattn {
namespace {

using at::Tensor;

// A view of numbers for the matrix library. Made where it is used: a thread must not see another one's autograd state.
Tensor matrix(const float* numbers, int64_t rows, int64_t columns) {
  return at::from_blob(const_cast<float*>(numbers), {rows, columns}, at::TensorOptions().dtype(at::kFloat));
}

void check_rows(const Tensor& hidden, const Tensor& weight, const Tensor& target, const Tensor& scores) {
  for (const Tensor& one : {hidden, weight, scores}) {
    TORCH_CHECK(one.scalar_type() == at::kFloat && one.is_contiguous(), "expected contiguous float32 tensors");
  }
  TORCH_CHECK(target.scalar_type() == at::kLong && target.is_contiguous(), "expected a contiguous int64 target");
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1) &&
                  target.numel() == hidden.size(0) && scores.numel() >= hidden.size(0) * weight.size(0),
              "expected hidden (R, D), weight (V, D), target (R) and V * R scores, got ", hidden.sizes(), ", ",
              weight.sizes(), ", ", target.sizes(), " and ", scores.numel());
  const auto* words = target.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < target.numel(); ++row) {
    TORCH_CHECK_INDEX(words[row] >= 0 && words[row] < weight.size(0), "target ", words[row], " is out of bounds for ",
                      weight.size(0), " words");
  }
}

// Log-likelihoods (R) of the targets, and factors (M, R): the softmax is scores * factors.
std::tuple<Tensor, Tensor> readout_rows(const Tensor& hidden, const Tensor& weight, const std::optional<Tensor>& bias,
                                        const Tensor& target, const Tensor& scores) {
  check_rows(hidden, weight, target, scores);
  check_bias(bias, weight.size(0));
  const int64_t rows = hidden.size(0), width = hidden.size(1), vocabulary = weight.size(0);
  const int64_t tiles = num_tiles(vocabulary);
  const Tensor transposed = hidden.t().contiguous();  // (D, R)
  const Tensor factors = at::empty({tiles, rows}, hidden.options());
  const Tensor sums = at::empty({tiles, rows}, hidden.options());
  const Tensor picked = at::empty({rows}, hidden.options()), log_lik = at::empty({rows}, hidden.options());
  const auto* words = target.const_data_ptr<int64_t>();
  const auto* weight_numbers = weight.const_data_ptr<float>();
  const auto* hidden_numbers = transposed.const_data_ptr<float>();
  const auto* bias_numbers = bias.has_value() ? bias->const_data_ptr<float>() : nullptr;
  auto* score_numbers = scores.mutable_data_ptr<float>();
  auto* maximum = factors.mutable_data_ptr<float>();
  auto* sum = sums.mutable_data_ptr<float>();
  auto* found = picked.mutable_data_ptr<float>();
  for_each_task(tiles, [&](int64_t number) {
    const Tile tile = tile_at(number, vocabulary);
    float* logits = score_numbers + tile.first * rows;
    Tensor product = matrix(logits, tile.words, rows);
    at::mm_out(product, matrix(weight_numbers + tile.first * width, tile.words, width),
               matrix(hidden_numbers, width, rows));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t word = words[row] - tile.first;
      if (word < 0 || word >= tile.words) continue;
      found[row] = logits[word * rows + row] + (bias_numbers == nullptr ? 0.0f : bias_numbers[words[row]]);
    }
    exponentiate_tile(logits, bias_numbers, tile, rows, maximum + number * rows, sum + number * rows);
  });
  finish_rows(maximum, sum, found, tiles, rows, log_lik.mutable_data_ptr<float>());
  return {log_lik, factors};
}

// The rows that get a gradient.
struct Kept {
  std::vector<int64_t> rows, words;
  std::vector<float> credit;
  Tensor hidden;  // (kept, D)
  int64_t all_rows;

  Kept(const Tensor& all_hidden, const Tensor& target, const Tensor& all_credit, float skip_below)
      : all_rows(all_hidden.size(0)) {
    const auto* credits = all_credit.const_data_ptr<float>();
    const auto* targets = target.const_data_ptr<int64_t>();
    for (int64_t row = 0; row < all_rows; ++row) {
      if (std::fabs(credits[row]) <= skip_below) continue;  // a NaN is kept, and seen
      rows.push_back(row);
      words.push_back(targets[row]);
      credit.push_back(credits[row]);
    }
    hidden = all_hidden;
    if (size() == all_rows) return;
    const int64_t width = all_hidden.size(1);
    hidden = at::empty({size(), width}, all_hidden.options());
    for (int64_t at = 0; at < size(); ++at) {
      const float* from = all_hidden.const_data_ptr<float>() + rows[at] * width;
      std::copy(from, from + width, hidden.mutable_data_ptr<float>() + at * width);
    }
  }

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

// d logits (words, kept) of a tile: credit * (one-hot - softmax), and its sum over rows added to the bias's gradient.
void differentiate_tile(const Kept& kept, const float* scores, const float* factors, Tile tile, float* out,
                        float* grad_bias) {
  const int64_t count = kept.size();
  const bool keeps_all = count == kept.all_rows;
  std::vector<float> factor(count);
  for (int64_t at = 0; at < count; ++at) factor[at] = -kept.credit[at] * factors[kept.rows[at]];
  for (int64_t word = 0; word < tile.words; ++word) {
    const float* line = scores + word * kept.all_rows;
    float* to = out + word * count;
    if (keeps_all) {
#pragma omp simd
      for (int64_t at = 0; at < count; ++at) to[at] = line[at] * factor[at];
    } else {
      for (int64_t at = 0; at < count; ++at) to[at] = line[kept.rows[at]] * factor[at];
    }
  }
  for (int64_t at = 0; at < count; ++at) {
    const int64_t word = kept.words[at] - tile.first;
    if (word >= 0 && word < tile.words) out[word * count + at] += kept.credit[at];
  }
  if (grad_bias == nullptr) return;
  for (int64_t word = 0; word < tile.words; ++word) {
    const float* line = out + word * count;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t at = 0; at < count; ++at) sum += line[at];
    grad_bias[tile.first + word] += sum;
  }
}

// Sums (G, kept, D) over groups in their order, into rows (R, D).
void sum_groups(const float* parts, int64_t groups, const Kept& kept, int64_t width, float* out) {
  const int64_t part = kept.size() * width;
  for_each_task(kept.size(), [&](int64_t at) {
    float* to = out + kept.rows[at] * width;
    for (int64_t group = 0; group < groups; ++group) {
      const float* from = parts + group * part + at * width;
#pragma omp simd
      for (int64_t column = 0; column < width; ++column) to[column] += from[column];
    }
  });
}

// The gradient (R, D) of sum credit * log-likelihood with respect to the hidden states; those of weight and bias are
// added to what is given.
Tensor readout_rows_gradients(const Tensor& hidden, const Tensor& weight, const Tensor& target, const Tensor& scores,
                              const Tensor& factors, const Tensor& credit, double skip_below,
                              const Tensor& grad_weight, const std::optional<Tensor>& grad_bias) {
  check_rows(hidden, weight, target, scores);
  TORCH_CHECK(credit.scalar_type() == at::kFloat && credit.is_contiguous() && grad_weight.is_contiguous() &&
                  credit.numel() == hidden.size(0) && grad_weight.sizes() == weight.sizes(),
              "expected contiguous float32 credit (R) and gradient (V, D), got ", credit.sizes(), " and ",
              grad_weight.sizes());
  check_bias(grad_bias, weight.size(0));
  const int64_t rows = hidden.size(0), width = hidden.size(1), vocabulary = weight.size(0);
  const Kept kept(hidden, target, credit, static_cast<float>(skip_below));
  const int64_t count = kept.size(), tiles = num_tiles(vocabulary);
  const Tensor grad_hidden = at::zeros({rows, width}, hidden.options());
  if (count == 0 || tiles == 0) return grad_hidden;
  const int64_t tiles_per_group = (tiles + kMaxGroups - 1) / kMaxGroups;
  const int64_t groups = (tiles + tiles_per_group - 1) / tiles_per_group;
  const Tensor parts = at::empty({groups, count, width}, hidden.options());
  const auto* weight_numbers = weight.const_data_ptr<float>();
  const auto* hidden_numbers = kept.hidden.const_data_ptr<float>();
  const auto* score_numbers = scores.const_data_ptr<float>();
  const auto* factor_numbers = factors.const_data_ptr<float>();
  auto* grad_weight_numbers = grad_weight.mutable_data_ptr<float>();
  auto* bias_numbers = grad_bias.has_value() ? grad_bias->mutable_data_ptr<float>() : nullptr;
  auto* part_numbers = parts.mutable_data_ptr<float>();
  for_each_task(groups, [&](int64_t group) {
    const Tensor scratch = at::empty({kTileWords, count}, at::TensorOptions().dtype(at::kFloat));
    Tensor part = matrix(part_numbers + group * count * width, count, width);
    const int64_t first = group * tiles_per_group, last = std::min(tiles, first + tiles_per_group);
    for (int64_t number = first; number < last; ++number) {
      const Tile tile = tile_at(number, vocabulary);
      differentiate_tile(kept, score_numbers + tile.first * rows, factor_numbers + number * rows, tile,
                         scratch.mutable_data_ptr<float>(), bias_numbers);
      const Tensor logits = matrix(scratch.const_data_ptr<float>(), tile.words, count);
      const Tensor words = matrix(weight_numbers + tile.first * width, tile.words, width);
      at::addmm_out(part, part, logits.t(), words, number > first ? 1.0 : 0.0, 1.0);
      Tensor own = matrix(grad_weight_numbers + tile.first * width, tile.words, width);
      at::addmm_out(own, own, logits, matrix(hidden_numbers, count, width), 1.0, 1.0);
    }
  });
  sum_groups(part_numbers, groups, kept, width, grad_hidden.mutable_data_ptr<float>());
  return grad_hidden;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(probattn_native, library) {
  library.def(
      "readout_rows(Tensor hidden, Tensor weight, Tensor? bias, Tensor target, Tensor(a!) scores) -> "
      "(Tensor, Tensor)");
  library.def(
      "readout_rows_gradients(Tensor hidden, Tensor weight, Tensor target, Tensor scores, Tensor factors, "
      "Tensor credit, float skip_below, Tensor(a!) grad_weight, Tensor(b!)? grad_bias) -> Tensor");
}

TORCH_LIBRARY_IMPL(probattn_native, CPU, library) {
  library.impl("readout_rows", readout_rows);
  library.impl("readout_rows_gradients", readout_rows_gradients);
}

}  // namespace probattn
