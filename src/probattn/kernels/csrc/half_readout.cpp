// A chunk of a readout whose products take bfloat16 factors: twice as fast where the processor multiplies them.
//
// Factors are rounded, nothing else: products are summed in float32, and logits, normalisers and gradients are float32.
// Tiles and their order are those of latent_cross_entropy.cpp, so results are the same bits for any number of threads.
//
// The second factor of a product must hold pairs: two numbers that are neighbours along the summed dimension lie side by
// side, (inner / 2, columns, 2). A pair is one 32-bit word here. Rows are filled up with zeros to a multiple of 16, so
// that few sizes occur: the matrix library compiles a kernel for each.
//
// Size letters: R rows, P rows filled up, D width (even), V words, E words filled up to an even number, G groups of
// tiles, M tiles.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "readout_tiles.h"

// A release of torch that has the product, and a processor that has the instruction: torch would else imitate it.
#if defined(CPUBLAS_BRGEMM_BF16BF16F32) && defined(__AVX512BF16__)
#define PROBATTN_HALF_PRODUCTS
#endif

namespace probattn {
namespace {

using at::BFloat16;
using at::Tensor;

constexpr int64_t kRowBlock = 16;

int64_t filled_up(int64_t count, int64_t block) { return (count + block - 1) / block * block; }

// The bits of the nearest bfloat16, ties to even; a NaN stays one.
PROBATTN_INLINE uint32_t rounded(float x) {
  const auto bits = bits_as<uint32_t>(x);
  const uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return x == x ? nearest : 0x7fc0u;
}

PROBATTN_INLINE uint32_t pair_of(float first, float second) { return rounded(first) | (rounded(second) << 16); }

// out (rows, columns) = first (rows, inner) * second (inner / 2, columns, 2), or added to it.
void multiply(int64_t rows, int64_t columns, int64_t inner, const uint16_t* first, int64_t first_stride,
              const uint32_t* second, float* out, bool is_added) {
#if defined(PROBATTN_HALF_PRODUCTS)
  at::native::cpublas::brgemm(rows, columns, inner, first_stride, columns, columns, is_added,
                              reinterpret_cast<const BFloat16*>(first), reinterpret_cast<const BFloat16*>(second), out,
                              /*is_vnni=*/true);
#else
  TORCH_CHECK(false, "this processor, or this release of torch, has no products of bfloat16 factors");
#endif
}

// Behind the last product of a thread; processors with tile registers keep them reserved until then.
void release() {
#if defined(PROBATTN_HALF_PRODUCTS)
  at::native::cpublas::brgemm_release(/*is_vnni=*/true);
#endif
}

// Whether products can be taken, found out by taking one: what torch asks of a processor depends on its release.
bool try_product() {
  try {
    const std::vector<uint16_t> ones(kRowBlock * kRowBlock, 0x3f80);  // 1.0
    const std::vector<uint32_t> pairs(kRowBlock * kRowBlock / 2, 0x3f803f80);
    std::vector<float> out(kRowBlock * kRowBlock);
    multiply(kRowBlock, kRowBlock, kRowBlock, ones.data(), kRowBlock, pairs.data(), out.data(), false);
    release();
    return std::all_of(out.begin(), out.end(), [](float one) { return one == static_cast<float>(kRowBlock); });
  } catch (const std::exception&) {
    return false;
  }
}

// On some processors with tile registers (AMX) bfloat16 through oneDNN ends the process, which no test can catch from
// inside: there it must be kept from using them, as ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 does.
bool is_safe() {
#if defined(__AMX_TILE__)
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && std::string(value) == "AVX512_CORE_BF16") return true;
  }
  return false;
#else
  return true;
#endif
}

bool has_half_products() {
  if (!at::globalContext().userEnabledMkldnn()) return false;  // may be switched at any time
  static const bool can = is_safe() && try_product();
  return can;
}

