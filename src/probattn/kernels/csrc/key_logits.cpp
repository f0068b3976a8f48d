// The network of a contextual prior, one small one for each head: logit = out . relu(weight^T key + bias).
//
// Its hidden layer is as large as the keys, so the backward pass makes it again. Blocks of nodes are transposed, so that
// every loop runs over nodes.
//
// Size letters: N nodes, H heads, D features of a key, M hidden features.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "vector_math.h"

namespace probattn {
namespace {

using at::Tensor;

constexpr int64_t kBlock = 64;
// Blocks whose sums are added up by one thread: the order of additions must not depend on the number of threads.
constexpr int64_t kBlocksPerPart = 16;

template <typename Number>
struct KeyNetwork {
  const Number* keys;    // (N, H, D)
  const Number* weight;  // (H, D, M)
  const Number* bias;    // (H, M)
  const Number* out;     // (H, M)
  int64_t nodes, heads, dim, hidden;
};

template <typename Number>
KeyNetwork<Number> network_of(const Tensor& keys, const Tensor& weight, const Tensor& bias, const Tensor& out) {
  return {keys.const_data_ptr<Number>(), weight.const_data_ptr<Number>(), bias.const_data_ptr<Number>(),
          out.const_data_ptr<Number>(), keys.size(0), keys.size(1), keys.size(2), weight.size(2)};
}

// One block of nodes, node by node in the last place.
template <typename Number>
class Block {
 public:
  explicit Block(const KeyNetwork<Number>& network)
      : network_(network), keys_(network.heads * network.dim * kBlock), hidden_(network.hidden * kBlock) {}

  void load(int64_t first) {
    first_ = first;
    count_ = std::min(kBlock, network_.nodes - first);
    const int64_t width = network_.heads * network_.dim;
    for (int64_t node = 0; node < count_; ++node) {
      const Number* row = network_.keys + (first + node) * width;
      for (int64_t at = 0; at < width; ++at) keys_[at * kBlock + node] = row[at];
    }
  }

  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  const Number* key(int64_t head, int64_t feature) const {
    return keys_.data() + (head * network_.dim + feature) * kBlock;
  }
  Number* hidden(int64_t unit) { return hidden_.data() + unit * kBlock; }

  // The hidden layer of a head, after the ReLU.
  void make_hidden(int64_t head) {
    for (int64_t unit = 0; unit < network_.hidden; ++unit) {
      Number* __restrict values = hidden(unit);
      std::fill_n(values, kBlock, network_.bias[head * network_.hidden + unit]);
      for (int64_t feature = 0; feature < network_.dim; ++feature) {
        const Number factor = network_.weight[(head * network_.dim + feature) * network_.hidden + unit];
        const Number* __restrict numbers = key(head, feature);
#pragma omp simd
        for (int64_t node = 0; node < kBlock; ++node) values[node] += factor * numbers[node];
      }
#pragma omp simd
      for (int64_t node = 0; node < kBlock; ++node) values[node] = values[node] > Number(0) ? values[node] : Number(0);
    }
  }

 private:
  const KeyNetwork<Number>& network_;
  std::vector<Number> keys_, hidden_;
  int64_t first_ = 0, count_ = 0;
};

template <typename Number>
void run_logits(const KeyNetwork<Number>& network, Number* logits) {
  const int64_t blocks = (network.nodes + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, kBlocksPerPart, [&](int64_t begin, int64_t end) {
    const FlushToZero flush;
    Block<Number> block(network);
    Number sums[kBlock];
    for (int64_t number = begin; number < end; ++number) {
      block.load(number * kBlock);
      for (int64_t head = 0; head < network.heads; ++head) {
        block.make_hidden(head);
        std::fill_n(sums, kBlock, Number(0));
        for (int64_t unit = 0; unit < network.hidden; ++unit) {
          const Number factor = network.out[head * network.hidden + unit];
          const Number* __restrict values = block.hidden(unit);
#pragma omp simd
          for (int64_t node = 0; node < kBlock; ++node) sums[node] += factor * values[node];
        }
        for (int64_t node = 0; node < block.count(); ++node) {
          logits[(block.first() + node) * network.heads + head] = sums[node];
        }
      }
    }
  });
}

// Sums over the nodes of a part, as (H * M * (D + 2)) numbers: weight, bias, out.
template <typename Number>
struct PartOfGradients {
  Number *weight, *bias, *out;

