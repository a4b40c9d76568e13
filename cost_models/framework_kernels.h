// What an operator takes on a device when a framework runs it: the kernels of its profile (cost_models/framework_profile.h), one
// after the other.
//
//   device time = sum over kernels of (work + launches x minimum); without a launch, what another operator's kernel moves for this one
//   host time   = sum over kernels of launches x (launch + the framework's time of its issuer) + what the host does besides; launches for
//                 each tensor or expert are a loop's: launch + plain_us each, and so are those of products and copies of parts
//                 (tensor.overlap), which all together are one operator
//
//   A norm that adds the residual stream, 2,048 x 4,096 in bf16, in eager PyTorch on an A100 (1,794 GB/s reached, minimum 3 us): the sum
//   moves 3 x 16.8 MB, 28.1 us, the norm 2 x 16.8 MB, 18.7 us: 46.8 + 2 x 3 us.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cost_models/device_spec.h"
#include "cost_models/flash_kernels.h"
#include "cost_models/framework_profile.h"
#include "plan/op.h"

namespace windtunnel {

// What a framework profile can say about an operator.
struct OperatorShape {
  std::string_view key;                                      // first word of its cost key
  std::vector<std::pair<std::string_view, double>> tensors;  // elements, by name; the first is the main one
  std::vector<std::string_view> holds;                       // "residual", "layernorm", …
  DType dtype = DType::kFloat32;
  enum class Issuer { kModel, kEngine, kLoop } issuer = Issuer::kLoop;  // FrameworkProfile::forward_us, …
  bool is_in_block = false;  // run twice where blocks are recomputed
  double count = 1;          // tensors that one operator works on
  double share = 1;          // of its launches, that this one of several operators bears
};
// `parameters`: the type that a model's parameters are held in beside the optimizer's.
// REQUIRES: no communication.
OperatorShape ShapeOf(const OpKind& kind, DType parameters);

// How a scenario computes.
struct ArithmeticContext {
  bool tf32 = false;
  DType parameters = DType::kFloat32;
  bool recomputes = false;  // whole blocks
  // How much longer products and attention take on the slowest device (cost_models/device_spread.h).
  double slowest = 1;
  // How much faster products are than alone (cost_models/power_limit.h).
  double product_speed = 1;
  std::optional<FlashKernels> flash = {};  // instead of the framework's
};

// Errors: InvalidInput where the device has no arithmetic of the operator's type, or the profile speaks of a tensor that the operator
// has not. REQUIRES: no communication, memory or HostWait.
Result<Duration> DeviceTime(const OpKind& kind, const FrameworkProfile& framework, const DeviceSpec& device,
                            const ArithmeticContext& context);

// What an optimizer's update moves where the host does it (offload): as often as the kernels of one that is not fused, where the framework has
// such; else once.
Bytes HostTraffic(const OptimizerUpdate& update, const FrameworkProfile& framework);

// Of any operator, communication too. Where blocks are recomputed, the mean of both forwards; with the backward of its attention, what
// the host does around a block.
Duration HostTime(const OpKind& kind, const FrameworkProfile& framework, Duration launch,
                  const ArithmeticContext& context);

// Of the operator that a graph begins with (Op::graph), for all of it; of those that follow in it, nothing.
Duration GraphLaunchTime(int32_t graph, const FrameworkProfile& framework);

}  // namespace windtunnel