void check_half_rows(const Tensor& hidden, const Tensor& weight, const Tensor& target, const Tensor& scores) {
  TORCH_CHECK(hidden.scalar_type() == at::kFloat && hidden.is_contiguous() && scores.scalar_type() == at::kFloat &&
                  scores.is_contiguous() && weight.scalar_type() == at::kBFloat16 && weight.is_contiguous() &&
                  target.scalar_type() == at::kLong && target.is_contiguous(),
              "expected contiguous float32 hidden states and scores, a bfloat16 weight and an int64 target");
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.numel() > 0 && hidden.size(1) % 2 == 0 &&
                  target.numel() == hidden.size(0),
              "expected hidden (R, D) with an even D, weight and target (R), got ", hidden.sizes(), ", ", weight.sizes(),
              " and ", target.sizes());
}

// Neighbouring columns of rows (R, D) as pairs (D / 2, P).
std::vector<uint32_t> pairs_of_columns(const float* from, int64_t rows, int64_t width, int64_t filled) {
  std::vector<uint32_t> out(width / 2 * filled, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const float* line = from + row * width;
    for (int64_t at = 0; at < width / 2; ++at) out[at * filled + row] = pair_of(line[2 * at], line[2 * at + 1]);
  }
  return out;
}

// Neighbouring rows of rows (R, D) as pairs (P / 2, D); zeros for rows without a credit (P), whatever they hold.
std::vector<uint32_t> pairs_of_rows(const float* from, int64_t width, const std::vector<float>& credit) {
  const auto filled = static_cast<int64_t>(credit.size());
  const std::vector<float> nothing(width, 0.0f);
  std::vector<uint32_t> out(filled / 2 * width);
  for (int64_t row = 0; row < filled; row += 2) {
    const float* line = credit[row] == 0.0f ? nothing.data() : from + row * width;
    const float* next = credit[row + 1] == 0.0f ? nothing.data() : from + (row + 1) * width;
    uint32_t* to = out.data() + row / 2 * width;
#pragma omp simd
    for (int64_t at = 0; at < width; ++at) to[at] = pair_of(line[at], next[at]);
  }
  return out;
}

// Log-likelihoods (R) of the targets, and factors (M, P): the softmax is scores (V, P) * factors.
std::tuple<Tensor, Tensor> readout_rows_half(const Tensor& hidden, const Tensor& weight,
                                             const std::optional<Tensor>& bias, const Tensor& target,
                                             const Tensor& scores) {
  check_half_rows(hidden, weight, target, scores);
  const int64_t rows = hidden.size(0), width = hidden.size(1), vocabulary = weight.size(0);
  const int64_t filled = filled_up(rows, kRowBlock), tiles = num_tiles(vocabulary);
  TORCH_CHECK(weight.size(1) == width && scores.numel() >= filled * vocabulary,
              "expected weight (V, D) and V * P scores, got ", weight.sizes(), " and ", scores.numel());
  check_bias(bias, vocabulary);
  const auto* words = target.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    TORCH_CHECK_INDEX(words[row] >= 0 && words[row] < vocabulary, "target ", words[row], " is out of bounds for ",
                      vocabulary, " words");
  }
  const std::vector<uint32_t> pairs = pairs_of_columns(hidden.const_data_ptr<float>(), rows, width, filled);
  const Tensor factors = at::empty({tiles, filled}, hidden.options()), log_lik = at::empty({filled}, hidden.options());
  std::vector<float> sums(tiles * filled), picked(filled, 0.0f);
  const auto* weight_numbers = reinterpret_cast<const uint16_t*>(weight.const_data_ptr<BFloat16>());
  const auto* bias_numbers = bias.has_value() ? bias->const_data_ptr<float>() : nullptr;
  auto* score_numbers = scores.mutable_data_ptr<float>();
  auto* maximum = factors.mutable_data_ptr<float>();
  for_each_task(tiles, [&](int64_t number) {
    const Tile tile = tile_at(number, vocabulary);
    float* logits = score_numbers + tile.first * filled;
    multiply(tile.words, filled, width, weight_numbers + tile.first * width, width, pairs.data(), logits, false);
    release();
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t word = words[row] - tile.first;
      if (word < 0 || word >= tile.words) continue;
      picked[row] = logits[word * filled + row] + (bias_numbers == nullptr ? 0.0f : bias_numbers[words[row]]);
    }
    exponentiate_tile(logits, bias_numbers, tile, filled, maximum + number * filled, sums.data() + number * filled);
  });
  finish_rows(maximum, sums.data(), picked.data(), tiles, filled, log_lik.mutable_data_ptr<float>());
  return {log_lik.narrow(0, 0, rows), factors};
}

