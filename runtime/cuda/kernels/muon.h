// The parts of Muon's update that are not products, one matrix at a time (operands: plan/ops.h; the rules:
// runtime/muon_constants.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const MuonDirection& op, const Operands& operands);
void Run(Queue& queue, const MuonUpdate& op, const KernelContext& context, const Operands& operands);
int64_t ScratchBytes(const MuonDirection& op, const Traits& traits);

}  // namespace windtunnel::WT_KERNELS
