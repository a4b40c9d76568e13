#include "plan/fused_attention.h"

namespace windtunnel {
namespace {

constexpr int64_t kMostHeadDim = 256, kHeadDims = 8, kKeyTile = 128;

template <typename Attention>
bool IsFlashIn16Bits(const Attention& op) {
  return op.kind == AttentionKind::kFlash && op.window == 0 && op.key_seq == 0 && !op.dropout.drops() &&
         op.values() == op.head_dim && SizeOf(op.dtype) == Bytes(2) && op.head_dim % kHeadDims == 0 &&
         op.head_dim <= kMostHeadDim;
}

}  // namespace

bool IsForCudnn(const AttentionForward& op) { return IsFlashIn16Bits(op); }

bool IsForCudnn(const AttentionBackward& op) {
  return IsFlashIn16Bits(op) && !op.deterministic && op.seq % kKeyTile == 0;
}

}  // namespace windtunnel
