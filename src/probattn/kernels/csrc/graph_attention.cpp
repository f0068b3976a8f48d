// Operators of graph attention: see probattn/kernels/graph_attention.py for what they compute.
#include <ATen/ops/empty.h>
#include <ATen/ops/lgamma.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "graph_backward.h"
#include "graph_forward.h"

namespace probattn {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;
// Context, KL, weights, log_normaliser, pull.
using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
// Of target scores, source scores, values, terms, prior.
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// The tensors of the operators' schemas that describe the problem.
struct Arguments {
  Tensor target_scores, source_scores, values;
  Optional terms, prior, seed, dropout_seed;
  int64_t law;
  bool is_softmax_anchor;
  double dropout, negative_slope;
};

// Edges in two orders, all int32. See `EdgeLists` in probattn/core/edges.py.
struct Lists {
  Tensor target_start, source_of, edge_of, source_start, position_of, target_of;

  explicit Lists(at::TensorList lists) {
    TORCH_CHECK(lists.size() == 6, "expected 6 edge lists, got ", lists.size());
    for (const Tensor& list : lists) {
      TORCH_CHECK(list.scalar_type() == at::kInt && list.is_contiguous(), "edge lists are contiguous int32");
    }
    target_start = lists[0];
    source_of = lists[1];
    edge_of = lists[2];
    source_start = lists[3];
    position_of = lists[4];
    target_of = lists[5];
  }

