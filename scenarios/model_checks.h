// Conditions between the keys of a model.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckTransformer(const ModelSpec& model, Checker& check);
void CheckMlp(const ModelSpec& model, Checker& check);

}  // namespace windtunnel
