#include "runtime/cuda/fused_attention.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include "plan/fused_attention.h"
#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/cudnn_fused_attention.h"
#include "runtime/cuda/status.h"

namespace windtunnel::cuda {
namespace {

constexpr int64_t kAlignment = 16;
constexpr size_t kClearsQuerySums = 90600;  // from this version on cuDNN's backward clears query_sums itself

template <typename Op>
std::optional<AttentionProblem> ProblemOf(const Op& op) {
  if (!IsForCudnn(op)) return std::nullopt;
  return AttentionProblem{op.batch, op.seq, op.heads, op.kv_heads, op.head_dim, op.dtype, op.causal};
}

std::optional<AttentionProblem> ProblemOf(const OpKind& kind) {
  if (const auto* forward = std::get_if<AttentionForward>(&kind)) return ProblemOf(*forward);
  const auto* backward = std::get_if<AttentionBackward>(&kind);
  return backward != nullptr ? ProblemOf(*backward) : std::nullopt;
}

bool Aligned(std::span<const TensorRef> operands) {
  for (const TensorRef& operand : operands)
    if (reinterpret_cast<uintptr_t>(operand.data) % kAlignment != 0) return false;
  return true;
}

// Queries, keys and values, or their gradients, side by side in each row.
struct Packed {
  std::byte *queries, *keys, *values;

  Packed(void* base, const AttentionProblem& p)
      : queries(static_cast<std::byte*>(base)),
        keys(queries + p.heads * p.head_dim * SizeOf(p.dtype).count()),
        values(keys + p.kv_heads * p.head_dim * SizeOf(p.dtype).count()) {}
};

// The scratch of a backward plan: its workspace, and the two tensors between its kernels that lie in memory.
struct BackwardScratch {
  int64_t workspace, products, query_sums;

  BackwardScratch(const AttentionProblem& p, const GraphPlan& plan)
      : workspace(Rounded(plan.workspace_bytes())),
        products(Rounded(p.batch * p.heads * p.seq * int64_t{sizeof(float)})),
        query_sums(Rounded(p.batch * p.heads * p.seq * p.head_dim * int64_t{sizeof(float)})) {}
  int64_t total() const { return workspace + products + query_sums; }

  static int64_t Rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }
};

class CudnnFusedAttention : public FusedAttention {
 public:
  // `handle`: owner of the target's handle if that is to be destroyed with the last plan, else null.
  CudnnFusedAttention(CudnnApi api, GraphTarget target, FillWithZeros zero, std::shared_ptr<void> handle)
      : api_(std::move(api)), handle_(std::move(handle)), target_(target), zero_(zero) {}

  Result<std::optional<int64_t>> ScratchBytes(const OpKind& kind, std::span<const TensorRef> reads,
                                              std::span<const TensorRef> writes) override {
    using Bytes = std::optional<int64_t>;
    const auto problem = ProblemOf(kind);
    if (!problem || !Aligned(reads) || !Aligned(writes) || IsKnownToBeWrong()) return Bytes();
    if (std::holds_alternative<AttentionForward>(kind)) {
      const auto* found = Find(forward_, *problem, PlanAttentionForward);
      return found != nullptr ? Bytes(found->plan.workspace_bytes()) : Bytes();
    }
    const auto* found = Find(backward_, *problem, PlanAttentionBackward);
    return found != nullptr ? Bytes(BackwardScratch(*problem, found->plan).total()) : Bytes();
  }

  Status Launch(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                void* scratch, cudaStream_t stream) override {
    if (target_.handle != nullptr)
      WT_RETURN_IF_ERROR(CheckCudnn(api_, api_.set_stream(target_.handle, stream), "cudnnSetStream"));
    const AttentionProblem problem = *ProblemOf(kind);
    if (std::holds_alternative<AttentionForward>(kind)) return Forward(problem, reads, writes, scratch);
    return Backward(problem, reads, writes, scratch, stream);
  }

  const std::string& version() const override { return api_.version_text; }

 private:
  template <typename Plan>
  using Plans = std::map<AttentionProblem, std::optional<Plan>>;  // nullopt: cuDNN has no kernel

  // Null: cuDNN has no kernel or cannot make it, and this project's kernels compute the operator. The result
  // is remembered.
  template <typename Plan, typename Make>
  const Plan* Find(Plans<Plan>& plans, const AttentionProblem& problem, const Make& make) {
    auto found = plans.find(problem);
    if (found == plans.end()) {
      auto plan = make(api_, problem, target_);
      if (!plan && plan.error().kind != ErrorKind::kUnsupported) NoteWithoutCudnn(plan.error());
      found = plans.emplace(problem, plan ? std::optional(std::move(*plan)) : std::nullopt).first;
    }
    return found->second ? &*found->second : nullptr;
  }

