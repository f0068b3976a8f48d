// Backward pass: a block of keys meets one block of queries after the other; scores and noise are made again.
#pragma once

#include "attention_rows.h"

namespace probattn {

struct AttentionGiven {
  Rows context, grad_context;   // (K * B, H, T, Dv)
  const float* log_noisy;       // (K, B, H, T)
  const float* log_normaliser;  // (B, H, T) or null
  const float* pull;            // (B, H, T) or null
  const float* grad_kl;         // (B, H, T) or null
  const float* grad_log;        // (B, H, T) gradient of log_normaliser, or null
};

struct AttentionGradients {
  // All zero at first.
  float* query;        // (B, H, T, D)
  float* key;          // (B, G, S, D)
  float* value;        // (B, G, S, Dv)
  float* weight;       // (B, H, S) or null
  float* constant;     // (B, H, S) or null
  float* noise_scale;  // (B, H) or null
};

// What a row of a tile needs to be differentiated.
struct RowOfAbove {
  float log_normaliser = kNothing;
  float kl = 0.0f;    // gradient of the KL
  float pull = 0.0f;  // factor of softmax(phi)
};

// Gradient of phi through KL and log_normaliser, and sums per key for the prior, where every key is visible.
template <bool is_lognormal>
void open_prior_row(
    const float* __restrict scores, const float* __restrict weight, const RowOfAbove& above, float anchor,
    int64_t count, float* __restrict gradient, float* __restrict of_weight) {
  const float from_kl = above.kl, pull = above.pull, log_normaliser = above.log_normaliser;
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) {
    const float score = scores[at] - anchor;
    const float share = exp_below_one(scores[at] - log_normaliser);
    const float slope = is_lognormal ? score - weight[at] : -weight[at];
    gradient[at] = from_kl * slope + pull * share;
    of_weight[at] -= from_kl * (is_lognormal ? slope : score);
  }
}

template <bool is_lognormal>
void masked_prior_row(
    const float* __restrict scores, const float* __restrict weight, const RowOfAbove& above, float anchor,
    int64_t count, float* __restrict gradient, float* __restrict of_weight, float* __restrict of_constant) {
  const float from_kl = above.kl, pull = above.pull, log_normaliser = above.log_normaliser;
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) {
    const bool is_seen = scores[at] > kNothing;
    const float score = is_seen ? scores[at] - anchor : 0.0f;
    const float share = exp_below_one(scores[at] - log_normaliser);
    const float slope = is_lognormal ? score - weight[at] : -weight[at];
    gradient[at] = is_seen ? from_kl * slope + pull * share : 0.0f;
    of_weight[at] -= is_seen ? from_kl * (is_lognormal ? slope : score) : 0.0f;
    of_constant[at] += is_seen ? from_kl : 0.0f;
  }
}

inline void pull_row(const float* __restrict scores, const RowOfAbove& above, int64_t count, float* __restrict gradient) {
  const float pull = above.pull, log_normaliser = above.log_normaliser;
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) gradient[at] = pull * exp_below_one(scores[at] - log_normaliser);
}

// One draw: weights from perturbed scores, and the gradient of phi through what was read.
//
// grad_weights: (count) d loss / d weight, without dropout's factor. factors: dropout's, or null.
inline void attention_row(
    const float* perturbed, float log_noisy, const float* grad_weights, const float* __restrict factors, float inner,
    float sharpness, const float* before, int64_t count, float* weights, float* gradient) {
  if (factors == nullptr) {
#pragma omp simd
    for (int64_t at = 0; at < count; ++at) {
      const float weight = exp_below_one(perturbed[at] - log_noisy);
      gradient[at] = before[at] + sharpness * weight * (grad_weights[at] - inner);
      weights[at] = weight;
    }
  } else {
#pragma omp simd
    for (int64_t at = 0; at < count; ++at) {
      const float weight = exp_below_one(perturbed[at] - log_noisy);
      gradient[at] = before[at] + sharpness * weight * (factors[at] * grad_weights[at] - inner);
      weights[at] = factors[at] * weight;
    }
  }
}

// The same where nothing came before: no KL.
inline void attention_row(
    const float* perturbed, float log_noisy, const float* grad_weights, float inner, float sharpness, int64_t count,
    float* weights, float* gradient) {
#pragma omp simd
  for (int64_t at = 0; at < count; ++at) {
    const float weight = exp_below_one(perturbed[at] - log_noisy);
    gradient[at] = sharpness * weight * (grad_weights[at] - inner);
    weights[at] = weight;
  }
}