// What the derivative with respect to the logits of a tile is made from and into.
struct HalfTile {
  const std::vector<float>& credit;    // (P) zero for rows without a gradient
  const std::vector<int64_t>& words;   // (P) targets; -1 for rows without a gradient
  std::vector<float> factor;           // (P)
  std::vector<uint16_t> lines;         // (words, P)
  std::vector<uint32_t> pairs;         // (words / 2, P)

  HalfTile(const std::vector<float>& all_credit, const std::vector<int64_t>& all_words, int64_t most_words)
      : credit(all_credit),
        words(all_words),
        factor(all_credit.size()),
        lines(most_words * all_credit.size()),
        pairs(most_words / 2 * all_credit.size()) {}

  // d logits of a tile, credit * (one-hot - softmax), in both layouts; its sum over rows is added to the bias's gradient.
  void fill(const float* scores, const float* factors, Tile tile, float* grad_bias) {
    const auto filled = static_cast<int64_t>(credit.size());
    for (int64_t row = 0; row < filled; ++row) factor[row] = credit[row] == 0.0f ? 0.0f : -credit[row] * factors[row];
    const float* scale = factor.data();
    for (int64_t word = 0; word < tile.words; word += 2) {
      const bool is_alone = word + 1 == tile.words;  // the line below it then counts as zeros
      const float* line = scores + word * filled;
      const float* next = is_alone ? line : line + filled;
      const float keep = is_alone ? 0.0f : 1.0f;
      uint16_t* to = lines.data() + word * filled;
      uint16_t* to_next = to + filled;  // exists: a tile has an even number of lines
      uint32_t* pair = pairs.data() + word / 2 * filled;
      float sum = 0.0f, next_sum = 0.0f;
#pragma omp simd reduction(+ : sum, next_sum)
      for (int64_t row = 0; row < filled; ++row) {
        // selected, not multiplied by zero: rows without a credit may hold a NaN
        const float first = scale[row] == 0.0f ? 0.0f : line[row] * scale[row];
        const float second = scale[row] == 0.0f ? 0.0f : next[row] * scale[row] * keep;
        sum += first;
        next_sum += second;
        const uint32_t both = pair_of(first, second);
        pair[row] = both;
        to[row] = static_cast<uint16_t>(both);
        to_next[row] = static_cast<uint16_t>(both >> 16);
      }
      if (grad_bias == nullptr) continue;
      grad_bias[tile.first + word] += sum;
      if (!is_alone) grad_bias[tile.first + word + 1] += next_sum;
    }
    for (int64_t row = 0; row < filled; ++row) {
      const int64_t word = words[row] - tile.first;
      if (words[row] < 0 || word < 0 || word >= tile.words) continue;
      const uint32_t own = rounded(scores[word * filled + row] * scale[row] + credit[row]);
      lines[word * filled + row] = static_cast<uint16_t>(own);
      uint32_t& pair = pairs[word / 2 * filled + row];
      pair = word % 2 == 0 ? (pair & 0xffff0000u) | own : (pair & 0x0000ffffu) | (own << 16);
      if (grad_bias != nullptr) grad_bias[words[row]] += credit[row];
    }
  }
};

