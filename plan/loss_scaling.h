// Loss scaling, as torch.amp.GradScaler and Megatron's fp16 optimizer do it (docs/decisions/0021): the gradient of the loss is multiplied
// by a scale, so that small gradients are not lost in fp16; when all of a step's are reduced and in fp32 they are divided by it (and
// only then clipped). Where one of them is infinite or not a number, on any rank that holds a part of the model, the step is skipped on
// all: parameters and the optimizer's state stay as they were.
//
//   AddLossScaling(role, scenario.precision);         // before any program is made
//   InitializeLossScaling(builder);                   // in the initialisation program
//   op.scaled = ReadLossScale(builder, reads);        // the loss
//   optimizer.AddUnscaling(builder, axes);            // plan/optimizer_steps.h
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
// Whether the role's loss is scaled; then its scale is added to the loss's reads.
bool ReadLossScale(ProgramBuilder& b, std::vector<Slice>& reads);
void AddLossScaleUpdate(ProgramBuilder& b);

}  // namespace windtunnel
