// An outcome as a table on standard output: predicted beside measured, memory by rank, where the error comes
// from, and a verdict. The column of a side that the outcome lacks is left out. At most 100 columns wide.
#pragma once

#include <optional>
#include <string>

#include "reports/ink.h"
#include "reports/outcome.h"

namespace windtunnel {

std::string OutcomeTable(const Outcome& outcome, Ink ink);

// "loss 4.3210, perplexity 75.2, on 40 held-out sequences"
std::string DescribeEvaluation(const HeldOutLoss& evaluation);

// "the loss is not a number from step 7 on: training has diverged"; nullopt unless the last steps' losses are
// infinite or not numbers.
std::optional<std::string> DescribeDivergence(const Measurement& measurement);

// One line: "ddp_gpt_2rank: within tolerance: step time -2.3 % (±20 %), peak memory exact". Of a prediction
// alone: that it does not fit in the device; empty if it does, as of a measurement alone.
std::string VerdictLine(const Outcome& outcome, Ink ink);

}  // namespace windtunnel
