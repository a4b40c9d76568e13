// The parts of Muon's update that are not products (operands: plan/ops.h).
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

Status Run(const MuonDirection& op, const Operands& operands);
// `lr_factor`: of this step's learning rate.
Status Run(const MuonUpdate& op, double lr_factor, const Operands& operands);

}  // namespace windtunnel::cpu
