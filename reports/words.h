// A scenario in words, for the headers of reports.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace windtunnel {

// "transformer, 4 layers × 256, 4 heads, vocab 8192 · 5.3M parameters", "mlp 10-100-10 · 2.11K parameters"
std::string ModelInWords(const Plan& plan);
// "1 rank", "2 ranks, data 2 (ddp)", "8 ranks, pipeline 4 (interleaved, 2 virtual stages), data 2 (zero1)"
std::string ParallelismInWords(const Scenario& scenario);
// "8 stages of 12 layers", "16 stages of 7, 14 × 6, 5 layers, 2 a rank" (14 stages of 6). REQUIRES:
// plan.pipeline.
std::string PipelineInWords(const Plan& plan);
// "1.05M tokens a step · h100-sxm-80g · framework megatron_core · nodes of 8": what all configurations of a
// search have in common, besides the model.
std::string SearchInWords(const Plan& plan, const std::string& device);
// "2 × 128 tokens a micro-batch, 4 micro-batches a step, 2.05K tokens over all ranks"
std::string BatchInWords(const Plan& plan);
// Ranks as a text of ranges: {0, 1, 2, 5} is "0-2,5". REQUIRES: ascending.
std::string RankRanges(const std::vector<int>& ranks);
// The same after the noun: "ranks 0-2,5", "rank 7".
std::string NamedRanks(const std::vector<int>& ranks);
// "tokens" or, for an MLP, "samples"
std::string TokenWord(const Scenario& scenario);

}  // namespace windtunnel
