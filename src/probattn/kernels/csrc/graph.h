// The data of one graph attention call, and how its work is cut into chunks.
//
// Size letters: N target nodes, M source nodes, E edges, H heads, D features of a head.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "philox.h"
#include "vector_math.h"

namespace probattn {

enum class Law : int64_t { kWeibull = 0, kLognormal = 1 };

// Numbers of a chunk that stay in the processor's cache.
constexpr int64_t kChunkNumbers = 2048;
// How many edges ahead memory is asked for.
constexpr int64_t kAhead = 8;
// The stream of the dropout mask; stream 0 is the noise of the weights.
constexpr uint32_t kDropoutStream = 1;

// Edges grouped by a node: those of node i are start[i], ..., start[i + 1] - 1.
struct Groups {
  const int32_t* start;
  int64_t num_nodes;

  // Chunks hold whole nodes and depend on the graph alone, so that results do not depend on the number of threads.
  int64_t num_chunks(int64_t heads) const { return start[num_nodes] / edges_per_chunk(heads) + 1; }

  int64_t first_node(int64_t chunk, int64_t heads) const {
    const int64_t edge = chunk * edges_per_chunk(heads);
    if (edge > start[num_nodes]) return num_nodes;
    return std::lower_bound(start, start + num_nodes, static_cast<int32_t>(edge)) - start;
  }

  static int64_t edges_per_chunk(int64_t heads) { return std::max<int64_t>(32, kChunkNumbers / heads); }
};

// Calls work(chunk, first node, last node + 1) for all chunks, on all threads.
template <typename Work>
void for_each_chunk(const Groups& groups, int64_t heads, const Work& work) {
  at::parallel_for(0, groups.num_chunks(heads), 1, [&](int64_t begin, int64_t end) {
    const FlushToZero flush;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      work(chunk, groups.first_node(chunk, heads), groups.first_node(chunk + 1, heads));
    }
  });
}

// Rows of the terms, (kTerms, H): all that the law of the weights and the KL have per head.
//
// With m = log E[S] of an edge, its KL is
//   Weibull, Gamma: alpha (offset - m) + log Gamma(alpha) + exp(m + log beta) + constant
//   lognormal:      ((m - offset - mu) / sigma_p)^2 / 2 + constant
enum Term {
  kNoiseScale,  // 1/k or sigma
  kOffset,
  kConstant,
  kPriorScale,  // log beta or 1 / sigma_p
  kTerms
};

// What forward and backward pass read. Scores are (N, H) and (M, H), values (M, H, D).
template <typename Number>
struct Problem {
  int64_t heads, dim;
  Law law;
  bool is_random, has_kl, is_softmax_anchor;
  Number negative_slope;
  uint64_t seed, dropout_seed;
  double dropout;  // share of the weights that is set to zero
  const Number* target_scores;
  const Number* source_scores;
  const Number* values;
  const Number* terms;   // (kTerms, H)
  const Number* prior;      // (M, H) alpha or mu; one row may serve all sources
  const Number* log_gamma;  // log Gamma(alpha), in the shape of the prior; forward pass of Weibull weights alone
  int64_t prior_stride;     // from one source to the next; 0: one row for all

  const Number* term(Term row) const { return terms + row * heads; }
};

template <typename Number>
PROBATTN_INLINE Number leaky_relu(Number sum, Number negative_slope) {
  return sum > Number(0) ? sum : negative_slope * sum;
}

// Noise of `count` edges before it is scaled, (count, H); edge(r) is the number of the r-th edge in the caller's order.
template <typename Number, typename EdgeOf>
void fill_noise(const Problem<Number>& problem, int64_t count, const EdgeOf& edge_of, Number* out) {
  int64_t next = 0;
  const auto next_row = [&]() { return std::array<uint32_t, 3>{static_cast<uint32_t>(edge_of(next++)), 0u, 0u}; };
  fill_uniform(problem.seed, count, problem.heads, next_row, out);
  const int64_t total = count * problem.heads;
  if (problem.law == Law::kWeibull) {
    log_exponentials(out, total);
  } else {
#pragma omp simd
    for (int64_t number = 0; number < total; ++number) out[number] = normal_quantile(out[number]);
  }
}

// Factors of the weights of `count` edges, (count, H): zero for what is dropped, else 1 / (1 - dropout).
template <typename Number, typename EdgeOf>
void fill_keep(const Problem<Number>& problem, int64_t count, const EdgeOf& edge_of, std::vector<float>& numbers,
               Number* out) {
  const int64_t total = count * problem.heads;
  numbers.resize(total);
  int64_t next = 0;
  const auto next_row = [&]() {
    return std::array<uint32_t, 3>{static_cast<uint32_t>(edge_of(next++)), 0u, kDropoutStream * kParticlesPerStream};
  };
  fill_uniform(problem.dropout_seed, count, problem.heads, next_row, numbers.data());
  const auto share = static_cast<float>(problem.dropout);
  const auto factor = static_cast<Number>(1.0 / (1.0 - problem.dropout));
  for (int64_t number = 0; number < total; ++number) {
    out[number] = numbers[number] >= share ? factor : Number(0);
  }
}

template <typename Number>
void exponentiate(Number* numbers, int64_t total) {
#pragma omp simd
  for (int64_t number = 0; number < total; ++number) numbers[number] = fast_exp(numbers[number]);
}

// The same for numbers from which the largest was taken off.
template <typename Number>
void exponentiate_shifted(Number* numbers, int64_t total) {
#pragma omp simd
  for (int64_t number = 0; number < total; ++number) numbers[number] = exp_below_one(numbers[number]);
}

}  // namespace probattn
