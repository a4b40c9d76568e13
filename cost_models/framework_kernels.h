// What an operator costs on a device when a framework runs it: the kernels of the framework's profile
// (cost_models/framework_profile.h), one after the other.
//
//   device time = sum over kernels of (work + launches x minimum)
//   host time   = sum over kernels of launches x (launch + the framework's time of its issuer)
//                 + what the host does besides
//
// A kernel without launches is what another operator's kernel moves for this operator. Launches for each
// tensor or expert are issued in a loop, at launch + plain_us each. So are the products and copies of parts
// (tensor.overlap); all parts together are one operator, and share its issuer's time.
//
//   A norm that adds the residual stream, 2,048 x 4,096 in bf16, in eager PyTorch on an A100 (1,794 GB/s
//   reached, minimum 3 us): the sum moves 3 x 16.8 MB, 28.1 us, the norm 2 x 16.8 MB, 18.7 us:
//   46.8 + 2 x 3 us.
#pragma once

#include <optional>

#include "base/result.h"
#include "cost_models/device_spec.h"
#include "cost_models/flash_kernels.h"
#include "cost_models/framework_profile.h"
#include "plan/op.h"
#include "plan/ops.h"

namespace windtunnel {

// How a scenario computes.
struct ArithmeticContext {
  bool tf32 = false;
  DType parameters = DType::kFloat32;
  double recomputed = 0;  // the share of blocks that are recomputed as a whole
  // How much longer products and attention take on the slowest device (cost_models/device_spread.h).
  double slowest = 1;
  // How much faster products are than alone (cost_models/power_limit.h).
  double product_speed = 1;
  std::optional<FlashKernels> flash = {};  // instead of the framework's
};

// Errors: InvalidInput if the device has no arithmetic of the operator's type, or the profile names a tensor
// that the operator does not have. REQUIRES: no communication, memory or HostWait.
Result<Duration> DeviceTime(const OpKind& kind, const FrameworkProfile& framework, const DeviceSpec& device,
                            const ArithmeticContext& context);

// The bytes that an optimizer's update moves if the host does it (offload). An unfused update moves what the
// framework's unfused kernels do, if its profile has such; any other update is one pass.
Bytes HostTraffic(const OptimizerUpdate& update, const FrameworkProfile& framework);

// What the host of a device takes: to launch a kernel, and for what else frameworks do about one, as a multiple
// of what their profiles say.
struct HostSpeed {
  Duration launch;
  double slowdown = 1;
};

// Host time of any operator, including communication. If blocks are recomputed, a kernel in a block's forward
// costs the mean of the forwards without and with gradients, and the backward of a block's attention also
// bears what the host does around a block.
Duration HostTime(const OpKind& kind, const FrameworkProfile& framework, const HostSpeed& host,
                  const ArithmeticContext& context);

// Host time of launching a CUDA graph (`graph` is Op::graph). The operator that the graph begins with bears
// all of it, the operators that follow in it nothing.
Duration GraphLaunchTime(int32_t graph, const FrameworkProfile& framework, const HostSpeed& host);

}  // namespace windtunnel
