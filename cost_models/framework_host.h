// Host time that a framework spends on an operator before the device has it.
//
// Kept simple until host costs are measured on machines that have such devices: kernels of the operator x time of a kernel.
//
//   windtunnel       one kernel, one launch
//   pytorch          eager: each kernel is an operator of its own: 7 us of Python, dispatcher and autograd (pytorch issue 41383,
//                    a multiplication that needs gradients) and a launch of 3 us
//   pytorch_compile  one generated kernel: 6.8 us with its launch (tritonbench pull request 1017, CachingAutotuner.run)
//   megatron and deepspeed run PyTorch's operators.
//
//   A norm that also adds the residual stream is two kernels in eager PyTorch: 2 x (7 + 3) = 20 us.
#pragma once

#include "base/units.h"
#include "plan/op.h"
#include "scenarios/scenario.h"

namespace windtunnel {

Duration HostTime(const OpKind& kind, Framework framework, Duration launch);

// Kernels that eager PyTorch launches for the operator.
int EagerKernels(const OpKind& kind);

}  // namespace windtunnel
