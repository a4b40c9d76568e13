// Conditions between the keys of a model.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/model_spec.h"

namespace windtunnel {

void CheckTransformer(const ModelSpec& model, Checker& check);
void CheckMlp(const ModelSpec& model, Checker& check);

}  // namespace windtunnel
