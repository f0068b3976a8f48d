// Graph attention, forward: noise, softmax over the edges of each target, context and exact KL in one pass.
#pragma once

#include "graph.h"

namespace probattn {

// What the forward pass writes. Weights are in the order of the edges grouped by target.
template <typename Number>
struct ForwardResult {
  Number* context;         // (N, H, D)
  Number* kl;              // (N, H)
  Number* weights;         // (E, H) before dropout
  Number* log_normaliser;  // (N, H) logsumexp of phi; softmax anchor with a KL alone
  Number* pull;            // (N, H) sum over edges of d KL / d log E[S]; the same
};

// Memory of one thread: (edges of a chunk, H), and (H) for the node at hand.
template <typename Number>
struct ForwardBuffers {
  std::vector<Number> phi, expected, keep;
  std::vector<Number> top, top_phi, scale, factor, pull;
  std::vector<float> uniform;
};

// kHeads and kDim are H and D where they are known when this is compiled, else 0.
template <typename Number, int kHeads, int kDim>
class ForwardChunk {
 public:
  ForwardChunk(const Problem<Number>& problem, const ForwardResult<Number>& result, ForwardBuffers<Number>& buffers,
               const int32_t* source_of, const int32_t* edge_of)
      : problem_(problem), result_(result), buffers_(buffers), source_of_(source_of), edge_of_(edge_of) {}

  void run(const int32_t* start, int64_t first_node, int64_t last_node) {
    first_ = start[first_node];
    last_ = start[last_node];
    prepare();
    for (int64_t node = first_node; node < last_node; ++node) {
      score(node, start[node], start[node + 1]);
      shift(node, start[node], start[node + 1]);
    }
    const int64_t total = (last_ - first_) * heads();
    exponentiate_shifted(weights_of(first_), total);
    if (needs_normaliser()) {
      exponentiate_shifted(buffers_.expected.data(), total);
    } else if (needs_expected()) {
      exponentiate(buffers_.expected.data(), total);
    }
    for (int64_t node = first_node; node < last_node; ++node) {
      normalise(node, start[node], start[node + 1]);
      read(node, start[node], start[node + 1]);
      if (problem_.has_kl) diverge(node, start[node], start[node + 1]);
    }
  }

 private:
  int64_t heads() const { return kHeads ? kHeads : problem_.heads; }
  int64_t dim() const { return kDim ? kDim : problem_.dim; }

  // exp(log E[S]) is part of the Gamma KL, and of the normaliser of the softmax anchor.
  bool needs_expected() const {
    return problem_.has_kl && (problem_.is_softmax_anchor || problem_.law == Law::kWeibull);
  }
  bool needs_normaliser() const { return problem_.has_kl && problem_.is_softmax_anchor; }

  void prepare() {
    const int64_t count = last_ - first_;
    const auto edge_of = [&](int64_t number) { return edge_of_[first_ + number]; };
    for (auto* one : {&buffers_.top, &buffers_.top_phi, &buffers_.scale, &buffers_.factor, &buffers_.pull}) {
      one->resize(heads());
    }
    buffers_.phi.resize(count * heads());
    if (needs_expected()) buffers_.expected.resize(count * heads());
    if (problem_.is_random) fill_noise(problem_, count, edge_of, weights_of(first_));
    if (problem_.dropout > 0.0) {
      buffers_.keep.resize(count * heads());
      fill_keep(problem_, count, edge_of, buffers_.uniform, buffers_.keep.data());
    }
  }

