// Loss scaling as in torch.amp.GradScaler and Megatron's fp16 optimizer (docs/decisions/0021). The gradient
// of the loss is multiplied by a scale, so that small gradients are not lost in fp16. When all gradients of a
// step are reduced and in fp32, they are divided by it, and only then clipped. If any of them is infinite or
// not a number, on any rank that holds a part of the model, all ranks skip the step: parameters and optimizer
// state stay as they were.
//
//   AddLossScaling(role, scenario.precision);         // before any program is made
//   InitializeLossScaling(builder);                   // in the initialisation program
//   op.scaled = ReadLossScale(builder, reads);        // the loss
//   optimizer.PrepareGradients(builder, first);       // plan/optimizer_steps.h
//   AddLossScaleUpdate(builder);                      // once a step, after the optimizer's update
//
// Without precision.loss_scale all of them do nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/program_builder.h"

namespace windtunnel {

void AddLossScaling(Role& role, const PrecisionSpec& precision);
void InitializeLossScaling(ProgramBuilder& b);
// Returns whether the role's loss is scaled; if so, adds its scale to the loss's reads.
bool ReadLossScale(ProgramBuilder& b, std::vector<Slice>& reads);
void AddLossScaleUpdate(ProgramBuilder& b);

}  // namespace windtunnel
