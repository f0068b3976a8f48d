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

// Memory of one thread: (edges of a chunk, H), and (H) for the node and edge at hand.
template <typename Number>
struct BackwardBuffers {
  std::vector<Number> keep, noise;
  std::vector<Number> dot, log_mean, expected, rate, grad_kl;
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
    for (int64_t edge = start[node]; edge < start[node + 1]; ++edge) {
      for (int64_t head = 0; head < heads; ++head) {
        field[kRowDot * heads + head] += given.grad_weights[edge * heads + head] * given.weights[edge * heads + head];
      }
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
    prepare(edge_of);
    for (int64_t node = first_node; node < last_node; ++node) {
      differentiate(node, start[node], start[node + 1]);
      if (result_.prior && problem_.law == Law::kWeibull) finish_gamma_prior(node);
    }
  }

 private:
  int64_t heads() const { return kHeads ? kHeads : problem_.heads; }
  int64_t dim() const { return kDim ? kDim : problem_.dim; }
  bool has_kl() const { return problem_.has_kl && given_.grad_kl; }

  void prepare(const int32_t* edge_of) {
    const int64_t count = last_ - first_;
    const auto edge = [&](int64_t number) { return edge_of[position_of_[first_ + number]]; };
    for (auto* one : {&buffers_.dot, &buffers_.log_mean, &buffers_.expected, &buffers_.rate, &buffers_.grad_kl}) {
      one->resize(heads());
    }
    if (has_kl() && problem_.law == Law::kWeibull) {
      for (int64_t head = 0; head < heads(); ++head) buffers_.rate[head] = fast_exp(problem_.term(kPriorScale)[head]);
    }
    if (problem_.dropout > 0.0) {
      buffers_.keep.resize(count * heads());
      fill_keep(problem_, count, edge, buffers_.uniform, buffers_.keep.data());
    }
    if (terms_) std::fill_n(terms_, kTerms * heads(), Number(0));
    if (terms_ && problem_.is_random) {
      buffers_.noise.resize(count * heads());
      fill_noise(problem_, count, edge, buffers_.noise.data());
    }
  }

  void differentiate(int64_t node, int64_t begin, int64_t end) {
    const Number* __restrict source = problem_.source_scores + node * heads();
    const Number* __restrict dot = buffers_.dot.data();
    const Number slope = problem_.negative_slope;  // a copy: what is written below could be the original
    Number* __restrict grad_source = result_.source_scores + node * heads();
    std::fill_n(grad_source, heads(), Number(0));
    std::fill_n(result_.values + node * heads() * dim(), heads() * dim(), Number(0));
    if (result_.prior) std::fill_n(result_.prior + node * heads(), heads(), Number(0));
    std::fill_n(buffers_.grad_kl.data(), heads(), Number(0));
    for (int64_t edge = begin; edge < end; ++edge) {
      const int64_t position = position_of_[edge];
      const Number* __restrict field = field_of(edge);
      const Number* __restrict weights = given_.weights + position * heads();
      Number* __restrict grad_edge = result_.edges + position * heads();
      fetch_ahead(edge);
      read(node, edge);
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        grad_edge[head] = weights[head] * (dot[head] - field[kRowDot * heads() + head]);
      }
      if (terms_ && problem_.is_random) add_noise_scale(edge, grad_edge);
      if (has_kl()) add_divergence(node, field, grad_edge);
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        grad_edge[head] *= field[kScore * heads() + head] + source[head] > Number(0) ? Number(1) : slope;
        grad_source[head] += grad_edge[head];
      }
    }
  }

  // d loss / d weight of an edge, and its part of the gradient of the value.
  PROBATTN_INLINE void read(int64_t node, int64_t edge) {
    const int64_t position = position_of_[edge];
    const Number* __restrict value = problem_.values + node * heads() * dim();
    const Number* __restrict weights = given_.weights + position * heads();
    const Number* __restrict grad_context = given_.grad_context + int64_t(target_of_[edge]) * heads() * dim();
    const Number* __restrict keep = problem_.dropout > 0.0 ? of(buffers_.keep, edge) : nullptr;
    Number* __restrict grad_value = result_.values + node * heads() * dim();
    Number* __restrict dot = buffers_.dot.data();
    for (int64_t head = 0; head < heads(); ++head) {
      const Number kept = keep ? weights[head] * keep[head] : weights[head];
      Number sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t feature = 0; feature < dim(); ++feature) {
        const int64_t at = head * dim() + feature;
        sum += grad_context[at] * value[at];
        grad_value[at] += kept * grad_context[at];
      }
      dot[head] = keep ? sum * keep[head] : sum;
    }
    if (!given_.grad_weights) return;
    const Number* __restrict grad_weights = given_.grad_weights + position * heads();
