#include "runtime/cuda/dispatch.h"

#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <variant>

#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/delta_net.h"
#include "runtime/cuda/kernels/delta_net_scan.h"
#include "runtime/cuda/kernels/dropout.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/embedding.h"
#include "runtime/cuda/kernels/experts.h"
#include "runtime/cuda/kernels/head_norm.h"
#include "runtime/cuda/kernels/initialize.h"
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/kernels/muon.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/cuda/kernels/operands.h"
#include "runtime/cuda/kernels/optimizer.h"
#include "runtime/cuda/kernels/orthonormalize.h"
#include "runtime/cuda/kernels/packed.h"
#include "runtime/cuda/kernels/rearrange.h"
#include "runtime/cuda/kernels/relative_bias.h"
#include "runtime/cuda/kernels/rope.h"
#include "runtime/cuda/kernels/state_space.h"
#include "runtime/element_types.h"

namespace windtunnel::WT_KERNELS {
namespace {

// Errors: Unsupported for shapes that the kernels have no room for.
template <typename Op>
Status CheckShape(const Op& op, const Traits& traits) {
  if constexpr (requires { SharedBytes(op); }) {
    if (SharedBytes(op) > traits.shared_bytes) {
      return Unsupported(
          "norm of {} columns: its kernel needs {} bytes of shared memory, and this device has {} for a "
          "block",
          op.columns, SharedBytes(op), traits.shared_bytes);
    }
  }
  if constexpr (std::is_same_v<Op, HeadNormBackward>) {
    if (op.whole && WholeNormSharedBytes(op) > traits.shared_bytes) {
      return Unsupported(
          "norm of all heads' {} columns: its kernel needs {} bytes of shared memory, and this device has {} "
          "for a block",
          HeadsOf(op).query_width + HeadsOf(op).key_width, WholeNormSharedBytes(op), traits.shared_bytes);
    }
  }
  if constexpr (requires { op.kv_heads; } && !std::is_same_v<Op, Rope>) {
    if (op.head_dim > kMostHeadDim || PlainSharedBytes(op.head_dim) > traits.shared_bytes) {
      return Unsupported("attention with a head_dim of {}: this device's kernels have room for up to {}",
                         op.head_dim, kMostHeadDim);
    }
  }
  if constexpr (requires { op.values(); }) {
    if (op.values() != op.head_dim)
      return Unsupported(
          "attention with values of {} columns and keys of {}: this device's kernels have heads of one width",
          op.values(), op.head_dim);
  }
  if constexpr (std::is_same_v<Op, Rope>) {
    if (op.rotated_columns() % 2 != 0 || op.rotated_columns() > kMostRopeHeadDim) {
      return Unsupported(
          "rotary positions turn pairs: {} columns of a head are rotated, expected an even number up to {}",
          op.rotated_columns(), kMostRopeHeadDim);
    }
  }
  if constexpr (std::is_base_of_v<StateSpaceShape, Op>) {
    if (op.state > kMostState || op.conv > kMostConvolution) {
      return Unsupported(
          "a state space model with a state of {} and a convolution of {}: this device's kernels have room "
          "for up to "
          "{} and {}",
          op.state, op.conv, kMostState, kMostConvolution);
    }
    if (StateSpaceSharedBytes(op) > traits.shared_bytes) {
      return Unsupported(
          "a state space model with a state of {} and {} columns of a group: its kernels need {} bytes of "
          "shared memory, and this device has {} for a block",
          op.state, op.inner() / op.groups, StateSpaceSharedBytes(op), traits.shared_bytes);
    }
  }
  if constexpr (std::is_base_of_v<DeltaNetShape, Op>) {
    if (op.key_dim > kMostKeyDim || op.conv > kMostConvolution) {
      return Unsupported(
          "a gated delta network with heads of {} columns of keys and a convolution of {}: this device's "
          "kernels have "
          "room for up to {} and {}",
          op.key_dim, op.conv, kMostKeyDim, kMostConvolution);
    }
    if (DeltaNetSharedBytes(op.key_dim) > traits.shared_bytes) {
      return Unsupported(
          "a gated delta network with heads of {} columns of keys: its kernels need {} bytes of shared "
          "memory, and this "
          "device has {} for a block",
          op.key_dim, DeltaNetSharedBytes(op.key_dim), traits.shared_bytes);
    }
  }
  if constexpr (std::is_same_v<Op, RouteTokens>) {
    if (op.is_limited() && op.groups > kMostExpertGroups)
      return Unsupported("model.experts.groups is {}: this device's kernels choose among up to {}", op.groups,
                         kMostExpertGroups);
    if (op.capacity == 0) {
      return Unsupported(
          "model.experts.capacity_factor: 0 (no capacity) is predicted only; live runs need room that is "
          "known");
    }
  }
  return Ok();
}

Status StatusOf(const Queue::Failure& failure) {
  if (failure.error == 0) return Ok();
  if (failure.error == Queue::kTooLittleScratch) {
    return Failed("kernels need {} bytes of scratch memory, more than the device set aside (ScratchBytes)",
                  failure.bytes);
  }
  return Failed("a launch was refused with CUDA error {} ({} bytes): {}", failure.error, failure.bytes,
                failure.what);
}

}  // namespace

void* Queue::ScratchBytes(int64_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  Note(kTooLittleScratch, "", bytes);
  return nullptr;
}

void Operands::Mismatch(size_t index, size_t operands, int64_t needed) {
  fprintf(stderr, "an operator's operand %zu of %zu is missing or has less than %lld elements\n", index,
          operands, static_cast<long long>(needed));
  abort();
}

Status LaunchOn(Queue& queue, const OpKind& kind, std::span<const TensorRef> reads,
                std::span<const TensorRef> writes, const KernelContext& context) {
  const Operands operands{reads, writes};
  return std::visit(
      [&](const auto& op) -> Status {
        WT_RETURN_IF_ERROR(CheckElementTypes(kind, op, "the cuda device's kernels are for"));
        WT_RETURN_IF_ERROR(CheckShape(op, queue.traits()));
        if constexpr (requires { Run(queue, op, operands); }) {
          Run(queue, op, operands);
        } else if constexpr (requires { Run(queue, op, context, operands); }) {
          Run(queue, op, context, operands);
        } else {
          return Unsupported("{}: the cuda device has no kernel for it", OperatorName(kind));
        }
        return StatusOf(queue.failure());
      },
      kind);
}

int64_t ScratchBytesOf(const OpKind& kind, const Traits& traits) {
  return std::visit(
      [&](const auto& op) -> int64_t {
        if constexpr (requires { ScratchBytes(op, traits); }) {
          return ScratchBytes(op, traits);
        } else {
          return 0;
        }
      },
      kind);
}

Status StatusOf(const Fault& fault) {
  if (fault.kind == Fault::kNone) return Ok();
  return Failed("{} {} at position {} of the micro-batch, expected 0 to {}: the data do not fit model.vocab",
                fault.kind == Fault::kTokenId ? "token id" : "target", fault.value, fault.position,
                fault.bound - 1);
}

}  // namespace windtunnel::WT_KERNELS
