// GEMMs by cuBLASLt: fp32, tf32, bf16 and fp16 with fp32 sums; plain, accumulating, with a bias, batched.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/cuda/blas_lt.h"
#include "runtime/cuda/gemm_layout.h"

namespace windtunnel::cuda {

class Multiplier {
 public:
  // Opens cuBLASLt on the current device and allocates its workspace: 32 MiB of device memory outside the
  // allocator.
  static Result<std::unique_ptr<Multiplier>> Make(const SearchPlaces& places);
  ~Multiplier();

  // c (+)= a b (+ bias), operands as ProblemOf orders them. cuBLASLt's heuristic chooses the kernel once per
  // shape and alignment. Unsupported: any other type than the above.
  Status Multiply(const GemmProblem& problem, const void* a, const void* b, const void* bias, void* c,
                  cudaStream_t stream);

  const std::string& version() const { return blas_.version_text; }

 private:
  struct Choice;  // descriptors and algorithm of one shape
  struct Key {
    GemmProblem problem;
    uint32_t alignment[3];
    auto operator<=>(const Key&) const = default;
  };
  explicit Multiplier(BlasLt blas);
  Result<Choice*> Choose(const Key& key, const void* bias);
  Status Describe(const GemmProblem& problem, const void* bias, Choice& choice) const;

  BlasLt blas_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, std::unique_ptr<Choice>> choices_;
};

}  // namespace windtunnel::cuda