// The buffers of a thread, and the work on one block of keys.
class BackwardBlock {
 public:
  BackwardBlock(
      const AttentionProblem& problem, const AttentionGiven& given, const AttentionGradients& result,
      const Tiles& tiles)
      : problem_(problem),
        given_(given),
        result_(result),
        tiles_(tiles),
        scores_(tiles.rows * tiles.padded()),
        grad_weights_(tiles.rows * tiles.padded()),
        weights_(is_shared() ? tiles.rows * tiles.padded() : 0),
        gradient_(is_shared() ? tiles.rows * tiles.padded() : 0),
        noise_(tiles.padded()),
        factors_(tiles.padded()),
        raw_noise_(tiles.padded()),
        before_(tiles.padded()),
        bias_(tiles.padded()),
        of_weight_(tiles.padded()),
        of_constant_(tiles.padded()),
        weight_totals_(tiles.padded()),
        constant_totals_(tiles.padded()),
        of_seen_(tiles.columns + 1),
        query_(problem.query.buffer_size(tiles.rows)),
        key_(problem.key.buffer_size(tiles.columns)),
        value_(problem.value.buffer_size(tiles.columns)),
        above_(given.grad_context.buffer_size(tiles.rows)),
        inner_(problem.draws * problem.group() * problem.queries),
        noise_totals_(problem.group()) {}

  void run(int64_t batch, int64_t key_head) {
    batch_ = batch;
    key_head_ = key_head;
    std::fill(noise_totals_.begin(), noise_totals_.end(), 0.0);
    for (int64_t member = 0; member < problem_.group(); ++member) find_inner(member);
    for (first_key_ = 0; first_key_ < problem_.keys; first_key_ += tiles_.columns) visit_keys();
    if (!result_.noise_scale) return;
    for (int64_t member = 0; member < problem_.group(); ++member) {
      result_.noise_scale[lead(member)] = static_cast<float>(noise_totals_[member]);
    }
  }

 private:
  bool is_shared() const { return problem_.draws > 1; }
  bool has_prior() const { return problem_.prior != DensePrior::kNone && given_.grad_kl != nullptr; }
  bool has_pull() const { return given_.log_normaliser != nullptr && (given_.grad_log != nullptr || has_prior()); }
  int64_t head(int64_t member) const { return key_head_ * problem_.group() + member; }
  int64_t lead(int64_t member) const { return batch_ * problem_.heads + head(member); }

  // sum_j weight_j d loss / d weight_j = context . d loss / d context, for every query.
  void find_inner(int64_t member) {
    const int64_t width = problem_.value.width;
    std::vector<float> buffers(2 * width);
    for (int64_t draw = 0; draw < problem_.draws; ++draw) {
      for (int64_t query = 0; query < problem_.queries; ++query) {
        const int64_t batch = draw * problem_.batch + batch_;
        const Matrix context = given_.context.block(batch, head(member), query, 1, buffers.data());
        const Matrix above = given_.grad_context.block(batch, head(member), query, 1, buffers.data() + width);
        float total = 0.0f;
#pragma omp simd reduction(+ : total)
        for (int64_t at = 0; at < width; ++at) total += context.data[at] * above.data[at];
        inner_[(draw * problem_.group() + member) * problem_.queries + query] = total;
      }
    }
  }

  void visit_keys() {
    const int64_t dim = problem_.key.width, width = problem_.value.width;
    float* grad_key = result_.key + ((batch_ * problem_.key_heads + key_head_) * problem_.keys + first_key_) * dim;
    float* grad_value = result_.value + ((batch_ * problem_.key_heads + key_head_) * problem_.keys + first_key_) * width;
    const int64_t count = std::min(tiles_.columns, problem_.keys - first_key_);
    const Matrix key = problem_.key.block(batch_, key_head_, first_key_, count, key_.data());
    const Matrix value = problem_.value.block(batch_, key_head_, first_key_, count, value_.data());
    for (member_ = 0; member_ < problem_.group(); ++member_) {
      std::fill(weight_totals_.begin(), weight_totals_.end(), 0.0);
      std::fill(constant_totals_.begin(), constant_totals_.end(), 0.0);
      std::fill(of_seen_.begin(), of_seen_.end(), 0.0);
      is_open_ = problem_.is_open(batch_, head(member_));
      const int64_t last = problem_.mask.last_key(batch_, head(member_), problem_.keys);
      columns_ = std::clamp<int64_t>(last - first_key_, 0, count);
      const int64_t first = problem_.is_causal ? first_key_ / tiles_.rows * tiles_.rows : 0;
      for (first_query_ = first; columns_ > 0 && first_query_ < problem_.queries; first_query_ += tiles_.rows) {
        rows_ = std::min(tiles_.rows, problem_.queries - first_query_);
        visit(key, value, grad_key, grad_value);
      }
      keep_prior();
    }
  }

