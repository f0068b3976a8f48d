// Dense attention with random weights and the sums of its KL: operators for torch.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "attention_backward.h"
#include "attention_forward.h"

namespace probattn {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;
using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// In the order of probattn/kernels/attention_plan.py.
struct Switches {
  explicit Switches(at::IntArrayRef numbers) {
    TORCH_CHECK(numbers.size() == 5, "expected five switches, got ", numbers.size());
    noise = static_cast<DenseNoise>(numbers[0]);
    prior = static_cast<DensePrior>(numbers[1]);
    is_softmax_anchor = numbers[2] != 0;
    is_causal = numbers[3] != 0;
    draws = numbers[4];
  }
  DenseNoise noise;
  DensePrior prior;
  bool is_softmax_anchor, is_causal;
  int64_t draws;
};

const float* pointer(const Optional& tensor) { return tensor ? tensor->const_data_ptr<float>() : nullptr; }

uint64_t number(const Optional& seed) { return seed ? static_cast<uint64_t>(seed->item<int64_t>()) : 0; }

Mask mask_of(const Optional& tensor) {
  Mask mask;
  if (!tensor) return mask;
  mask.data = tensor->const_data_ptr();
  mask.is_bool = tensor->scalar_type() == at::kBool;
  TORCH_CHECK(mask.is_bool || tensor->scalar_type() == at::kFloat, "the mask must be bool or float32");
  for (int axis = 0; axis < 4; ++axis) mask.strides[axis] = tensor->size(axis) == 1 ? 0 : tensor->stride(axis);
  return mask;
}

// Whether a BLAS can read the last two axes: rows that lie on each other (an expanded tensor) are not for it.
bool are_side_by_side(const Tensor& rows) {
  const auto features = rows.size(-1);
  return (features <= 1 || rows.stride(-1) == 1) && (rows.size(-2) <= 1 || rows.stride(-2) >= features);
}

// What is given stays alive in the caller's tensors.
AttentionProblem problem_of(
    const Tensor& query, const Tensor& key, const Tensor& value, const Optional& mask, const Optional& weight,
    const Optional& constant, const Tensor& noise_scale, const Optional& seed, const Optional& dropout_seed,
    const Switches& switches, at::ArrayRef<double> numbers) {
  TORCH_CHECK(numbers.size() == 3, "expected scale, sharpness and dropout, got ", numbers.size());
  for (const Tensor& rows : {query, key, value}) {
    TORCH_CHECK(rows.dim() == 4 && are_side_by_side(rows), "expected (B, H, rows, features) with features side by side "
                "and rows apart, got sizes ", rows.sizes(), " and strides ", rows.strides());
  }
  return {Rows(query), Rows(key), Rows(value), mask_of(mask), pointer(weight), pointer(constant),
          noise_scale.const_data_ptr<float>(), query.size(0), query.size(1), key.size(1), query.size(2), key.size(2),
          switches.draws, switches.noise, switches.prior, switches.is_softmax_anchor, switches.is_causal, number(seed),
          number(dropout_seed), static_cast<float>(numbers[0]), static_cast<float>(numbers[1]),
          static_cast<float>(numbers[2])};
}

Outputs attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const Optional& mask, const Optional& weight,
    const Optional& constant, const Tensor& noise_scale, const Optional& seed, const Optional& dropout_seed,
    at::IntArrayRef switches, at::ArrayRef<double> numbers) {
  const AttentionProblem problem = problem_of(
      query, key, value, mask, weight, constant, noise_scale, seed, dropout_seed, Switches(switches), numbers);
  const auto options = query.options().dtype(at::kFloat);
  const int64_t batch = problem.batch, heads = problem.heads, queries = problem.queries;
  const bool has_prior = problem.prior != DensePrior::kNone;
  const Tensor context = at::empty({problem.draws, batch, heads, queries, problem.value.width}, options);
  const Tensor log_noisy = at::empty({problem.draws, batch, heads, queries}, options);
  const Tensor log_normaliser = at::empty({has_prior ? batch : 0, heads, queries}, options);
  const Tensor kl = at::empty({has_prior ? batch : 0, heads, queries}, options);
  const Tensor pull = at::empty({has_prior ? batch : 0, heads, queries}, options);
  const AttentionResult result{
      context.mutable_data_ptr<float>(), log_noisy.mutable_data_ptr<float>(),
      has_prior ? log_normaliser.mutable_data_ptr<float>() : nullptr,
      has_prior ? kl.mutable_data_ptr<float>() : nullptr, has_prior ? pull.mutable_data_ptr<float>() : nullptr};
  if (context.numel() + log_noisy.numel() > 0) run_attention(problem, result);
  return {context, log_noisy, log_normaliser, kl, pull};
}

