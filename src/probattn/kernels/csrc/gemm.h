// Products of small matrices by the library that torch is linked with, on the calling thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>

// Fortran's interface, which every BLAS has; absent where torch keeps its BLAS to itself.
extern "C" {
__attribute__((weak)) void sgemm_(
    const char* first_op, const char* second_op, const int* rows, const int* columns, const int* inner,
    const float* alpha, const float* first, const int* first_stride, const float* second, const int* second_stride,
    const float* beta, float* result, const int* result_stride);
// MKL's: how many threads the calling thread may use; returns what it was.
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);
}

namespace probattn {

// One thread for every product while it lives: the order of additions must not depend on the number of threads.
class SequentialProducts {
 public:
  SequentialProducts() : before_(MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(1) : 0) {}
  ~SequentialProducts() {
    if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(before_);
  }

 private:
  int before_;
};

// A matrix in memory: row r begins at data + r * stride.
struct Matrix {
  const float* data;
  int64_t stride;
};

enum class Op { kPlain, kTransposed };

inline at::Tensor as_tensor(const Matrix& matrix, Op op, int64_t rows, int64_t columns) {
  const bool is_plain = op == Op::kPlain;
  const auto made = at::from_blob(
      const_cast<float*>(matrix.data), {is_plain ? rows : columns, is_plain ? columns : rows}, {matrix.stride, 1},
      at::TensorOptions().dtype(at::kFloat));
  return is_plain ? made : made.t();
}

// result (rows x columns) = alpha * op(first) op(second) + beta * result.
inline void product(
    Op first_op, Op second_op, int64_t rows, int64_t columns, int64_t inner, float alpha, Matrix first, Matrix second,
    float beta, float* result, int64_t result_stride) {
  if (rows == 0 || columns == 0) return;
  if (sgemm_) {
    // Rows here are columns there, so the factors change places.
    const auto letter = [](Op op) { return op == Op::kPlain ? 'n' : 't'; };
    const char first_letter = letter(first_op), second_letter = letter(second_op);
    const int m = static_cast<int>(columns), n = static_cast<int>(rows), k = static_cast<int>(inner);
    const int first_stride = static_cast<int>(first.stride), second_stride = static_cast<int>(second.stride),
              stride = static_cast<int>(result_stride);
    sgemm_(&second_letter, &first_letter, &m, &n, &k, &alpha, second.data, &second_stride, first.data, &first_stride,
           &beta, result, &stride);
    return;
  }
  auto out = as_tensor({result, result_stride}, Op::kPlain, rows, columns);
  at::addmm_out(out, out, as_tensor(first, first_op, rows, inner), as_tensor(second, second_op, inner, columns), beta,
                alpha);
}

}  // namespace probattn
