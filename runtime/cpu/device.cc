// The cpu device: runs every compute operator of plan/ops.h in the calling thread (runtime/device.h).
#include "runtime/device.h"

#include <type_traits>
#include <variant>

#include "runtime/cpu/activation.h"
#include "runtime/cpu/attention.h"
#include "runtime/cpu/context_attention.h"
#include "runtime/cpu/delta_net.h"
#include "runtime/cpu/dropout.h"
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/embedding.h"
#include "runtime/cpu/experts.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/gemm_operator.h"
#include "runtime/cpu/head_norm.h"
#include "runtime/cpu/initialize.h"
#include "runtime/cpu/latent_heads.h"
#include "runtime/cpu/loss.h"
#include "runtime/cpu/muon.h"
#include "runtime/cpu/norm.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/orthonormalize.h"
#include "runtime/cpu/packed.h"
#include "runtime/cpu/pages.h"
#include "runtime/cpu/rearrange.h"
#include "runtime/cpu/relative_bias.h"
#include "runtime/cpu/rope.h"
#include "runtime/cpu/scratch.h"
#include "runtime/cpu/shards.h"
#include "runtime/cpu/state_space.h"
#include "runtime/element_types.h"

namespace windtunnel {
namespace cpu {
namespace {

Status CheckTypes(const OpKind& kind) {
  return std::visit(
      [&kind](const auto& op) { return CheckElementTypes(kind, op, "the cpu device computes in"); }, kind);
}

class CpuDevice : public Device {
 public:
  Status Launch(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                const KernelContext& context) override {
    WT_RETURN_IF_ERROR(CheckTypes(kind));
    UseOneThread();  // OpenMP keeps its setting per thread, and this thread may be new
    const Operands operands{reads, writes};
    return std::visit([&](const auto& op) { return RunKind(kind, op, operands, context); }, kind);
  }

  SegmentSource& memory() override { return segments_; }

  std::map<std::string, std::string> Libraries() const override {
    return {{"onednn", OneDnnVersion()}, {"openblas", OpenBlasVersion()}};
  }

 private:
  // Picks the kernel by its signature: with the state that the device keeps between calls, with the context,
  // or with neither.
  template <typename Kind>
  Status RunKind(const OpKind& kind, const Kind& op, const Operands& operands, const KernelContext& context) {
    if constexpr (requires { Run(gemms_, scratch_, op, operands); }) {
      return Run(gemms_, scratch_, op, operands);
    } else if constexpr (requires { Run(scratch_, op, operands); }) {
      return Run(scratch_, op, operands);
    } else if constexpr (std::is_same_v<Kind, Rope>) {
      return Run(rope_tables_, op, context.context, operands);
    } else if constexpr (std::is_same_v<Kind, JoinLatentHeads>) {
      return Run(rope_tables_, scratch_, op, context.context, operands);
    } else if constexpr (std::is_same_v<Kind, OptimizerUpdate>) {
      return Run(op, context.step, context.lr_factor, operands);
    } else if constexpr (std::is_same_v<Kind, MuonUpdate>) {
      return Run(op, context.lr_factor, operands);
    } else if constexpr (std::is_same_v<Kind, InitializeParameter>) {
      return Run(op, context, operands);
    } else if constexpr (requires { Run(scratch_, op, context.tensor, operands); }) {
      return Run(scratch_, op, context.tensor, operands);
    } else if constexpr (requires { Run(gemms_, scratch_, op, context, operands); }) {
      return Run(gemms_, scratch_, op, context, operands);
    } else if constexpr (requires { Run(scratch_, op, context, operands); }) {
      return Run(scratch_, op, context, operands);
    } else if constexpr (requires { Run(op, context, operands); }) {
      return Run(op, context, operands);
    } else if constexpr (requires { Run(op, context.tensor, operands); }) {
      return Run(op, context.tensor, operands);
    } else if constexpr (requires { Run(op, operands); }) {
      return Run(op, operands);
    } else {
      return Unsupported("{} is not the device's: communication, memory and data are the executor's",
                         OperatorName(kind));
    }
  }

  GemmEngine gemms_;
  Scratch scratch_;
  RopeTables rope_tables_;
  PageSegments segments_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Device> MakeCpuDevice() { return std::make_unique<cpu::CpuDevice>(); }

}  // namespace windtunnel