// outputs: context, log_noisy, log_normaliser, pull.
Gradients attention_backward(
    const Tensor& query, const Tensor& key, const Tensor& value, const Optional& mask, const Optional& weight,
    const Optional& constant, const Tensor& noise_scale, const Optional& seed, const Optional& dropout_seed,
    at::IntArrayRef switches, at::ArrayRef<double> numbers, at::TensorList outputs, const Tensor& grad_context,
    const Optional& grad_log, const Optional& grad_kl, bool needs_noise_scale) {
  TORCH_CHECK(outputs.size() == 4, "expected context, log_noisy, log_normaliser and pull, got ", outputs.size());
  const AttentionProblem problem = problem_of(
      query, key, value, mask, weight, constant, noise_scale, seed, dropout_seed, Switches(switches), numbers);
  const auto options = query.options().dtype(at::kFloat);
  const bool has_prior = problem.prior != DensePrior::kNone && grad_kl;
  const bool needs_log = has_prior || (problem.prior != DensePrior::kNone && grad_log);
  // Flattening may copy, so the results need names.
  const Tensor context = outputs[0].flatten(0, 1), above = grad_context.flatten(0, 1);  // (K * B, H, T, Dv)
  TORCH_CHECK(are_side_by_side(context) && are_side_by_side(above), "expected contexts with features side by side and "
              "rows apart, got strides ", context.strides(), " and ", above.strides());
  const AttentionGiven given{
      Rows(context), Rows(above), outputs[1].const_data_ptr<float>(),
      needs_log ? outputs[2].const_data_ptr<float>() : nullptr, has_prior ? outputs[3].const_data_ptr<float>() : nullptr,
      pointer(grad_kl), pointer(grad_log)};
  const Tensor grad_query = at::zeros(query.sizes(), options);
  const Tensor grad_key = at::zeros(key.sizes(), options), grad_value = at::zeros(value.sizes(), options);
  const int64_t rows = has_prior ? problem.batch : 0;
  const Tensor grad_weight = at::zeros({rows, problem.heads, problem.keys}, options);
  const Tensor grad_constant = at::zeros({rows, problem.heads, problem.keys}, options);
  const Tensor grad_noise = at::zeros({needs_noise_scale ? problem.batch : 0, problem.heads}, options);
  const AttentionGradients result{
      grad_query.mutable_data_ptr<float>(), grad_key.mutable_data_ptr<float>(), grad_value.mutable_data_ptr<float>(),
      has_prior ? grad_weight.mutable_data_ptr<float>() : nullptr,
      has_prior ? grad_constant.mutable_data_ptr<float>() : nullptr,
      needs_noise_scale ? grad_noise.mutable_data_ptr<float>() : nullptr};
  if (problem.keys > 0 && problem.queries > 0) run_attention_backward(problem, given, result);
  return {grad_query, grad_key, grad_value, grad_weight, grad_constant, grad_noise};
}

}  // namespace

#define PROBATTN_ATTENTION_ARGUMENTS                                                                           \
  "Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? weight, Tensor? constant, Tensor noise_scale, " \
  "Tensor? seed, Tensor? dropout_seed, int[] switches, float[] numbers"

TORCH_LIBRARY_FRAGMENT(probattn_native, library) {
  library.def("attention(" PROBATTN_ATTENTION_ARGUMENTS ") -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "attention_backward(" PROBATTN_ATTENTION_ARGUMENTS
      ", Tensor[] outputs, Tensor grad_context, Tensor? grad_log, Tensor? grad_kl, bool needs_noise_scale)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(probattn_native, CPU, library) {
  library.impl("attention", attention);
  library.impl("attention_backward", attention_backward);
}

}  // namespace probattn
