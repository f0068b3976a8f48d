// Forward pass: a block of queries meets one block of keys after the other, with running sums (flash attention).
#pragma once

#include "attention_rows.h"

namespace probattn {

struct AttentionResult {
  float* context;         // (K, B, H, T, Dv)
  float* log_noisy;       // (K, B, H, T) logsumexp of the perturbed scores
  float* log_normaliser;  // (B, H, T) logsumexp of phi; null where nothing needs it
  float* kl;              // (B, H, T) or null
  float* pull;            // (B, H, T) the factor of softmax(phi) in d KL / d phi, or null
};

// A sum of exponentials whose largest exponent may still grow.
struct RunningSum {
  float shift = kNothing;
  double total = 0.0;

  // The factor for what was summed before, once the shift is at least `other`.
  float raise(float other) {
    if (!(other > shift)) return 1.0f;
    const float factor = total > 0.0 ? std::exp(shift - other) : 0.0f;
    shift = other;
    total *= factor;
    return factor;
  }
  float safe_shift() const { return shift > kNothing ? shift : 0.0f; }
  // NaN where a score is NaN or infinite.
  float log() const { return total == 0.0 ? kNothing : static_cast<float>(shift + std::log(total)); }
};

// The KL of one query: sums over tiles.
struct RunningPrior {
  float reference = 0.0f;
  double constant = 0.0, first = 0.0, second = 0.0, count = 0.0;

  void add(const PriorSums& sums) {
    constant += sums.constant;
    first += sums.first;
    second += sums.second;
    count += sums.count;
  }
  // log_anchor: logsumexp of phi under the softmax anchor, else zero.
  float kl(DensePrior prior, double log_anchor) const {
    if (count == 0.0) return 0.0f;
    const double anchor = log_anchor - reference;
    if (prior == DensePrior::kGamma) return static_cast<float>(constant - (second - first * anchor));
    const double squares = second - 2.0 * anchor * first + count * anchor * anchor;
    return static_cast<float>(constant + 0.5 * squares);
  }
  float pull(DensePrior prior, double log_anchor) const {
    if (count == 0.0) return 0.0f;
    if (prior == DensePrior::kGamma) return static_cast<float>(first);
    return static_cast<float>(count * (log_anchor - reference) - first);
  }
};

// The buffers of a thread, and the work on one block of queries.
class ForwardBlock {
 public:
  ForwardBlock(const AttentionProblem& problem, const AttentionResult& result, const Tiles& tiles)
      : problem_(problem),
        result_(result),
        tiles_(tiles),
        scores_(tiles.rows * tiles.padded()),
        weights_(problem.draws > 1 ? tiles.rows * tiles.padded() : 0),
        noise_(tiles.padded()),
        bias_(tiles.padded()),
        context_(problem.draws * tiles.rows * problem.value.width),
        query_(problem.query.buffer_size(tiles.rows)),
        key_(problem.key.buffer_size(tiles.columns)),
        value_(problem.value.buffer_size(tiles.columns)),
        noisy_(problem.draws * tiles.rows),
        clean_(tiles.rows),
        prior_(tiles.rows),
        constants_(tiles.columns + 1),
        first_(tiles.columns + 1) {}

  void run(int64_t batch, int64_t head, int64_t block) {
    batch_ = batch;
    head_ = head;
    is_open_ = problem_.is_open(batch, head);
    first_query_ = block * tiles_.rows;
    rows_ = std::min(tiles_.rows, problem_.queries - first_query_);
    std::fill(context_.begin(), context_.end(), 0.0f);
    std::fill(noisy_.begin(), noisy_.end(), RunningSum{});
    std::fill(clean_.begin(), clean_.end(), RunningSum{});
    std::fill(prior_.begin(), prior_.end(), RunningPrior{});
    const Matrix query = problem_.query.block(batch, head, first_query_, rows_, query_.data());
    const int64_t end = problem_.key_end(batch, head, first_query_ + rows_ - 1);
    for (first_key_ = 0; first_key_ < end; first_key_ += tiles_.columns) visit(query, std::min(tiles_.columns, end - first_key_));
    finish();
  }

