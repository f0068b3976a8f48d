// Graph attention, backward: one pass over the edges grouped by source, between two cheap ones over targets.
//
// Nothing is added to from two places: the gradient of a source is summed where its edges are together, and what
// belongs to a target is left with the edge and summed in the order of targets.
#pragma once

#include "graph.h"

namespace probattn {

// What the backward pass reads beyond the problem. Weights are in the order of the edges grouped by target.
template <typename Number>
struct BackwardGiven {
  const Number* context;         // (N, H, D)
  const Number* weights;         // (E, H)
  const Number* log_normaliser;  // (N, H)
  const Number* pull;            // (N, H)
  const Number* grad_context;    // (N, H, D)
  const Number* grad_kl;         // (N, H) or null
  const Number* grad_weights;    // (E, H) or null
};

// What it writes; null where nobody asked.
template <typename Number>
struct BackwardResult {
  Number* target_scores;   // (N, H)
  Number* source_scores;   // (M, H)
  Number* values;          // (M, H, D)
  Number* prior;           // (M, H)
  Number* terms;           // (chunks, kTerms, H)
  Number* edges;           // (E, H) gradient of t_i + s_j, in the order of targets
};

// All that an edge asks its target for, side by side in memory: (N, fields, H). Without a KL there are two fields, with
// the softmax anchor five.
enum TargetField { kScore, kRowDot, kGradKl, kNormaliser, kPull };

template <typename Number>
int64_t num_fields(const Problem<Number>& problem, const BackwardGiven<Number>& given) {
  if (!problem.has_kl || !given.grad_kl) return 2;
  return problem.is_softmax_anchor ? 5 : 3;
}

template <typename Number>
struct BackwardBuffers {
  std::vector<Number> log_mean, expected, keep, noise, dot, rates, grad_kl;
  std::vector<float> uniform;
};

// Fills the fields of targets; the row dot is sum over edges of weight * d loss / d weight.
template <typename Number, int kHeads, int kDim>
void gather_targets(const Problem<Number>& problem, const BackwardGiven<Number>& given, const int32_t* start,
                    int64_t first_node, int64_t last_node, Number* fields) {
  const int64_t heads = kHeads ? kHeads : problem.heads, dim = kDim ? kDim : problem.dim;
  const int64_t count = num_fields(problem, given);
  const std::array<const Number*, 5> rows{
      problem.target_scores, nullptr, given.grad_kl, given.log_normaliser, given.pull};
  for (int64_t node = first_node; node < last_node; ++node) {
    Number* __restrict field = fields + node * count * heads;
    for (int64_t number = 0; number < count; ++number) {
      if (rows[number]) std::copy_n(rows[number] + node * heads, heads, field + number * heads);
    }
    const Number* __restrict grad_context = given.grad_context + node * heads * dim;
    const Number* __restrict context = given.context + node * heads * dim;
    for (int64_t head = 0; head < heads; ++head) {
      Number dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t feature = 0; feature < dim; ++feature) {
        dot += grad_context[head * dim + feature] * context[head * dim + feature];
      }
      field[kRowDot * heads + head] = dot;
    }
    if (!given.grad_weights) continue;
    for (int64_t edge = start[node] * heads; edge < start[node + 1] * heads; ++edge) {
      field[kRowDot * heads + edge % heads] += given.grad_weights[edge] * given.weights[edge];
    }
  }
}

// d loss / d t_i.
template <typename Number>
void sum_over_edges(const Number* edges, const int32_t* start, int64_t heads, int64_t first_node, int64_t last_node,
                    Number* out) {
  for (int64_t node = first_node; node < last_node; ++node) {
    Number* __restrict total = out + node * heads;
    std::fill_n(total, heads, Number(0));
    for (int64_t edge = start[node]; edge < start[node + 1]; ++edge) {
      const Number* __restrict one = edges + edge * heads;
#pragma omp simd
      for (int64_t head = 0; head < heads; ++head) total[head] += one[head];
    }
  }
}

