// Uniform counter-based noise: the native form of `uniform` in probattn/core/noise.py, bit for bit.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <array>

#include "philox.h"

namespace probattn {
namespace {

constexpr int64_t kNumbersPerTask = 32768;

template <typename Number>
void fill(
    uint64_t seed, const std::array<int64_t, 4>& sizes, uint32_t first_row, uint32_t first_particle, Number* out) {
  const int64_t lead = sizes[1], rows = sizes[2], columns = sizes[3];
  const int64_t grain = std::max<int64_t>(1, kNumbersPerTask / std::max<int64_t>(1, columns));
  at::parallel_for(0, sizes[0] * lead * rows, grain, [&](int64_t begin, int64_t end) {
    int64_t row = begin % rows, lead_number = begin / rows % lead, particle = begin / (rows * lead);
    const auto next_row = [&]() {
      const std::array<uint32_t, 3> words{
          first_row + static_cast<uint32_t>(row), static_cast<uint32_t>(lead_number),
          first_particle + static_cast<uint32_t>(particle)};
      if (++row == rows) {
        row = 0;
        if (++lead_number == lead) {
          lead_number = 0;
          ++particle;
        }
      }
      return words;
    };
    fill_uniform(seed, end - begin, columns, next_row, out + begin * columns);
  });
}

// sizes: K particles, L lead, I rows, J columns.
at::Tensor uniform(
    const at::Tensor& seed, at::IntArrayRef sizes, int64_t stream, int64_t first_row, at::ScalarType dtype) {
  TORCH_CHECK(sizes.size() == 4, "expected sizes (K, L, I, J), got ", sizes.size(), " sizes");
  TORCH_CHECK(
      dtype == at::kFloat || dtype == at::kDouble, "uniform noise is made in float32 or float64, got ", dtype);
  const at::Tensor out = at::empty(sizes, at::TensorOptions().dtype(dtype));
  const auto key = static_cast<uint64_t>(seed.item<int64_t>());
  const std::array<int64_t, 4> shape{sizes[0], sizes[1], sizes[2], sizes[3]};
  const auto first_particle = static_cast<uint32_t>(stream) * kParticlesPerStream;
  if (out.numel() == 0) return out;
  if (dtype == at::kFloat) {
    fill(key, shape, static_cast<uint32_t>(first_row), first_particle, out.data_ptr<float>());
  } else {
    fill(key, shape, static_cast<uint32_t>(first_row), first_particle, out.data_ptr<double>());
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(probattn_native, library) {
  library.def("uniform(Tensor seed, int[] sizes, int stream, int first_row, ScalarType dtype) -> Tensor");
}

TORCH_LIBRARY_IMPL(probattn_native, CPU, library) { library.impl("uniform", uniform); }

}  // namespace probattn