  // Scores of a node's edges, without and with noise, and their largest ones.
  void score(int64_t node, int64_t begin, int64_t end) {
    const Number* __restrict target = problem_.target_scores + node * heads();
    const Number* __restrict scale = problem_.term(kNoiseScale);
    const Number slope = problem_.negative_slope;  // a copy: what is written below could be the original
    Number* __restrict top = buffers_.top.data();
    Number* __restrict top_phi = buffers_.top_phi.data();
    std::fill_n(top, heads(), -std::numeric_limits<Number>::infinity());
    std::fill_n(top_phi, heads(), -std::numeric_limits<Number>::infinity());
    for (int64_t edge = begin; edge < end; ++edge) {
      const Number* __restrict source = problem_.source_scores + int64_t(source_of_[edge]) * heads();
      Number* __restrict phi = of(buffers_.phi, edge);
      prefetch(problem_.source_scores + ahead(edge) * heads(), heads());
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        phi[head] = leaky_relu(target[head] + source[head], slope);
        top_phi[head] = phi[head] > top_phi[head] ? phi[head] : top_phi[head];
      }
      if (!problem_.is_random) continue;
      Number* __restrict noisy = weights_of(edge);
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) {
        noisy[head] = phi[head] + scale[head] * noisy[head];
        top[head] = noisy[head] > top[head] ? noisy[head] : top[head];
      }
    }
  }

  // What is exponentiated next: noisy scores less their largest, and phi less its largest or phi + log beta.
  void shift(int64_t node, int64_t begin, int64_t end) {
    Number* __restrict top = buffers_.top.data();
    Number* __restrict top_phi = buffers_.top_phi.data();
    if (!problem_.is_random) std::copy_n(top_phi, heads(), top);
    if (needs_normaliser()) {
      std::copy_n(top_phi, heads(), result_.log_normaliser + node * heads());
    } else if (needs_expected()) {
      const Number* __restrict log_rate = problem_.term(kPriorScale);
      for (int64_t head = 0; head < heads(); ++head) top_phi[head] = -log_rate[head];
    }
    for (int64_t edge = begin; edge < end; ++edge) {
      const Number* __restrict phi = of(buffers_.phi, edge);
      Number* __restrict noisy = weights_of(edge);
      if (problem_.is_random) {
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) noisy[head] -= top[head];
      } else {
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) noisy[head] = phi[head] - top[head];
      }
      if (!needs_expected()) continue;
      Number* __restrict expected = of(buffers_.expected, edge);
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) expected[head] = phi[head] - top_phi[head];
    }
  }

  // The sums of the exponentials: `scale` makes weights of the noisy ones, `factor` beta E[S] of the others.
  void normalise(int64_t node, int64_t begin, int64_t end) {
    Number* __restrict scale = buffers_.scale.data();
    std::fill_n(scale, heads(), Number(0));
    for (int64_t edge = begin; edge < end; ++edge) {
      const Number* __restrict weights = weights_of(edge);
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) scale[head] += weights[head];
    }
#pragma omp simd
    for (int64_t head = 0; head < heads(); ++head) scale[head] = Number(1) / scale[head];
    if (!needs_expected()) return;
    Number* __restrict factor = buffers_.factor.data();
    std::fill_n(factor, heads(), Number(1));
    if (!needs_normaliser() || begin == end) return;
    std::fill_n(factor, heads(), Number(0));
    for (int64_t edge = begin; edge < end; ++edge) {
      const Number* __restrict expected = of(buffers_.expected, edge);
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) factor[head] += expected[head];
    }
    Number* __restrict log_normaliser = result_.log_normaliser + node * heads();
#pragma omp simd
    for (int64_t head = 0; head < heads(); ++head) {
      log_normaliser[head] += fast_log(factor[head]);
      factor[head] = Number(1) / factor[head];
    }
    if (problem_.law == Law::kLognormal) return;
    const Number* __restrict log_rate = problem_.term(kPriorScale);