 private:
  // One tile.
  void visit(const Matrix& query, int64_t columns) {
    const int64_t key_head = head_ / problem_.group(), stride = tiles_.padded();
    const Matrix key = problem_.key.block(batch_, key_head, first_key_, columns, key_.data());
    product(Op::kPlain, Op::kTransposed, rows_, columns, problem_.query.width, problem_.scale, query, key, 0.0f,
            scores_.data(), stride);
    sum_prior(columns);
    for (int64_t row = 0; row < rows_; ++row) look(row, columns);
    const Matrix value = problem_.value.block(batch_, key_head, first_key_, columns, value_.data());
    const int64_t width = problem_.value.width;
    for (int64_t draw = 0; draw < problem_.draws; ++draw) {
      float* weights = problem_.draws > 1 ? weights_.data() : scores_.data();
      float* context = context_.data() + draw * tiles_.rows * width;
      for (int64_t row = 0; row < rows_; ++row) weigh(draw, row, columns, weights + row * stride, context + row * width);
      product(Op::kPlain, Op::kPlain, rows_, width, columns, 1.0f, {weights, stride}, value, 1.0f, context, width);
    }
  }

  // Sums of what has no score in it, over the first keys of the tile.
  void sum_prior(int64_t columns) {
    if (problem_.prior == DensePrior::kNone || !is_open_) return;
    const int64_t place = (batch_ * problem_.heads + head_) * problem_.keys + first_key_;
    double constant = 0.0, weight = 0.0;
    for (int64_t column = 0; column < columns; ++column) {
      constants_[column + 1] = constant += problem_.constant[place + column];
      first_[column + 1] = weight += problem_.weight[place + column];
    }
  }

  // What does not depend on the draw: mask, largest phi, sums of the KL.
  void look(int64_t row, int64_t columns) {
    const int64_t query = first_query_ + row, seen = problem_.visible(query, first_key_, columns);
    float* scores = scores_.data() + row * tiles_.padded();
    if (!is_open_) {
      if (row == 0 || !problem_.mask.is_same_for_all_queries()) {
        problem_.mask.row(batch_, head_, query, first_key_, columns, bias_.data());
      }
      add_row(bias_.data(), seen, scores);
    }
    if (seen == 0 || problem_.prior == DensePrior::kNone) return;
    RunningPrior& prior = prior_[row];
    if (prior.count == 0.0 && problem_.is_softmax_anchor) {  // the other anchor is zero, and so is the best reference
      prior.reference = is_open_ ? scores[0] : std::max(largest(scores, seen), -1e30f);
    }
    const int64_t place = (batch_ * problem_.heads + head_) * problem_.keys + first_key_;
    const float* weight = problem_.weight + place;
    PriorSums sums;
    if (is_open_) {
      const auto work = problem_.prior == DensePrior::kGamma ? open_prior_sums<false> : open_prior_sums<true>;
      sums = work(scores, weight, prior.reference, seen);
      prior.constant += constants_[seen];
      if (problem_.prior == DensePrior::kGamma) prior.first += first_[seen];
    } else {
      const auto work = problem_.prior == DensePrior::kGamma ? masked_prior_sums<false> : masked_prior_sums<true>;
      sums = work(scores, weight, problem_.constant + place, prior.reference, seen);
    }
    prior.add(sums);
    clean_[row].raise(sums.largest);
  }