  // One tile.
  void visit(const Matrix& key, const Matrix& value, float* grad_key, float* grad_value) {
    const int64_t stride = tiles_.padded(), dim = problem_.query.width, width = problem_.value.width;
    const Matrix query = problem_.query.block(batch_, head(member_), first_query_, rows_, query_.data());
    product(Op::kPlain, Op::kTransposed, rows_, columns_, dim, problem_.scale, query, key, 0.0f, scores_.data(), stride);
    float* weights = is_shared() ? weights_.data() : scores_.data();
    float* gradient = is_shared() ? gradient_.data() : grad_weights_.data();
    std::fill(of_weight_.begin(), of_weight_.end(), 0.0f);
    std::fill(of_constant_.begin(), of_constant_.end(), 0.0f);
    for (int64_t draw = 0; draw < problem_.draws; ++draw) {
      const Matrix above = given_.grad_context.block(
          draw * problem_.batch + batch_, head(member_), first_query_, rows_, above_.data());
      product(Op::kPlain, Op::kTransposed, rows_, columns_, width, 1.0f, above, value, 0.0f, grad_weights_.data(), stride);
      for (int64_t row = 0; row < rows_; ++row) {
        if (draw == 0) look(row);
        differentiate(draw, row, weights + row * stride, gradient + row * stride);
      }
      product(Op::kTransposed, Op::kPlain, columns_, width, rows_, 1.0f, {weights, stride}, above, 1.0f, grad_value, width);
    }
    for (int64_t column = 0; column < columns_; ++column) {
      weight_totals_[column] += of_weight_[column];
      constant_totals_[column] += of_constant_[column];
    }
    const Matrix slopes{gradient, stride};
    product(Op::kTransposed, Op::kPlain, columns_, dim, rows_, problem_.scale, slopes, query, 1.0f, grad_key, dim);
    float* grad_query = result_.query + (lead(member_) * problem_.queries + first_query_) * dim;
    product(Op::kPlain, Op::kPlain, rows_, dim, columns_, problem_.scale, slopes, key, 1.0f, grad_query, dim);
  }

  // What does not depend on the draw: the mask, and the gradient through KL and log_normaliser.
  void look(int64_t row) {
    const int64_t query = first_query_ + row, seen = problem_.visible(query, first_key_, columns_);
    float* scores = scores_.data() + row * tiles_.padded();
    if (!is_open_) {
      if (row == 0 || !problem_.mask.is_same_for_all_queries()) {
        problem_.mask.row(batch_, head(member_), query, first_key_, columns_, bias_.data());
      }
      add_row(bias_.data(), seen, scores);
    }
    float* before = is_shared() ? gradient_.data() + row * tiles_.padded() : before_.data();
    const int64_t unit = lead(member_) * problem_.queries + query;
    RowOfAbove above;
    if (has_pull()) above.log_normaliser = given_.log_normaliser[unit];
    if (!(above.log_normaliser > kNothing)) {  // an empty row, or nothing from above
      if (is_shared() || has_pull()) std::fill(before, before + columns_, 0.0f);
      return;
    }
    if (given_.grad_log) above.pull = given_.grad_log[unit];
    if (!has_prior()) {
      pull_row(scores, above, seen, before);
      return;
    }
    above.kl = given_.grad_kl[unit];
    above.pull += above.kl * given_.pull[unit];
    const float anchor = problem_.is_softmax_anchor ? above.log_normaliser : 0.0f;
    const float* weight = problem_.weight + lead(member_) * problem_.keys + first_key_;
    const bool is_gamma = problem_.prior == DensePrior::kGamma;
    if (is_open_) {
      const auto work = is_gamma ? open_prior_row<false> : open_prior_row<true>;
      work(scores, weight, above, anchor, seen, before, of_weight_.data());
      of_seen_[seen] += above.kl;
    } else {
      const auto work = is_gamma ? masked_prior_row<false> : masked_prior_row<true>;
      work(scores, weight, above, anchor, seen, before, of_weight_.data(), of_constant_.data());
    }
  }

