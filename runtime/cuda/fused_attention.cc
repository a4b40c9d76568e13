#include "runtime/cuda/fused_attention.h"

#include <array>
#include <cmath>
#include <map>

#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/cudnn_fused_attention.h"
#include "runtime/cuda/status.h"

namespace windtunnel::cuda {
namespace {

constexpr int64_t kAlignment = 16;
// Longer heads have plans, too, but none that keeps scores on the chip.
constexpr int64_t kMostFusedHeadDim = 256;

// What the problem is, where it is one of flash attention in 16 bits.
template <typename Op>
std::optional<AttentionProblem> FlashProblemOf(const Op& op) {
  const bool is_16_bit = op.dtype == DType::kBFloat16 || op.dtype == DType::kFloat16;
  if (op.kind != AttentionKind::kFlash || !is_16_bit) return std::nullopt;
  if (op.head_dim % 8 != 0 || op.head_dim > kMostFusedHeadDim) return std::nullopt;
  return AttentionProblem{op.batch, op.seq, op.heads, op.kv_heads, op.head_dim, op.dtype};
}

std::optional<AttentionProblem> ProblemOf(const OpKind& kind) {
  if (const auto* op = std::get_if<AttentionForward>(&kind)) return FlashProblemOf(*op);
  const auto* op = std::get_if<AttentionBackward>(&kind);
  return op != nullptr && !op->deterministic ? FlashProblemOf(*op) : std::nullopt;
}

bool Aligned(std::span<const TensorRef> operands) {
  for (const TensorRef& operand : operands)
    if (reinterpret_cast<uintptr_t>(operand.data) % kAlignment != 0) return false;
  return true;
}

// Queries, keys and values, or their gradients, as they lie side by side.
struct Packed {
  std::byte *queries, *keys, *values;

  Packed(void* base, const AttentionProblem& p)
      : queries(static_cast<std::byte*>(base)),
        keys(queries + p.heads * p.head_dim * SizeOf(p.dtype).count()),
        values(keys + p.kv_heads * p.head_dim * SizeOf(p.dtype).count()) {}
};

// The scratch of a backward plan: its own workspace, and the two tensors between its kernels that are in memory.
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
  // `handle`: the target's, where it is to be closed with the last plan.
  CudnnFusedAttention(CudnnApi api, GraphTarget target, FillWithZeros zero, std::shared_ptr<void> handle)
      : api_(std::move(api)), handle_(std::move(handle)), target_(target), zero_(zero) {}

  Result<std::optional<int64_t>> ScratchBytes(const OpKind& kind, std::span<const TensorRef> reads,
                                              std::span<const TensorRef> writes) override {
    using Bytes = std::optional<int64_t>;
    const auto problem = ProblemOf(kind);
    if (!problem || !Aligned(reads) || !Aligned(writes) || IsKnownToBeWrong(kind, *problem)) return Bytes();
    if (std::holds_alternative<AttentionForward>(kind)) {
      WT_ASSIGN_OR_RETURN(const auto* found, Find(forward_, *problem, PlanAttentionForward));
      return found != nullptr ? Bytes(found->plan.workspace_bytes()) : Bytes();
    }
    WT_ASSIGN_OR_RETURN(const auto* found, Find(backward_, *problem, PlanAttentionBackward));
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
  using Plans = std::map<AttentionProblem, std::optional<Plan>>;  // nothing: cuDNN has no kernel

  // Null: cuDNN has no kernel, which is kept. Other failures are the caller's.
  template <typename Plan, typename Make>
  Result<const Plan*> Find(Plans<Plan>& plans, const AttentionProblem& problem, const Make& make) {
    auto found = plans.find(problem);
    if (found == plans.end()) {
      auto plan = make(api_, problem, target_);
      if (!plan && plan.error().kind != ErrorKind::kUnsupported) return tl::unexpected(plan.error());
      found = plans.emplace(problem, plan ? std::optional(std::move(*plan)) : std::nullopt).first;
    }
    return found->second ? &*found->second : nullptr;
  }

  // 9.10.0 and 9.10.1 altogether, backward of one token (NVIDIA's frontend refuses both), and backward where the last tile of keys is not
  // full: wrong up to 9.15, and not a number on Hopper in 9.20 where scores are low (pytorch issue 196678).
  bool IsKnownToBeWrong(const OpKind& kind, const AttentionProblem& problem) const {
    const size_t version = api_.version();
    if (version == 91000 || version == 91001) return true;
    return std::holds_alternative<AttentionBackward>(kind) && problem.seq % 128 != 0;
  }

  Status Forward(const AttentionProblem& problem, std::span<const TensorRef> reads,
                 std::span<const TensorRef> writes, void* workspace) const {
    const AttentionForwardPlan& p = *forward_.at(problem);
    const float scale = ScaleOf(problem), hidden = HiddenScore(api_);
    const Packed in(reads[0].data, problem);
    const std::array<GraphOperand, 7> operands = {{{p.queries, in.queries},
                                                   {p.keys, in.keys},
                                                   {p.values, in.values},
                                                   {p.scale, &scale},
                                                   {p.hidden, &hidden},
                                                   {p.out, writes[0].data},
                                                   {p.log_sum_exp, writes[1].data}}};
    return p.plan.Execute(target_.handle, operands, workspace);
  }

  Status Backward(const AttentionProblem& problem, std::span<const TensorRef> reads,
                  std::span<const TensorRef> writes, void* scratch, cudaStream_t stream) const {
    const AttentionBackwardPlan& p = *backward_.at(problem);
    const BackwardScratch bytes(problem, p.plan);
    std::byte* products = static_cast<std::byte*>(scratch) + bytes.workspace;
    std::byte* query_sums = products + bytes.products;
    WT_RETURN_IF_ERROR(
        Check(zero_(query_sums, static_cast<size_t>(bytes.query_sums), stream), "cudaMemsetAsync"));
    const float scale = ScaleOf(problem), hidden = HiddenScore(api_), one = 1;
    const Packed in(reads[1].data, problem), gradients(writes[0].data, problem);
    const std::array<GraphOperand, 14> operands = {{{p.queries, in.queries},
                                                    {p.keys, in.keys},
                                                    {p.values, in.values},
                                                    {p.out, reads[2].data},
                                                    {p.dout, reads[0].data},
                                                    {p.log_sum_exp, reads[3].data},
                                                    {p.scale, &scale},
                                                    {p.hidden, &hidden},
                                                    {p.one, &one},
                                                    {p.dqueries, gradients.queries},
                                                    {p.dkeys, gradients.keys},
                                                    {p.dvalues, gradients.values},
                                                    {p.products, products},
                                                    {p.query_sums, query_sums}}};
    return p.plan.Execute(target_.handle, operands, scratch);
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