  // NVIDIA's frontend refuses these two versions altogether.
  bool IsKnownToBeWrong() const { return api_.version() == 91000 || api_.version() == 91001; }

  Status Forward(const AttentionProblem& problem, std::span<const TensorRef> reads,
                 std::span<const TensorRef> writes, void* workspace) const {
    const AttentionForwardPlan& planned = *forward_.at(problem);
    const auto& t = planned.tensors;
    const float scale = ScaleOf(problem), hidden = HiddenScore(api_);
    const Packed in(reads[0].data, problem);
    const std::array<GraphOperand, 7> operands = {{{t.queries, in.queries},
                                                   {t.keys, in.keys},
                                                   {t.values, in.values},
                                                   {t.scale, &scale},
                                                   {t.out, writes[0].data},
                                                   {t.log_sum_exp, writes[1].data},
                                                   {t.hidden, &hidden}}};
    return planned.plan.Execute(target_.handle, Used(operands, problem), workspace);
  }

  Status Backward(const AttentionProblem& problem, std::span<const TensorRef> reads,
                  std::span<const TensorRef> writes, void* scratch, cudaStream_t stream) const {
    const AttentionBackwardPlan& planned = *backward_.at(problem);
    const auto& t = planned.tensors;
    const BackwardScratch bytes(problem, planned.plan);
    std::byte* products = static_cast<std::byte*>(scratch) + bytes.workspace;
    std::byte* query_sums = products + bytes.products;
    if (api_.version() < kClearsQuerySums)
      WT_RETURN_IF_ERROR(
          Check(zero_(query_sums, static_cast<size_t>(bytes.query_sums), stream), "cudaMemsetAsync"));
    const float scale = ScaleOf(problem), hidden = HiddenScore(api_), one = 1;
    const Packed in(reads[1].data, problem), gradients(writes[0].data, problem);
    const std::array<GraphOperand, 14> operands = {{{t.queries, in.queries},
                                                    {t.keys, in.keys},
                                                    {t.values, in.values},
                                                    {t.out, reads[2].data},
                                                    {t.dout, reads[0].data},
                                                    {t.log_sum_exp, reads[3].data},
                                                    {t.scale, &scale},
                                                    {t.one, &one},
                                                    {t.dqueries, gradients.queries},
                                                    {t.dkeys, gradients.keys},
                                                    {t.dvalues, gradients.values},
                                                    {t.products, products},
                                                    {t.query_sums, query_sums},
                                                    {t.hidden, &hidden}}};
    return planned.plan.Execute(target_.handle, Used(operands, problem), scratch);
  }

  // Without the last operand, what scores of hidden keys become, if there are none.
  static std::span<const GraphOperand> Used(std::span<const GraphOperand> operands,
                                            const AttentionProblem& problem) {
    return operands.first(operands.size() - (problem.causal ? 0 : 1));
  }

  static float ScaleOf(const AttentionProblem& problem) {
    return 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
  }

  const CudnnApi api_;
  const std::shared_ptr<void> handle_;
  const GraphTarget target_;
  const FillWithZeros zero_;
  Plans<AttentionForwardPlan> forward_;
  Plans<AttentionBackwardPlan> backward_;
};

cudaError_t Zero(void* memory, size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(memory, 0, bytes, stream);
}

}  // namespace

std::unique_ptr<FusedAttention> MakeCudnnFusedAttention(CudnnApi api, GraphTarget target,
                                                        FillWithZeros zero) {
  return std::make_unique<CudnnFusedAttention>(std::move(api), target, zero, nullptr);
}

void NoteWithoutCudnn(const Error& error) {
  static std::once_flag noted;
  std::call_once(noted, [&] {
    // The first line of cuDNN's message.
    const std::string first_line = error.message.substr(0, error.message.find('\n'));
    (void)std::fprintf(stderr, "windtunnel: %s; own kernels compute attention instead\n", first_line.c_str());
  });
}

std::string CudnnVersion(const SearchPlaces& places) {
  const auto api = OpenCudnn(places);
  return api ? api->version_text : std::string();
}

Result<std::unique_ptr<FusedAttention>> MakeFusedAttention(const SearchPlaces& places) {
  const auto opened = OpenCudnn(places);
  if (!opened) return Unsupported("{}", opened.error().message);
  const CudnnApi& api = *opened;
  cudnnHandle_t handle = nullptr;
  WT_RETURN_IF_ERROR(CheckCudnn(api, api.create(&handle), "cudnnCreate"));
  std::shared_ptr<void> owner(handle,
                              [destroy = api.destroy](void* h) { destroy(static_cast<cudnnHandle_t>(h)); });
  return std::make_unique<CudnnFusedAttention>(api, GraphTarget{.handle = handle}, Zero, std::move(owner));
}

}  // namespace windtunnel::cuda
