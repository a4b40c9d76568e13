// What ends a step beside the strategy's update, whoever drives the strategy: RoleCompiler, or sim/composed.
#pragma once

#include "plan/collectives.h"
#include "plan/data_parallel.h"
#include "plan/program_builder.h"

namespace windtunnel {

// As Megatron: the two stages that have a weight (Parameter::is_shared) sum its gradients over the axis
// `embedding`, so both make the same update.
void SumTiedGradient(ProgramBuilder& b, DataParallel& strategy, CollectiveStream& embedding);

// The barrier over the axis `world` waits for everything on this rank.
void CloseWithBarrier(ProgramBuilder& b, CollectiveStream& world);

}  // namespace windtunnel