// The edges of some sources. kHeads and kDim are H and D where they are known when this is compiled, else 0.
template <typename Number, int kHeads, int kDim>
class BackwardChunk {
 public:
  BackwardChunk(const Problem<Number>& problem, const BackwardGiven<Number>& given,
                const BackwardResult<Number>& result, BackwardBuffers<Number>& buffers, const Number* fields)
      : problem_(problem),
        given_(given),
        result_(result),
        buffers_(buffers),
        fields_(fields),
        num_fields_(num_fields(problem, given)) {}

  // position_of: place of an edge in the order of targets. target_of: its target. Both in the order of sources.
  void run(const int32_t* start, const int32_t* position_of, const int32_t* target_of, const int32_t* edge_of,
           int64_t first_node, int64_t last_node, Number* terms) {
    first_ = start[first_node];
    last_ = start[last_node];
    position_of_ = position_of;
    target_of_ = target_of;
    terms_ = terms;
    if (terms_) std::fill_n(terms_, kTerms * heads(), Number(0));
    prepare(start[last_node] - first_, edge_of);
    for (int64_t node = first_node; node < last_node; ++node) {
      if (differentiates_kl()) score(node, start[node], start[node + 1]);
    }
    if (needs_expected()) {
      exponentiate(buffers_.expected.data(), (start[last_node] - first_) * heads());
    }
    for (int64_t node = first_node; node < last_node; ++node) differentiate(node, start[node], start[node + 1]);
  }

 private:
  int64_t heads() const { return kHeads ? kHeads : problem_.heads; }
  int64_t dim() const { return kDim ? kDim : problem_.dim; }

  bool differentiates_kl() const { return problem_.has_kl && given_.grad_kl; }
  bool needs_expected() const {
    return differentiates_kl() && (problem_.is_softmax_anchor || problem_.law == Law::kWeibull);
  }

  void prepare(int64_t count, const int32_t* edge_of) {
    const int64_t total = count * heads();
    const auto edge = [&](int64_t number) { return edge_of[position_of_[first_ + number]]; };
    buffers_.dot.resize(heads());
    buffers_.rates.resize(heads());
    buffers_.grad_kl.resize(heads());
    rates_ = buffers_.rates.data();
    if (differentiates_kl() && problem_.law == Law::kWeibull) {
      for (int64_t head = 0; head < heads(); ++head) rates_[head] = std::exp(problem_.term(kPriorScale)[head]);
    }
    if (differentiates_kl()) buffers_.log_mean.resize(total);
    if (needs_expected()) buffers_.expected.resize(total);
    if (problem_.dropout > 0.0) {
      buffers_.keep.resize(total);
      fill_keep(problem_, count, edge, buffers_.uniform, buffers_.keep.data());
    }
    if (terms_ && problem_.is_random) {
      buffers_.noise.resize(total);
      fill_noise(problem_, count, edge, buffers_.noise.data());
    }
  }