// The gradient (R, D) of sum credit * log-likelihood with respect to the hidden states; those of weight and bias are
// added to what is given. The weight is transposed, (D, E).
Tensor readout_rows_half_gradients(const Tensor& hidden, const Tensor& transposed, const Tensor& target,
                                   const Tensor& scores, const Tensor& factors, const Tensor& credit,
                                   double skip_below, const Tensor& grad_weight,
                                   const std::optional<Tensor>& grad_bias) {
  check_half_rows(hidden, transposed, target, scores);
  const int64_t rows = hidden.size(0), width = hidden.size(1), vocabulary = grad_weight.size(0);
  const int64_t stride = transposed.size(1), filled = filled_up(rows, kRowBlock), tiles = num_tiles(vocabulary);
  TORCH_CHECK(transposed.size(0) == width && stride == filled_up(vocabulary, 2) && grad_weight.is_contiguous() &&
                  grad_weight.numel() == vocabulary * width && credit.scalar_type() == at::kFloat &&
                  credit.is_contiguous() && credit.numel() == rows && factors.numel() == tiles * filled &&
                  scores.numel() >= filled * vocabulary,
              "expected a weight (D, E) and its gradient (V, D), float32 credit (R), factors (M, P) and V * P scores, got ",
              transposed.sizes(), ", ", grad_weight.sizes(), ", ", credit.sizes(), ", ", factors.sizes(), " and ",
              scores.numel());
  check_bias(grad_bias, vocabulary);
  std::vector<float> credits(filled, 0.0f);
  std::vector<int64_t> words(filled, -1);
  for (int64_t row = 0; row < rows; ++row) {
    const float own = credit.const_data_ptr<float>()[row];
    if (std::fabs(own) <= static_cast<float>(skip_below)) continue;  // a NaN is kept, and seen
    credits[row] = own;
    words[row] = target.const_data_ptr<int64_t>()[row];
  }
  const std::vector<uint32_t> pairs = pairs_of_rows(hidden.const_data_ptr<float>(), width, credits);
  const int64_t tiles_per_group = (tiles + kMaxGroups - 1) / kMaxGroups;
  const int64_t groups = tiles == 0 ? 0 : (tiles + tiles_per_group - 1) / tiles_per_group;
  const Tensor parts = at::empty({groups, width, filled}, hidden.options());
  const auto* weight_numbers = reinterpret_cast<const uint16_t*>(transposed.const_data_ptr<BFloat16>());
  const auto* score_numbers = scores.const_data_ptr<float>();
  const auto* factor_numbers = factors.const_data_ptr<float>();
  auto* grad_weight_numbers = grad_weight.mutable_data_ptr<float>();
  auto* bias_numbers = grad_bias.has_value() ? grad_bias->mutable_data_ptr<float>() : nullptr;
  auto* part_numbers = parts.mutable_data_ptr<float>();
  for_each_task(groups, [&](int64_t group) {
    HalfTile derivative(credits, words, std::min(kTileWords, filled_up(vocabulary, 2)));
    const int64_t first = group * tiles_per_group, last = std::min(tiles, first + tiles_per_group);
    for (int64_t number = first; number < last; ++number) {
      const Tile tile = tile_at(number, vocabulary);
      derivative.fill(score_numbers + tile.first * filled, factor_numbers + number * filled, tile, bias_numbers);
      multiply(width, filled, filled_up(tile.words, 2), weight_numbers + tile.first, stride, derivative.pairs.data(),
               part_numbers + group * width * filled, number > first);
      multiply(tile.words, width, filled, derivative.lines.data(), filled, pairs.data(),
               grad_weight_numbers + tile.first * width, true);
    }
    release();
  });
  Tensor sum = at::zeros({width, filled}, hidden.options());
  for (int64_t group = 0; group < groups; ++group) sum.add_(parts[group]);
  return sum.t().narrow(0, 0, rows).contiguous();
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(probattn_native, library) {
  library.def("has_half_products() -> bool", has_half_products);
  library.def(
      "readout_rows_half(Tensor hidden, Tensor weight, Tensor? bias, Tensor target, Tensor(a!) scores) -> "
      "(Tensor, Tensor)");
  library.def(
      "readout_rows_half_gradients(Tensor hidden, Tensor transposed, Tensor target, Tensor scores, Tensor factors, "
      "Tensor credit, float skip_below, Tensor(a!) grad_weight, Tensor(b!)? grad_bias) -> Tensor");
}

TORCH_LIBRARY_IMPL(probattn_native, CPU, library) {
  library.impl("readout_rows_half", readout_rows_half);
  library.impl("readout_rows_half_gradients", readout_rows_half_gradients);
}

}  // namespace probattn