#pragma omp simd
    for (int64_t head = 0; head < heads(); ++head) dot[head] += grad_weights[head];
  }

  // Adds d KL / d phi to an edge's gradient, and the gradients of prior and terms to theirs.
  PROBATTN_INLINE void add_divergence(int64_t node, const Number* __restrict field, Number* __restrict grad_edge) {
    const Number* __restrict source = problem_.source_scores + node * heads();
    const Number* __restrict prior = problem_.prior + node * problem_.prior_stride;
    const Number* __restrict grad_kl = field + kGradKl * heads();
    const Number slope = problem_.negative_slope;
    Number* __restrict log_mean = buffers_.log_mean.data();
#pragma omp simd
    for (int64_t head = 0; head < heads(); ++head) {
      log_mean[head] = leaky_relu(field[kScore * heads() + head] + source[head], slope);
    }
    if (problem_.is_softmax_anchor) {
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) log_mean[head] -= field[kNormaliser * heads() + head];
    }
    if (problem_.law == Law::kWeibull) {
      add_gamma(prior, field, grad_edge);
    } else {
      add_lognormal(prior, field, grad_edge);
    }
    if (result_.prior) add_prior(node, prior, grad_kl);
    if (terms_) add_terms(prior, grad_kl);
  }

  PROBATTN_INLINE void add_gamma(const Number* __restrict prior, const Number* __restrict field,
                                 Number* __restrict grad_edge) {
    const Number* __restrict grad_kl = field + kGradKl * heads();
    const Number* __restrict log_mean = buffers_.log_mean.data();
    const Number* __restrict log_rate = problem_.term(kPriorScale);
    Number* __restrict expected = buffers_.expected.data();  // beta E[S]
    if (problem_.is_softmax_anchor) {
      const Number* __restrict rate = buffers_.rate.data();
      const Number* __restrict pull = field + kPull * heads();
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        const Number mean = exp_below_one(log_mean[head]);
        expected[head] = rate[head] * mean;
        grad_edge[head] += grad_kl[head] * (expected[head] - prior[head] - mean * pull[head]);
      }
    } else {
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        expected[head] = fast_exp(log_mean[head] + log_rate[head]);
        grad_edge[head] += grad_kl[head] * (expected[head] - prior[head]);
      }
    }
  }

  PROBATTN_INLINE void add_lognormal(const Number* __restrict prior, const Number* __restrict field,
                                     Number* __restrict grad_edge) {
    const Number* __restrict grad_kl = field + kGradKl * heads();
    const Number* __restrict log_mean = buffers_.log_mean.data();
    const Number* __restrict offset = problem_.term(kOffset);
    const Number* __restrict scale = problem_.term(kPriorScale);
#pragma omp simd
    for (int64_t head = 0; head < heads(); ++head) {
      const Number distance = (log_mean[head] - offset[head] - prior[head]) * scale[head];
      grad_edge[head] += grad_kl[head] * distance * scale[head];
    }
    if (!problem_.is_softmax_anchor) return;
    const Number* __restrict pull = field + kPull * heads();
#pragma omp simd
    for (int64_t head = 0; head < heads(); ++head) {
      grad_edge[head] -= grad_kl[head] * exp_below_one(log_mean[head]) * pull[head];
    }
  }

  PROBATTN_INLINE void add_prior(int64_t node, const Number* __restrict prior, const Number* __restrict grad_kl) {
    const Number* __restrict log_mean = buffers_.log_mean.data();
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
        const Number distance = (log_mean[head] - offset[head] - prior[head]) * scale[head];
        gradient[head] -= grad_kl[head] * distance * scale[head];
      }
    }
  }

  // The part of d KL / d alpha that is the same for all edges of a source.
  void finish_gamma_prior(int64_t node) {
    const Number* __restrict prior = problem_.prior + node * problem_.prior_stride;
    const Number* __restrict total = buffers_.grad_kl.data();
    Number* __restrict gradient = result_.prior + node * heads();
#pragma omp simd
    for (int64_t head = 0; head < heads(); ++head) gradient[head] += total[head] * digamma(prior[head]);
  }

  void add_noise_scale(int64_t edge, const Number* __restrict grad_edge) {
    const Number* __restrict noise = of(buffers_.noise, edge);
    Number* __restrict gradient = terms_ + kNoiseScale * heads();
    for (int64_t head = 0; head < heads(); ++head) gradient[head] += grad_edge[head] * noise[head];
  }

  void add_terms(const Number* __restrict prior, const Number* __restrict grad_kl) {
    const Number* __restrict log_mean = buffers_.log_mean.data();
    const Number* __restrict offset = problem_.term(kOffset);
    const Number* __restrict scale = problem_.term(kPriorScale);
    for (int64_t head = 0; head < heads(); ++head) {
      Number of_offset = prior[head], of_scale = buffers_.expected[head];
      if (problem_.law == Law::kLognormal) {
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
    prefetch(field_of(later), num_fields_ * heads());
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
  Number* terms_ = nullptr;
};

}  // namespace probattn