#pragma omp simd
    for (int64_t head = 0; head < heads(); ++head) factor[head] *= fast_exp(log_rate[head]);
  }

  // context = sum over edges of weight * value.
  void read(int64_t node, int64_t begin, int64_t end) {
    const Number* __restrict scale = buffers_.scale.data();
    Number* __restrict context = result_.context + node * heads() * dim();
    std::fill_n(context, heads() * dim(), Number(0));
    for (int64_t edge = begin; edge < end; ++edge) {
      const Number* __restrict value = problem_.values + int64_t(source_of_[edge]) * heads() * dim();
      Number* __restrict weights = weights_of(edge);
      const Number* __restrict keep = problem_.dropout > 0.0 ? of(buffers_.keep, edge) : nullptr;
      prefetch(problem_.values + ahead(edge) * heads() * dim(), heads() * dim());
      if (problem_.has_kl) prefetch(problem_.prior + ahead(edge) * problem_.prior_stride, heads());
      if (problem_.log_gamma) prefetch(problem_.log_gamma + ahead(edge) * problem_.prior_stride, heads());
#pragma omp simd
      for (int64_t head = 0; head < heads(); ++head) weights[head] *= scale[head];
      for (int64_t head = 0; head < heads(); ++head) {
        const Number weight = keep ? weights[head] * keep[head] : weights[head];
#pragma omp simd
        for (int64_t feature = 0; feature < dim(); ++feature) {
          context[head * dim() + feature] += weight * value[head * dim() + feature];
        }
      }
    }
  }

  // Sum over edges of the KL, and of its derivative with respect to log E[S] where the anchor needs it.
  void diverge(int64_t node, int64_t begin, int64_t end) {
    Number* __restrict divergence = result_.kl + node * heads();
    Number* __restrict pull = needs_normaliser() ? result_.pull + node * heads() : buffers_.pull.data();
    const Number* __restrict normaliser = needs_normaliser() ? result_.log_normaliser + node * heads() : nullptr;
    const Number* __restrict offset = problem_.term(kOffset);
    const Number* __restrict constant = problem_.term(kConstant);
    Number* __restrict shifted = buffers_.top.data();  // offset + normaliser, so that phi stands for log E[S]
    std::fill_n(divergence, heads(), Number(0));
    std::fill_n(pull, heads(), Number(0));
    if (begin == end) return;
    for (int64_t head = 0; head < heads(); ++head) {
      shifted[head] = offset[head] + (normaliser ? normaliser[head] : Number(0));
    }
    for (int64_t edge = begin; edge < end; ++edge) {
      const Number* __restrict phi = of(buffers_.phi, edge);
      const int64_t row = int64_t(source_of_[edge]) * problem_.prior_stride;
      const Number* __restrict prior = problem_.prior + row;
      if (problem_.law == Law::kWeibull) {
        const Number* __restrict log_gamma = problem_.log_gamma + row;
        const Number* __restrict expected = of(buffers_.expected, edge);
        const Number* __restrict factor = buffers_.factor.data();
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) {
          const Number mean = factor[head] * expected[head];  // beta E[S]
          divergence[head] += prior[head] * (shifted[head] - phi[head]) + log_gamma[head] + mean + constant[head];
          pull[head] += mean - prior[head];
        }
      } else {
        const Number* __restrict inverse_scale = problem_.term(kPriorScale);
#pragma omp simd
        for (int64_t head = 0; head < heads(); ++head) {
          const Number distance = (phi[head] - shifted[head] - prior[head]) * inverse_scale[head];
          divergence[head] += Number(0.5) * distance * distance + constant[head];
          pull[head] += distance * inverse_scale[head];
        }
      }
    }
  }

  // The source of a later edge.
  int64_t ahead(int64_t edge) const { return source_of_[std::min(edge + kAhead, last_ - 1)]; }

  Number* of(std::vector<Number>& buffer, int64_t edge) { return buffer.data() + (edge - first_) * heads(); }
  Number* weights_of(int64_t edge) { return result_.weights + edge * heads(); }

  const Problem<Number>& problem_;
  const ForwardResult<Number>& result_;
  ForwardBuffers<Number>& buffers_;
  const int32_t* source_of_;
  const int32_t* edge_of_;
  int64_t first_ = 0, last_ = 0;  // edges of the chunk
};

}  // namespace probattn