  // log E[S] of each edge, and what is to be exponentiated.
  void score(int64_t node, int64_t begin, int64_t end) {
    const Number* __restrict source = problem_.source_scores + node * heads();
    const Number* __restrict log_rate = problem_.term(kPriorScale);
    const Number slope = problem_.negative_slope;
    const Number has_rate = problem_.is_softmax_anchor ? Number(0) : Number(1);
    for (int64_t edge = begin; edge < end; ++edge) {
      const Number* __restrict field = field_of(edge);
      Number* __restrict log_mean = of(buffers_.log_mean, edge);
      prefetch(field_of(std::min(edge + kAhead, last_ - 1)), num_fields_ * heads());
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        log_mean[head] = leaky_relu(field[kScore * heads() + head] + source[head], slope);
      }
      if (problem_.is_softmax_anchor) {
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) log_mean[head] -= field[kNormaliser * heads() + head];
      }
      if (needs_expected()) {
        Number* __restrict expected = of(buffers_.expected, edge);
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) expected[head] = log_mean[head] + has_rate * log_rate[head];
      }
    }
  }

  void differentiate(int64_t node, int64_t begin, int64_t end) {
    const Number* __restrict value = problem_.values + node * heads() * dim();
    const Number* __restrict source = problem_.source_scores + node * heads();
    Number* __restrict grad_source = result_.source_scores + node * heads();
    Number* __restrict grad_value = result_.values + node * heads() * dim();
    Number* __restrict dot = buffers_.dot.data();
    const Number slope = problem_.negative_slope;  // a copy: what is written below could be the original
    std::fill_n(grad_source, heads(), Number(0));
    std::fill_n(grad_value, heads() * dim(), Number(0));
    if (result_.prior) std::fill_n(result_.prior + node * heads(), heads(), Number(0));
    std::fill_n(buffers_.grad_kl.data(), heads(), Number(0));
    for (int64_t edge = begin; edge < end; ++edge) {
      const int64_t position = position_of_[edge];
      const Number* __restrict field = field_of(edge);
      const Number* __restrict weights = given_.weights + position * heads();
      const Number* __restrict grad_context = given_.grad_context + int64_t(target_of_[edge]) * heads() * dim();
      const Number* __restrict keep = problem_.dropout > 0.0 ? of(buffers_.keep, edge) : nullptr;
      Number* __restrict grad_edge = result_.edges + position * heads();
      fetch_ahead(edge);
      for (int64_t head = 0; head < heads(); ++head) {
        const Number kept = keep ? weights[head] * keep[head] : weights[head];
        Number sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t feature = 0; feature < dim(); ++feature) {
          const int64_t at = head * dim() + feature;
          sum += grad_context[at] * value[at];
          grad_value[at] += kept * grad_context[at];
        }
        dot[head] = sum;
      }
      if (keep) {
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) dot[head] *= keep[head];
      }
      if (given_.grad_weights) {
        const Number* __restrict grad_weights = given_.grad_weights + position * heads();
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) dot[head] += grad_weights[head];
      }
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        grad_edge[head] = weights[head] * (dot[head] - field[kRowDot * heads() + head]);
      }
      if (terms_ && problem_.is_random) {
        const Number* __restrict noise = of(buffers_.noise, edge);
        for (int64_t head = 0; head < heads(); ++head) terms_[kNoiseScale * heads() + head] += grad_edge[head] * noise[head];
      }
      if (differentiates_kl()) add_divergence(node, edge, field, grad_edge);
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        const bool is_positive = field[kScore * heads() + head] + source[head] > Number(0);
        grad_edge[head] *= is_positive ? Number(1) : slope;
        grad_source[head] += grad_edge[head];
      }
    }
    if (result_.prior && problem_.law == Law::kWeibull) {
      const Number* __restrict prior = problem_.prior + node * problem_.prior_stride;
      const Number* __restrict grad_kl = buffers_.grad_kl.data();
      Number* __restrict gradient = result_.prior + node * heads();
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) gradient[head] += grad_kl[head] * digamma(prior[head]);
    }
  }

  // Adds d KL / d phi to an edge's gradient, and the gradients of prior and terms to theirs.
  PROBATTN_INLINE void add_divergence(int64_t node, int64_t edge, const Number* __restrict field, Number* __restrict grad_edge) {
    const Number* __restrict grad_kl = field + kGradKl * heads();
    const Number* __restrict pull = problem_.is_softmax_anchor ? field + kPull * heads() : nullptr;
    const Number* __restrict prior = problem_.prior + node * problem_.prior_stride;
    const Number* __restrict scale = problem_.term(kPriorScale);
    const Number* __restrict log_mean = of(buffers_.log_mean, edge);
    const Number* __restrict expected = needs_expected() ? of(buffers_.expected, edge) : nullptr;
    if (problem_.law == Law::kLognormal) {
      const Number* __restrict offset = problem_.term(kOffset);
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        const Number slope = (log_mean[head] - offset[head] - prior[head]) * scale[head] * scale[head];
        grad_edge[head] += grad_kl[head] * slope;
      }
      if (problem_.is_softmax_anchor) {
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) grad_edge[head] -= grad_kl[head] * expected[head] * pull[head];
      }
    } else if (problem_.is_softmax_anchor) {
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        grad_edge[head] += grad_kl[head] * ((rates_[head] - pull[head]) * expected[head] - prior[head]);
      }
    } else {
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        grad_edge[head] += grad_kl[head] * (expected[head] - prior[head]);
      }
    }
    if (result_.prior) add_prior(node, grad_kl, log_mean, prior);
    if (terms_) add_terms(grad_kl, log_mean, prior, expected);
  }

  PROBATTN_INLINE void add_prior(int64_t node, const Number* __restrict grad_kl, const Number* __restrict log_mean,
                 const Number* __restrict prior) {
    const Number* __restrict offset = problem_.term(kOffset);
    const Number* __restrict scale = problem_.term(kPriorScale);
    Number* __restrict gradient = result_.prior + node * heads();
    Number* __restrict total = buffers_.grad_kl.data();
    if (problem_.law == Law::kWeibull) {
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        gradient[head] += grad_kl[head] * (offset[head] - log_mean[head]);
        total[head] += grad_kl[head];
      }
    } else {
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        gradient[head] -= grad_kl[head] * (log_mean[head] - offset[head] - prior[head]) * scale[head] * scale[head];
      }
    }
  }

  void add_terms(const Number* __restrict grad_kl, const Number* __restrict log_mean, const Number* __restrict prior,
                 const Number* __restrict expected) {
    const Number* __restrict offset = problem_.term(kOffset);
    const Number* __restrict scale = problem_.term(kPriorScale);
    for (int64_t head = 0; head < heads(); ++head) {
      Number of_offset = prior[head], of_scale;
      if (problem_.law == Law::kWeibull) {
        of_scale = problem_.is_softmax_anchor ? rates_[head] * expected[head] : expected[head];
      } else {
        const Number distance = log_mean[head] - offset[head] - prior[head];
        of_offset = -distance * scale[head] * scale[head];
        of_scale = distance * distance * scale[head];
      }
      terms_[kOffset * heads() + head] += grad_kl[head] * of_offset;
      terms_[kConstant * heads() + head] += grad_kl[head];
      terms_[kPriorScale * heads() + head] += grad_kl[head] * of_scale;
    }
  }

  // Inlined: GCC deletes the call of a function that does nothing but ask for memory.
  PROBATTN_INLINE void fetch_ahead(int64_t edge) const {
    const int64_t later = std::min(edge + kAhead, last_ - 1);
    const int64_t position = position_of_[later];
    prefetch(given_.weights + position * heads(), heads());
    prefetch(result_.edges + position * heads(), heads());
    prefetch(given_.grad_context + int64_t(target_of_[later]) * heads() * dim(), heads() * dim());
    if (!differentiates_kl()) prefetch(field_of(later), num_fields_ * heads());
  }

  const Number* field_of(int64_t edge) const { return fields_ + int64_t(target_of_[edge]) * num_fields_ * heads(); }
  Number* of(std::vector<Number>& buffer, int64_t edge) { return buffer.data() + (edge - first_) * heads(); }

  const Problem<Number>& problem_;
  const BackwardGiven<Number>& given_;
  const BackwardResult<Number>& result_;
  BackwardBuffers<Number>& buffers_;
  const Number* fields_;
  const int64_t num_fields_;
  int64_t first_ = 0, last_ = 0;  // edges of the chunk, in the order of sources
  const int32_t* position_of_ = nullptr;
  const int32_t* target_of_ = nullptr;
  Number* rates_ = nullptr;
  Number* terms_ = nullptr;
};

}  // namespace probattn