  PartOfGradients(Number* data, const KeyNetwork<Number>& network)
      : weight(data),
        bias(data + network.heads * network.dim * network.hidden),
        out(bias + network.heads * network.hidden) {}
};

template <typename Number>
Number product_sum(const Number* __restrict first, const Number* __restrict second) {
  Number total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t node = 0; node < kBlock; ++node) total += first[node] * second[node];
  return total;
}

// Adds one block and one head; `above` are the gradients of its logits, zero behind the last node.
template <typename Number>
void differentiate(
    const KeyNetwork<Number>& network, Block<Number>& block, int64_t head, const Number* __restrict above,
    PartOfGradients<Number>& part, Number* __restrict grad_keys) {
  block.make_hidden(head);
  std::fill_n(grad_keys, network.dim * kBlock, Number(0));
  Number slope[kBlock];
  for (int64_t unit = 0; unit < network.hidden; ++unit) {
    const int64_t place = head * network.hidden + unit;
    const Number* __restrict values = block.hidden(unit);
    const Number factor = network.out[place];
    part.out[place] += product_sum(above, values);
    Number total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t node = 0; node < kBlock; ++node) {
      slope[node] = values[node] > Number(0) ? factor * above[node] : Number(0);
      total += slope[node];
    }
    part.bias[place] += total;
    for (int64_t feature = 0; feature < network.dim; ++feature) {
      const int64_t at = (head * network.dim + feature) * network.hidden + unit;
      const Number weight = network.weight[at];
      const Number* __restrict key = block.key(head, feature);
      Number* __restrict gradient = grad_keys + feature * kBlock;
      part.weight[at] += product_sum(slope, key);
#pragma omp simd
      for (int64_t node = 0; node < kBlock; ++node) gradient[node] += weight * slope[node];
    }
  }
}

template <typename Number>
void run_backward(const KeyNetwork<Number>& network, const Number* above, Number* grad_keys, Number* parts) {
  const int64_t blocks = (network.nodes + kBlock - 1) / kBlock, width = network.heads * network.dim;
  const int64_t num_parts = (blocks + kBlocksPerPart - 1) / kBlocksPerPart;
  const int64_t size = network.heads * network.hidden * (network.dim + 2);
  at::parallel_for(0, num_parts, 1, [&](int64_t begin, int64_t end) {
    const FlushToZero flush;
    Block<Number> block(network);
    std::vector<Number> gradient(network.dim * kBlock);
    Number column[kBlock];
    for (int64_t number = begin; number < end; ++number) {
      PartOfGradients<Number> part(parts + number * size, network);
      const int64_t last = std::min(blocks, (number + 1) * kBlocksPerPart);
      for (int64_t at = number * kBlocksPerPart; at < last; ++at) {
        block.load(at * kBlock);
        for (int64_t head = 0; head < network.heads; ++head) {
          std::fill_n(column, kBlock, Number(0));
          for (int64_t node = 0; node < block.count(); ++node) {
            column[node] = above[(block.first() + node) * network.heads + head];
          }
          differentiate(network, block, head, column, part, gradient.data());
          for (int64_t node = 0; node < block.count(); ++node) {
            Number* row = grad_keys + (block.first() + node) * width + head * network.dim;
            for (int64_t feature = 0; feature < network.dim; ++feature) row[feature] = gradient[feature * kBlock + node];
          }
        }
      }
    }
  });
}

template <typename Work>
void with_number(const Tensor& like, const Work& work) {
  TORCH_CHECK(like.scalar_type() == at::kFloat || like.scalar_type() == at::kDouble, "expected float32 or float64, got ",
              like.scalar_type());
  like.scalar_type() == at::kFloat ? work(float()) : work(double());
}

Tensor key_logits(const Tensor& keys, const Tensor& weight, const Tensor& bias, const Tensor& out) {
  const Tensor logits = at::empty({keys.size(0), keys.size(1)}, keys.options());
  with_number(keys, [&](auto zero) {
    using Number = decltype(zero);
    run_logits(network_of<Number>(keys, weight, bias, out), logits.mutable_data_ptr<Number>());
  });
  return logits;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> key_logits_backward(
    const Tensor& keys, const Tensor& weight, const Tensor& bias, const Tensor& out, const Tensor& above) {
  const int64_t heads = keys.size(1), dim = keys.size(2), hidden = weight.size(2);
  const int64_t parts = (keys.size(0) + kBlock * kBlocksPerPart - 1) / (kBlock * kBlocksPerPart);
  const Tensor grad_keys = at::empty_like(keys);
  const Tensor sums = at::zeros({parts, heads * hidden * (dim + 2)}, keys.options());
  with_number(keys, [&](auto zero) {
    using Number = decltype(zero);
    run_backward(network_of<Number>(keys, weight, bias, out), above.const_data_ptr<Number>(),
                 grad_keys.mutable_data_ptr<Number>(), sums.mutable_data_ptr<Number>());
  });
  const Tensor total = sums.sum(0);
  const int64_t of_weight = heads * dim * hidden, of_bias = heads * hidden;
  return {grad_keys, total.narrow(0, 0, of_weight).view(weight.sizes()),
          total.narrow(0, of_weight, of_bias).view(bias.sizes()),
          total.narrow(0, of_weight + of_bias, of_bias).view(out.sizes())};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(probattn_native, library) {
  library.def("key_logits(Tensor keys, Tensor weight, Tensor bias, Tensor out) -> Tensor");
  library.def(
      "key_logits_backward(Tensor keys, Tensor weight, Tensor bias, Tensor out, Tensor above) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(probattn_native, CPU, library) {
  library.impl("key_logits", key_logits);
  library.impl("key_logits_backward", key_logits_backward);
}

}  // namespace probattn