  Groups by_target() const { return {target_start.data_ptr<int32_t>(), target_start.numel() - 1}; }
  Groups by_source() const { return {source_start.data_ptr<int32_t>(), source_start.numel() - 1}; }
};

template <typename Number>
const Number* pointer(const Optional& tensor) {
  return tensor.has_value() ? tensor->const_data_ptr<Number>() : nullptr;
}

uint64_t seed_of(const Optional& seed) {
  return seed.has_value() ? static_cast<uint64_t>(seed->item<int64_t>()) : 0u;
}

template <typename Number>
Problem<Number> problem_of(const Arguments& given) {
  Problem<Number> problem{};
  problem.heads = given.values.size(1);
  problem.dim = given.values.size(2);
  problem.law = static_cast<Law>(given.law);
  problem.is_random = given.seed.has_value();
  problem.has_kl = given.prior.has_value();
  problem.is_softmax_anchor = given.is_softmax_anchor;
  problem.negative_slope = static_cast<Number>(given.negative_slope);
  problem.seed = seed_of(given.seed);
  problem.dropout_seed = seed_of(given.dropout_seed);
  problem.dropout = given.dropout_seed.has_value() ? given.dropout : 0.0;
  problem.target_scores = given.target_scores.const_data_ptr<Number>();
  problem.source_scores = given.source_scores.const_data_ptr<Number>();
  problem.values = given.values.const_data_ptr<Number>();
  problem.terms = pointer<Number>(given.terms);
  problem.prior = pointer<Number>(given.prior);
  problem.prior_stride = given.prior.has_value() && given.prior->size(0) > 1 ? problem.heads : 0;
  return problem;
}

template <typename Number, int kHeads, int kDim>
void run_forward(const Problem<Number>& problem, const ForwardResult<Number>& result, const Lists& lists) {
  const Groups groups = lists.by_target();
  const auto* source_of = lists.source_of.const_data_ptr<int32_t>();
  const auto* edge_of = lists.edge_of.const_data_ptr<int32_t>();
  for_each_chunk(groups, problem.heads, [&](int64_t, int64_t first_node, int64_t last_node) {
    thread_local ForwardBuffers<Number> buffers;
    ForwardChunk<Number, kHeads, kDim> chunk(problem, result, buffers, source_of, edge_of);
    chunk.run(groups.start, first_node, last_node);
  });
}

template <typename Number, int kHeads, int kDim>
void run_backward(const Problem<Number>& problem, const BackwardGiven<Number>& given,
                  const BackwardResult<Number>& result, const Lists& lists) {
  const Groups targets = lists.by_target(), sources = lists.by_source();
  const auto* position_of = lists.position_of.const_data_ptr<int32_t>();
  const auto* target_of = lists.target_of.const_data_ptr<int32_t>();
  const auto* edge_of = lists.edge_of.const_data_ptr<int32_t>();
  const int64_t heads = problem.heads;
  const Tensor fields =
      at::empty({targets.num_nodes, num_fields(problem, given), heads}, c10::CppTypeToScalarType<Number>::value);
  auto* field = fields.mutable_data_ptr<Number>();
  for_each_chunk(targets, heads, [&](int64_t, int64_t first_node, int64_t last_node) {
    gather_targets<Number, kHeads, kDim>(problem, given, targets.start, first_node, last_node, field);
  });
  for_each_chunk(sources, heads, [&](int64_t chunk, int64_t first_node, int64_t last_node) {
    thread_local BackwardBuffers<Number> buffers;
    BackwardChunk<Number, kHeads, kDim> work(problem, given, result, buffers, field);
    Number* terms = result.terms ? result.terms + chunk * kTerms * heads : nullptr;
    work.run(sources.start, position_of, target_of, edge_of, first_node, last_node, terms);
  });
  for_each_chunk(targets, heads, [&](int64_t, int64_t first_node, int64_t last_node) {
    sum_over_edges(result.edges, targets.start, heads, first_node, last_node, result.target_scores);
  });
}

// Calls `work` with H and D as template arguments where they are common: hidden layers, and an output layer of one head.
template <typename Number, typename Work>
void with_sizes(int64_t heads, int64_t dim, const Work& work) {
  using std::integral_constant;
  if constexpr (std::is_same_v<Number, float>) {
    if (heads == 8 && dim == 8) return work(integral_constant<int, 8>{}, integral_constant<int, 8>{});
    if (heads == 1) return work(integral_constant<int, 1>{}, integral_constant<int, 0>{});
  }
  work(integral_constant<int, 0>{}, integral_constant<int, 0>{});
}

template <typename Number>
Outputs forward_as(const Arguments& given, const Lists& lists) {
  auto problem = problem_of<Number>(given);
  Tensor log_gamma;
  if (problem.has_kl && problem.law == Law::kWeibull) {
    log_gamma = at::lgamma(*given.prior);
    problem.log_gamma = log_gamma.const_data_ptr<Number>();
  }
  const auto options = given.values.options();
  const int64_t nodes = given.target_scores.size(0), heads = problem.heads;
  const bool keeps_normaliser = problem.has_kl && problem.is_softmax_anchor;
  const Tensor context = at::empty({nodes, heads, problem.dim}, options);
  const Tensor kl = problem.has_kl ? at::empty({nodes, heads}, options) : at::zeros({nodes, heads}, options);
  const Tensor weights = at::empty({lists.source_of.numel(), heads}, options);
  const Tensor log_normaliser = at::empty({keeps_normaliser ? nodes : 0, heads}, options);
  const Tensor pull = at::empty({keeps_normaliser ? nodes : 0, heads}, options);
  const ForwardResult<Number> result{
      context.mutable_data_ptr<Number>(), kl.mutable_data_ptr<Number>(), weights.mutable_data_ptr<Number>(),
      log_normaliser.mutable_data_ptr<Number>(), pull.mutable_data_ptr<Number>()};
  if (nodes > 0 && heads > 0) {
    with_sizes<Number>(heads, problem.dim, [&](auto fixed_heads, auto fixed_dim) {
      run_forward<Number, fixed_heads(), fixed_dim()>(problem, result, lists);
    });
  }
  return {context, kl, weights, log_normaliser, pull};
}

// Sums (chunks, kTerms, H) over chunks, in their order.
template <typename Number>
Tensor sum_chunks(const Tensor& parts) {
  const int64_t chunks = parts.size(0), width = parts.size(1) * parts.size(2);
  const Tensor total = at::zeros({parts.size(1), parts.size(2)}, parts.options());
  std::vector<double> sums(width, 0.0);
  const auto* numbers = parts.const_data_ptr<Number>();
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (int64_t at = 0; at < width; ++at) sums[at] += numbers[chunk * width + at];
  }
  for (int64_t at = 0; at < width; ++at) total.mutable_data_ptr<Number>()[at] = static_cast<Number>(sums[at]);
  return total;
}

