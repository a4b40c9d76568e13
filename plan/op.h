// An operator of a step program: one of the kinds (plan/ops.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/units.h"
#include "plan/ops.h"

namespace windtunnel {

using AnyKind = std::variant<
    Gemm, GroupedGemm, RouteTokens, RouteTokensBackward, DispatchTokens, CombineTokens, CombineBackward,
    Fp8Amax, Fp8Cast, ColumnSum, SumParts, AddBias, NormForward, NormBackward, HeadNormForward,
    HeadNormBackward, AttentionForward, AttentionBackward, ContextAttentionForward, ContextAttentionBackward,
    MergeAttention, CopyColumns, SplitColumns, SwapBlocks, Dropout, RelativeBias, RelativeBiasBackward, Rope,
    JoinLatentHeads, StateSpaceForward, StateSpaceBackward, DeltaNetForward, DeltaNetBackward,
    ActivationForward, ActivationBackward, GateForward, GateBackward, EmbeddingForward, EmbeddingBackward,
    CrossEntropy, VocabParallelMaximum, VocabParallelSums, VocabParallelLoss, MeanSquaredError, Copy,
    Quantize, Dequantize, Scale, PackShards, UnpackShards, CopyTensors, Fill, UnscaleGradients,
    UpdateLossScale, GradientNorm, Orthonormalize, SquareRoot, ClipGradients, OptimizerUpdate, MuonDirection,
    MuonUpdate, InitializeParameter, LoadBatch, Collective, Send, Receive, HostWait>;

template <typename T>
concept OneOfTheKinds = !std::derived_from<T, AnyKind>;

// The variant, with its copies and destructor compiled once (plan/op.cc). With so many kinds a compiler takes
// a second for them in each file that makes operators.
class OpKind : public AnyKind {
 public:
  OpKind();  // a Gemm
  template <OneOfTheKinds Kind>
  OpKind(Kind kind) noexcept : AnyKind(std::in_place_type<Kind>, std::move(kind)) {}
  OpKind(const OpKind& other);
  OpKind(OpKind&& other) noexcept;
  OpKind& operator=(const OpKind& other);
  OpKind& operator=(OpKind&& other) noexcept;
  ~OpKind();
};

// Groups of operators in reports: "gemm", "attention", "norm", "activation", "embedding", "loss", "copy",
// "optimizer", "data", "all_reduce", "broadcast", "barrier", …
std::string_view OperatorName(const OpKind& kind);

// The identity of an operator's cost: equal keys cost the same on one device. Human-readable and stable,
// since profiles are keyed by it: "gemm fp32 nt m=512 n=768 k=256 bias".
// Collectives and send/receive: "all_reduce fp32 bytes=1048576" (the group is the cost model's business).
std::string CostKey(const OpKind& kind);

// The operator's floating-point operations (a multiply-add is two), and a lower bound of the bytes it moves.
Flops FlopsOf(const OpKind& kind);
Bytes TrafficOf(const OpKind& kind);
// The pairs of a query and a key that a head sees in one sequence.
double SeenPairsOf(const AttentionForward& attention);
double SeenPairsOf(const AttentionBackward& attention);

inline bool IsProduct(const OpKind& kind) {
  return std::holds_alternative<Gemm>(kind) || std::holds_alternative<GroupedGemm>(kind);
}
inline bool IsCommunication(const OpKind& kind) {
  return std::holds_alternative<Collective>(kind) || std::holds_alternative<Send>(kind) ||
         std::holds_alternative<Receive>(kind);
}

// Elements of scratch that `collective` needs on each of `group_size` ranks (explained in plan/scratch.cc).
int64_t CollectiveScratchElements(const Collective& collective, int group_size);

std::string_view Name(CollectiveKind kind);
// Whether the collective has a root rank: broadcast, reduce, gather, scatter.
bool HasRoot(CollectiveKind kind);
Bytes MessageBytes(const Collective& collective);
// The same, also for sends and receives; 0 for operators that do not communicate.
Bytes MessageBytes(const OpKind& kind);

}  // namespace windtunnel
