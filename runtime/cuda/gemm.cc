#include "runtime/cuda/gemm.h"

#include "runtime/cuda/status.h"

namespace windtunnel::cuda {
namespace {

// NVIDIA's recommendation for Hopper; frameworks use the same size.
constexpr size_t kWorkspace = size_t{32} << 20;

struct Types {
  cudaDataType_t data;
  cublasComputeType_t compute;
};

Result<Types> TypesOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return Types{CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::kTf32:
      return Types{CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
    case DType::kBFloat16:
      return Types{CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    case DType::kFloat16:
      return Types{CUDA_R_16F, CUBLAS_COMPUTE_32F};
    default:
      return Unsupported("the cuda device has no matrix product of {}", Name(dtype));
  }
}

}  // namespace

struct Multiplier::Choice {
  const BlasLt& blas;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  explicit Choice(const BlasLt& api) : blas(api) {}
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;
  ~Choice() {
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout != nullptr) blas.destroy_layout(layout);
    if (operation != nullptr) blas.destroy_operation(operation);
  }

  template <typename Value>
  Status Set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    return CheckBlas(blas.set_operation(operation, attribute, &value, sizeof value),
                     "cublasLtMatmulDescSetAttribute");
  }
  Status MakeLayout(const MatrixLayout& matrix, int64_t batch, cudaDataType_t type,
                    cublasLtMatrixLayout_t& layout) {
    WT_RETURN_IF_ERROR(CheckBlas(blas.create_layout(&layout, type, static_cast<uint64_t>(matrix.rows),
                                                    static_cast<uint64_t>(matrix.columns), matrix.leading),
                                 "cublasLtMatrixLayoutCreate"));
    if (batch == 1) return Ok();
    const int32_t count = static_cast<int32_t>(batch);
    WT_RETURN_IF_ERROR(
        CheckBlas(blas.set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                  "cublasLtMatrixLayoutSetAttribute"));
    return CheckBlas(blas.set_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.stride,
                                     sizeof matrix.stride),
                     "cublasLtMatrixLayoutSetAttribute");
  }
};

Result<std::unique_ptr<Multiplier>> Multiplier::Make(const SearchPlaces& places) {
  WT_ASSIGN_OR_RETURN(BlasLt blas, OpenBlasLt(places));
  std::unique_ptr<Multiplier> multiplier(new Multiplier(std::move(blas)));
  WT_RETURN_IF_ERROR(CheckBlas(multiplier->blas_.create(&multiplier->handle_), "cublasLtCreate"));
  WT_RETURN_IF_ERROR(
      Check(cudaMalloc(&multiplier->workspace_, kWorkspace), "cuBLASLt's workspace: cudaMalloc"));
  return multiplier;
}

Multiplier::Multiplier(BlasLt blas) : blas_(std::move(blas)) {}

Multiplier::~Multiplier() {
  choices_.clear();
  if (workspace_ != nullptr) cudaFree(workspace_);
  if (handle_ != nullptr) blas_.destroy(handle_);
}

Status Multiplier::Describe(const GemmProblem& problem, const void* bias, Choice& choice) const {
  WT_ASSIGN_OR_RETURN(const Types types, TypesOf(problem.dtype));
  WT_RETURN_IF_ERROR(CheckBlas(blas_.create_operation(&choice.operation, types.compute, CUDA_R_32F),
                               "cublasLtMatmulDescCreate"));
  const cublasOperation_t of_a = problem.a.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t of_b = problem.b.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  WT_RETURN_IF_ERROR(choice.Set(CUBLASLT_MATMUL_DESC_TRANSA, of_a));
  WT_RETURN_IF_ERROR(choice.Set(CUBLASLT_MATMUL_DESC_TRANSB, of_b));
  if (problem.epilogue == Epilogue::kBias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    WT_RETURN_IF_ERROR(choice.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    WT_RETURN_IF_ERROR(choice.Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(types.data)));
    WT_RETURN_IF_ERROR(choice.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  }
  WT_RETURN_IF_ERROR(choice.MakeLayout(problem.a, problem.batch, types.data, choice.a));
  WT_RETURN_IF_ERROR(choice.MakeLayout(problem.b, problem.batch, types.data, choice.b));
  return choice.MakeLayout(problem.c, problem.batch, types.data, choice.c);
}

Result<Multiplier::Choice*> Multiplier::Choose(const Key& key, const void* bias) {
  if (const auto found = choices_.find(key); found != choices_.end()) return found->second.get();
  auto choice = std::make_unique<Choice>(blas_);
  WT_RETURN_IF_ERROR(Describe(key.problem, bias, *choice));
  cublasLtMatmulPreference_t preference = nullptr;
  WT_RETURN_IF_ERROR(CheckBlas(blas_.create_preference(&preference), "cublasLtMatmulPreferenceCreate"));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* value, size_t bytes) {
    return CheckBlas(blas_.set_preference(preference, attribute, value, bytes),
                     "cublasLtMatmulPreferenceSetAttribute");
  };
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const auto ask = [&]() -> Status {
    WT_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace));
    WT_RETURN_IF_ERROR(
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key.alignment[0], sizeof(uint32_t)));
    WT_RETURN_IF_ERROR(
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key.alignment[1], sizeof(uint32_t)));
    WT_RETURN_IF_ERROR(
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key.alignment[2], sizeof(uint32_t)));
    WT_RETURN_IF_ERROR(
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key.alignment[2], sizeof(uint32_t)));
    return CheckBlas(blas_.heuristic(handle_, choice->operation, choice->a, choice->b, choice->c, choice->c,
                                     preference, 1, &result, &found),
                     "cublasLtMatmulAlgoGetHeuristic");
  };
  const Status asked = ask();
  blas_.destroy_preference(preference);
  WT_RETURN_IF_ERROR(asked);
  if (found == 0)
    return Unsupported("cuBLASLt {} has no kernel for a product of m={} n={} k={} in {}", version(),
                       key.problem.n, key.problem.m, key.problem.k, Name(key.problem.dtype));
  choice->algorithm = result.algo;
  return choices_.emplace(key, std::move(choice)).first->second.get();
}

Status Multiplier::Multiply(const GemmProblem& problem, const void* a, const void* b, const void* bias,
                            void* c, cudaStream_t stream) {
  const bool has_bias = problem.epilogue == Epilogue::kBias;
  // cuBLASLt has no alignment setting for a bias. The epilogue that writes the product reads it, so it counts
  // with c's.
  const uint32_t of_c = has_bias ? std::min(AlignmentOf(c), AlignmentOf(bias)) : AlignmentOf(c);
  const Key key{problem, {AlignmentOf(a), AlignmentOf(b), of_c}};
  WT_ASSIGN_OR_RETURN(Choice * choice, Choose(key, bias));
  if (has_bias) WT_RETURN_IF_ERROR(choice->Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  const float alpha = problem.alpha, beta = problem.accumulate ? problem.beta : 0;
  return CheckBlas(blas_.matmul(handle_, choice->operation, &alpha, a, choice->a, b, choice->b, &beta, c,
                                choice->c, c, choice->c, &choice->algorithm, workspace_, kWorkspace, stream),
                   "cublasLtMatmul");
}

}  // namespace windtunnel::cuda