template <typename Number>
Gradients backward_as(const Arguments& given, const Lists& lists, const BackwardGiven<Number>& from_above,
                      bool needs_prior, bool needs_terms) {
  const auto problem = problem_of<Number>(given);
  const auto options = given.values.options();
  const int64_t sources = given.source_scores.size(0), heads = problem.heads;
  const Groups groups = lists.by_source();
  const Tensor target_scores = at::zeros(given.target_scores.sizes(), options);
  // Sources beyond the last one that an edge names are not visited.
  const auto made = [&](at::IntArrayRef sizes) {
    return groups.num_nodes < sources ? at::zeros(sizes, options) : at::empty(sizes, options);
  };
  const Tensor source_scores = made(given.source_scores.sizes()), values = made(given.values.sizes());
  const Tensor prior = made({needs_prior ? sources : 0, heads});
  const int64_t chunks = needs_terms && heads > 0 ? groups.num_chunks(heads) : 0;
  const Tensor terms = at::zeros({chunks, kTerms, heads}, options);
  const Tensor edges = at::empty({lists.source_of.numel(), heads}, options);
  const BackwardResult<Number> result{
      target_scores.mutable_data_ptr<Number>(),
      source_scores.mutable_data_ptr<Number>(),
      values.mutable_data_ptr<Number>(),
      needs_prior ? prior.mutable_data_ptr<Number>() : nullptr,
      needs_terms ? terms.mutable_data_ptr<Number>() : nullptr,
      edges.mutable_data_ptr<Number>()};
  if (heads > 0) {
    with_sizes<Number>(heads, problem.dim, [&](auto fixed_heads, auto fixed_dim) {
      run_backward<Number, fixed_heads(), fixed_dim()>(problem, from_above, result, lists);
    });
  }
  return {target_scores, source_scores, values, sum_chunks<Number>(terms), prior};
}

Outputs graph_attention(
    const Tensor& target_scores, const Tensor& source_scores, const Tensor& values, at::TensorList edge_lists,
    const Optional& terms, const Optional& prior, const Optional& seed, const Optional& dropout_seed, int64_t law,
    bool is_softmax_anchor, double dropout, double negative_slope) {
  const Arguments given{target_scores, source_scores, values, terms, prior, seed, dropout_seed, law,
                        is_softmax_anchor, dropout, negative_slope};
  const Lists lists(edge_lists);
  return values.scalar_type() == at::kFloat ? forward_as<float>(given, lists) : forward_as<double>(given, lists);
}

template <typename Number>
BackwardGiven<Number> from_above(at::TensorList outputs, const Tensor& grad_context, const Optional& grad_kl,
                                 const Optional& grad_weights) {
  return {outputs[0].const_data_ptr<Number>(), outputs[1].const_data_ptr<Number>(),
          outputs[2].const_data_ptr<Number>(), outputs[3].const_data_ptr<Number>(),
          grad_context.const_data_ptr<Number>(), pointer<Number>(grad_kl), pointer<Number>(grad_weights)};
}

// outputs: context, weights, log_normaliser, pull.
Gradients graph_attention_backward(
    const Tensor& target_scores, const Tensor& source_scores, const Tensor& values, at::TensorList edge_lists,
    const Optional& terms, const Optional& prior, const Optional& seed, const Optional& dropout_seed, int64_t law,
    bool is_softmax_anchor, double dropout, double negative_slope, at::TensorList outputs,
    const Tensor& grad_context, const Optional& grad_kl, const Optional& grad_weights, bool needs_prior,
    bool needs_terms) {
  TORCH_CHECK(outputs.size() == 4, "expected context, weights, log_normaliser and pull, got ", outputs.size());
  const Arguments given{target_scores, source_scores, values, terms, prior, seed, dropout_seed, law,
                        is_softmax_anchor, dropout, negative_slope};
  const Lists lists(edge_lists);
  if (values.scalar_type() == at::kFloat) {
    const auto above = from_above<float>(outputs, grad_context, grad_kl, grad_weights);
    return backward_as<float>(given, lists, above, needs_prior, needs_terms);
  }
  const auto above = from_above<double>(outputs, grad_context, grad_kl, grad_weights);
  return backward_as<double>(given, lists, above, needs_prior, needs_terms);
}

}  // namespace

#define PROBATTN_GRAPH_ARGUMENTS                                                                                \
  "Tensor target_scores, Tensor source_scores, Tensor values, Tensor[] edge_lists, Tensor? terms, "             \
  "Tensor? prior, Tensor? seed, Tensor? dropout_seed, int law, bool is_softmax_anchor, float dropout, "         \
  "float negative_slope"

TORCH_LIBRARY_FRAGMENT(probattn_native, library) {
  library.def("graph_attention(" PROBATTN_GRAPH_ARGUMENTS ") -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "graph_attention_backward(" PROBATTN_GRAPH_ARGUMENTS
      ", Tensor[] outputs, Tensor grad_context, Tensor? grad_kl, Tensor? grad_weights, bool needs_prior, "
      "bool needs_terms) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(probattn_native, CPU, library) {
  library.impl("graph_attention", graph_attention);
  library.impl("graph_attention_backward", graph_attention_backward);
}

}  // namespace probattn