  // Weights of a draw, not normalised; what was read before is brought to the new shift.
  void weigh(int64_t draw, int64_t row, int64_t columns, float* weights, float* context) {
    const int64_t query = first_query_ + row, seen = problem_.visible(query, first_key_, columns);
    const int64_t lead = batch_ * problem_.heads + head_;
    const float* scores = scores_.data() + row * tiles_.padded();
    const float* numbers = scores;
    RunningSum& sum = noisy_[draw * tiles_.rows + row];
    float found;
    if (problem_.noise == DenseNoise::kNone) {
      found = largest(scores, seen);
    } else {
      noise_row(problem_, draw, lead, query, first_key_, seen, noise_.data());
      found = perturb_row(scores, problem_.sharpness, problem_.noise_scale[head_], seen, noise_.data());
      numbers = noise_.data();
    }
    const float factor = sum.raise(found);
    if (factor != 1.0f) {
      for (int64_t at = 0; at < problem_.value.width; ++at) context[at] *= factor;
    }
    if (draw == 0 && numbers != scores && problem_.prior != DensePrior::kNone) {
      RunningSum& clean = clean_[row];
      sum.total += exponentiate_both(
          numbers, sum.safe_shift(), scores, clean.safe_shift(), seen, weights, &clean.total);
    } else {
      sum.total += exponentiate_row(numbers, sum.safe_shift(), seen, weights);
    }
    if (problem_.dropout > 0.0f) {
      dropout_row(problem_, draw, lead, query, first_key_, seen, noise_.data());
      multiply_row(noise_.data(), seen, weights);
    }
    std::fill(weights + seen, weights + columns, 0.0f);
  }

  void finish() {
    const int64_t width = problem_.value.width, lead = batch_ * problem_.heads + head_;
    const int64_t all = problem_.batch * problem_.heads * problem_.queries;
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t unit = lead * problem_.queries + first_query_ + row;
      for (int64_t draw = 0; draw < problem_.draws; ++draw) {
        const RunningSum& sum = noisy_[draw * tiles_.rows + row];
        const float inverse = sum.total > 0.0 ? static_cast<float>(1.0 / sum.total) : 0.0f;
        const float* from = context_.data() + (draw * tiles_.rows + row) * width;
        float* to = result_.context + (draw * all + unit) * width;
        for (int64_t at = 0; at < width; ++at) to[at] = from[at] * inverse;
        result_.log_noisy[draw * all + unit] = sum.log();
      }
      if (!result_.log_normaliser) continue;
      const RunningSum& clean = problem_.noise == DenseNoise::kNone ? noisy_[row] : clean_[row];
      result_.log_normaliser[unit] = clean.log();
      if (!result_.kl) continue;
      const double anchor = problem_.is_softmax_anchor && clean.total > 0.0 ? clean.shift + std::log(clean.total) : 0.0;
      result_.kl[unit] = prior_[row].kl(problem_.prior, anchor);
      result_.pull[unit] = problem_.is_softmax_anchor ? prior_[row].pull(problem_.prior, anchor) : 0.0f;
    }
  }

  const AttentionProblem& problem_;
  const AttentionResult& result_;
  const Tiles tiles_;
  std::vector<float> scores_, weights_, noise_, bias_, context_, query_, key_, value_;
  std::vector<RunningSum> noisy_, clean_;
  std::vector<RunningPrior> prior_;
  std::vector<double> constants_, first_;  // sums over the first keys of a tile
  bool is_open_ = true;
  int64_t batch_ = 0, head_ = 0, first_query_ = 0, rows_ = 0, first_key_ = 0;
};

inline void run_attention(const AttentionProblem& problem, const AttentionResult& result) {
  const Tiles tiles(problem.queries, problem.keys, 128, 512);
  const int64_t blocks = (problem.queries + tiles.rows - 1) / tiles.rows;
  at::parallel_for(0, problem.batch * problem.heads * blocks, 1, [&](int64_t begin, int64_t end) {
    const FlushToZero flush;
    const SequentialProducts sequential;
    ForwardBlock work(problem, result, tiles);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t lead = task / blocks;
      work.run(lead / problem.heads, lead % problem.heads, task % blocks);
    }
  });
}

}  // namespace probattn
