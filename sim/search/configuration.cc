#include "sim/search/configuration.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

// "7 + 14 x 8 + 7"
std::string InRuns(const std::vector<int64_t>& values) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    const size_t count = end - i;
    runs.push_back(count > 1 ? fmt::format("{} x {}", count, values[i]) : fmt::format("{}", values[i]));
    i = end;
  }
  return fmt::format("{}", fmt::join(runs, " + "));
}

// "64 (deepep, tensor 1, overlap)"
std::string DescribeExperts(const Configuration& c) {
  std::vector<std::string> how;
  if (c.dispatcher != ExpertDispatcher::kAllToAll) how.emplace_back(WordOf(c.dispatcher));
  if (c.expert_tensor == 1 && c.tensor > 1) how.emplace_back("tensor 1");
  if (c.expert_overlap) how.emplace_back("overlap");
  if (how.empty()) return fmt::format("{}", c.expert);
  return fmt::format("{} ({})", c.expert, fmt::join(how, ", "));
}

}  // namespace

Scenario ScenarioOf(const Scenario& base, const Configuration& c) {
  Scenario s = base;
  s.search.reset();
  s.batch = {c.micro, c.accumulate};
  s.recompute = c.recompute;
  s.recompute_layers = c.recompute_layers;
  s.activation_offload = c.activation_offload;
  if (!c.activation_offload) s.activation_offload_layers = 0;
  if (c.recompute != Recompute::kSelective) s.recompute_modules.clear();
  if (c.recompute != Recompute::kFull) {
    s.recompute_layers = 0;
    s.recompute_every = 1;
  }
  s.cluster.nodes = c.nodes;
  s.cluster.devices_per_node = c.devices_per_node;
  DataParallelSpec& data = s.parallel.data;
  data.kind = c.kind;
  data.size = c.data;
  data.sharding = c.sharding;
  data.shard_size = c.shard_size;
  data.overlap = c.overlap;
  data.offload = c.offload;
  if (base.derived.sync) data.sync = DerivedSync(c.kind, c.pipeline);
  if (base.derived.reshard_after_forward) data.reshard_after_forward = DerivedReshardAfterForward(c.sharding);
  s.parallel.tensor = {.size = c.tensor, .sequence = c.sequence, .overlap = c.overlaps_tensor()};
  s.parallel.context.size = c.context;
  if (c.context > 1) s.parallel.context.kind = c.context_kind;
  const bool sends = c.expert > 1;  // tokens to other ranks
  s.parallel.expert = {.size = c.expert,
                       .tensor = c.expert_tensor,
                       .dispatcher = sends ? c.dispatcher : ExpertDispatcher::kAllToAll,
                       .overlap = sends && c.expert_overlap,
                       .delay_wgrad = sends && c.expert_overlap && base.parallel.expert.delay_wgrad};
  PipelineSpec& pipeline = s.parallel.pipeline;
  pipeline.size = c.pipeline;
  pipeline.schedule = c.pipeline > 1 ? c.schedule : PipelineSpec{}.schedule;
  pipeline.virtual_stages = c.virtual_stages;
  pipeline.balance = c.balance;
  if (base.derived.reduce) s.precision.reduce = DerivedReduce(s);
  return s;
}

std::string Describe(const Configuration& c) {
  std::string text = fmt::format("tensor {} x pipeline {} x data {}", c.tensor, c.pipeline, c.data);
  if (c.context > 1) text += fmt::format(" x context {}", c.context);
  if (c.context > 1 && c.context_kind != ContextKind::kRing)
    text += fmt::format(" ({})", WordOf(c.context_kind));
  if (c.expert > 1) text += ", experts over " + DescribeExperts(c);
  if (c.virtual_stages > 1) text += fmt::format(", {} virtual stages", c.virtual_stages);
  if (c.pipeline > 1 && c.schedule != "1f1b" && c.schedule != "interleaved") text += ", " + c.schedule;
  if (std::adjacent_find(c.balance.begin(), c.balance.end(), std::not_equal_to<>()) != c.balance.end())
    text += fmt::format(", layers {}", InRuns(c.balance));
  text += fmt::format(", micro {} x {}, {}", c.micro, c.accumulate, WordOf(c.kind));
  if (c.kind == DataParallelKind::kFsdp) text += fmt::format(" {}", WordOf(c.sharding));
  if (IsSharded(c.kind) && c.shard_size > 0) text += fmt::format(" in groups of {}", c.shard_size);
  if (c.offload != Offload::kNone) text += fmt::format(", offload {}", WordOf(c.offload));
  if (c.sequence && c.tensor > 1) text += c.overlaps_tensor() ? ", sequence in parts" : ", sequence";
  if (!c.overlap && HasOverlapKey(c.kind)) text += ", no overlap";
  if (c.recompute != Recompute::kNone) text += fmt::format(", recompute {}", WordOf(c.recompute));
  if (c.recompute == Recompute::kFull && c.recompute_layers > 0)
    text += fmt::format(" of {} layers a stage", c.recompute_layers);
  if (c.activation_offload) text += ", activations on the host";
  return text;
}

}  // namespace windtunnel