  void differentiate(int64_t draw, int64_t row, float* weights, float* gradient) {
    const int64_t query = first_query_ + row, seen = problem_.visible(query, first_key_, columns_);
    const int64_t unit = draw * problem_.batch * problem_.heads * problem_.queries + lead(member_) * problem_.queries + query;
    const float log_noisy = given_.log_noisy[unit];
    const float inner = inner_[(draw * problem_.group() + member_) * problem_.queries + query];
    const float* scores = scores_.data() + row * tiles_.padded();
    const float* grad_weights = grad_weights_.data() + row * tiles_.padded();
    if (!(log_noisy > kNothing)) {
      std::fill(weights, weights + columns_, 0.0f);
      if (!is_shared()) std::fill(gradient, gradient + columns_, 0.0f);
      return;
    }
    const float* perturbed = scores;
    float sharpness = 1.0f;
    if (problem_.noise != DenseNoise::kNone) {
      sharpness = problem_.sharpness;
      noise_row(problem_, draw, lead(member_), query, first_key_, seen, noise_.data());
      if (result_.noise_scale) std::copy(noise_.data(), noise_.data() + seen, raw_noise_.data());
      perturb_row(scores, sharpness, problem_.noise_scale[head(member_)], seen, noise_.data());
      perturbed = noise_.data();
    }
    const float* factors = nullptr;
    if (problem_.dropout > 0.0f) {
      dropout_row(problem_, draw, lead(member_), query, first_key_, seen, factors_.data());
      factors = factors_.data();
    }
    if (result_.noise_scale) add_to_noise(perturbed, log_noisy, grad_weights, factors, inner, seen);
    if (!is_shared() && !has_pull() && factors == nullptr) {
      attention_row(perturbed, log_noisy, grad_weights, inner, sharpness, seen, weights, gradient);
    } else {
      if (!is_shared() && !has_pull()) std::fill(before_.begin(), before_.end(), 0.0f);
      const float* before = is_shared() ? gradient : before_.data();
      attention_row(perturbed, log_noisy, grad_weights, factors, inner, sharpness, before, seen, weights, gradient);
    }
    std::fill(weights + seen, weights + columns_, 0.0f);
    std::fill(gradient + seen, gradient + columns_, 0.0f);
  }

  void add_to_noise(
      const float* __restrict perturbed, float log_noisy, const float* __restrict grad_weights,
      const float* __restrict factors, float inner, int64_t count) {
    const float* __restrict noise = raw_noise_.data();
    float total = 0.0f;
    for (int64_t at = 0; at < count; ++at) {
      const float factor = factors == nullptr ? 1.0f : factors[at];
      total += exp_below_one(perturbed[at] - log_noisy) * (factor * grad_weights[at] - inner) * noise[at];
    }
    noise_totals_[member_] += total;
  }

  void keep_prior() {
    if (!result_.weight) return;
    const int64_t place = lead(member_) * problem_.keys + first_key_;
    double above = 0.0;  // a key gets the gradients of all rows that see it
    for (int64_t column = columns_ - 1; column >= 0; --column) {
      above += of_seen_[column + 1];
      constant_totals_[column] += above;
      result_.weight[place + column] = static_cast<float>(weight_totals_[column]);
      result_.constant[place + column] = static_cast<float>(constant_totals_[column]);
    }
  }

  const AttentionProblem& problem_;
  const AttentionGiven& given_;
  const AttentionGradients& result_;
  const Tiles tiles_;
  std::vector<float> scores_, grad_weights_, weights_, gradient_, noise_, factors_, raw_noise_, before_, bias_;
  std::vector<float> of_weight_, of_constant_;
  std::vector<double> weight_totals_, constant_totals_;
  std::vector<double> of_seen_;  // gradients of the KL of rows that see so many keys of the tile
  std::vector<float> query_, key_, value_, above_, inner_;
  std::vector<double> noise_totals_;
  bool is_open_ = true;
  int64_t batch_ = 0, key_head_ = 0, member_ = 0, first_query_ = 0, rows_ = 0, first_key_ = 0, columns_ = 0;
};

inline void run_attention_backward(
    const AttentionProblem& problem, const AttentionGiven& given, const AttentionGradients& result) {
  const Tiles tiles(problem.queries, problem.keys, 128, 256);
  at::parallel_for(0, problem.batch * problem.key_heads, 1, [&](int64_t begin, int64_t end) {
    const FlushToZero flush;
    const SequentialProducts sequential;
    BackwardBlock work(problem, given, result, tiles);
    for (int64_t task = begin; task < end; ++task) work.run(task / problem.key_heads, task % problem.key_heads);
  });
}

}  // namespace probattn
