// Checks of model.lora.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// REQUIRES: the model's own checks found nothing.
void CheckLora(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
