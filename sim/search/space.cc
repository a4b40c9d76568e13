#include "sim/search/space.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "plan/balance.h"
#include "scenarios/derived.h"
#include "sim/search/legality.h"

namespace windtunnel {
namespace {

// Each value once.
template <typename T>
std::vector<T> Distinct(const std::vector<T>& range) {
  std::vector<T> values;
  for (const T& value : range)
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  return values;
}

template <typename T>
std::vector<T> RangeOr(const std::vector<T>& range, T own) {
  if (range.empty()) return {own};
  return Distinct(range);
}

Scenario WithoutRanges(Scenario scenario) {
  scenario.search.reset();
  return scenario;
}

class Enumeration {
 public:
  Enumeration(const Scenario& base, const ChooseStages& choose, const std::function<bool()>& stops)
      : base_(WithoutRanges(base)),
        ranges_(*base.search),
        legality_(base_, ranges_, choose),
        stops_(stops),
        global_batch_(base.batch.micro * base.batch.accumulate * base.parallel.data.size) {}

  SearchSpace Run() {
    const ParallelSpec& own = base_.parallel;
    for (int64_t tensor : RangeOr(ranges_.tensor, own.tensor.size))
      for (int64_t pipeline : RangeOr(ranges_.pipeline, own.pipeline.size))
        for (int64_t context : RangeOr(ranges_.context, own.context.size))
          for (int64_t expert : RangeOr(ranges_.expert, own.expert.size))
            for (int64_t virtual_stages : RangeOr(ranges_.virtual_stages, own.pipeline.virtual_stages)) {
              Configuration c;
              c.tensor = tensor;
              c.pipeline = pipeline;
              c.context = context;
              c.expert = expert;
              c.virtual_stages = virtual_stages;
              AddSplits(c);
            }
    return std::move(space_);
  }

 private:
  // How ranks divide tokens and layers.
  void AddSplits(Configuration c) {
    const ParallelSpec& own = base_.parallel;
    for (ContextKind context_kind : RangeOr(ranges_.context_kind, own.context.kind))
      for (bool sequence : RangeOr(ranges_.sequence, own.tensor.sequence))
        for (bool tensor_overlap : RangeOr(ranges_.tensor_overlap, own.tensor.overlap))
          for (bool uneven : RangeOr(ranges_.uneven, false)) {
            c.context_kind = context_kind;
            c.sequence = sequence;
            c.tensor_overlap = tensor_overlap;
            c.uneven = uneven;
            AddExperts(c);
          }
  }

  // How ranks hold experts, and how tokens reach them.
  void AddExperts(Configuration c) {
    const ExpertParallelSpec& own = base_.parallel.expert;
    for (int64_t expert_tensor : ExpertTensors(c.tensor))
      for (ExpertDispatcher dispatcher : RangeOr(ranges_.dispatcher, own.dispatcher))
        for (bool expert_overlap : RangeOr(ranges_.expert_overlap, own.overlap)) {
          c.expert_tensor = expert_tensor;
          c.dispatcher = dispatcher;
          c.expert_overlap = expert_overlap;
          AddSchedules(c);
        }
  }

  // The range's values, each meaning once. 0 and the number of tensor ranks mean the same (with one tensor
  // rank, so does 1): of these the scenario's own is kept, or the first.
  std::vector<int64_t> ExpertTensors(int64_t tensor) const {
    const int64_t own = base_.parallel.expert.tensor;
    const auto says = [&](int64_t value) { return value == tensor ? int64_t{0} : value; };
    std::vector<int64_t> values;
    for (int64_t value : RangeOr(ranges_.expert_tensor, own)) {
      const auto is_same = [&](int64_t other) { return says(other) == says(value); };
      if (std::any_of(values.begin(), values.end(), is_same)) continue;
      values.push_back(is_same(own) ? own : value);
    }
    return values;
  }

  void AddSchedules(Configuration c) {
    const PipelineSpec& own = base_.parallel.pipeline;
    if (c.pipeline == 1 && ranges_.virtual_stages.empty())
      c.virtual_stages = 1;  // the scenario's have no effect
    const bool is_1f1b = own.schedule == "1f1b" || own.schedule == "interleaved";
    const std::string own_schedule = !is_1f1b ? own.schedule : c.virtual_stages > 1 ? "interleaved" : "1f1b";
    const bool derives_stages = base_.derived.virtual_stages && ranges_.virtual_stages.empty();
    for (const std::string& schedule : RangeOr(ranges_.schedule, own_schedule)) {
      c.schedule = schedule;
      if (derives_stages) c.virtual_stages = c.pipeline > 1 ? DerivedVirtualStages(schedule) : 1;
      AddDevices(c);
    }
  }

  // The data-parallel replicas, and with them the devices.
  void AddDevices(Configuration c) {
    const int64_t replica = c.tensor * c.pipeline * c.context;
    if (!ranges_.data.empty()) {
      for (int64_t data : Distinct(ranges_.data)) {
        c.data = data;
        const bool is_in_range =
            ranges_.devices.empty() ||
            std::any_of(ranges_.devices.begin(), ranges_.devices.end(), [&](int64_t devices) {
              return devices % replica == 0 && devices / replica == data;
            });
        AddBatches(c, is_in_range ? nullptr : "the devices are not in search.devices");
      }
      return;
    }
    const int64_t own = base_.cluster.nodes * base_.cluster.devices_per_node;
    for (int64_t devices : RangeOr(ranges_.devices, own)) {
      c.data = std::max<int64_t>(devices / replica, 1);
      AddBatches(
          c, Divides(replica, devices) ? nullptr : "tensor x pipeline x context does not divide the devices");
    }
  }

  void AddBatches(Configuration c, const char* illegal) {
    for (int64_t micro : RangeOr(ranges_.micro, base_.batch.micro)) {
      c.micro = micro;
      if (!ranges_.accumulate.empty()) {
        for (int64_t accumulate : Distinct(ranges_.accumulate)) {
          c.accumulate = accumulate;
          AddStates(c, illegal);
        }
        continue;
      }
      c.accumulate = std::max<int64_t>(global_batch_ / (micro * c.data), 1);
      AddStates(c, illegal);
    }
  }

  void AddStates(Configuration c, const char* illegal) {
    if (stops_ && stops_()) return;
    const DataParallelSpec& own = base_.parallel.data;
    for (DataParallelKind kind : RangeOr(ranges_.kind, own.kind))
      for (Sharding sharding : RangeOr(ranges_.sharding, own.sharding))
        for (int64_t shard_size : RangeOr(ranges_.shard_size, own.shard_size))
          for (bool overlap : RangeOr(ranges_.overlap, own.overlap))
            for (Offload offload : RangeOr(ranges_.offload, own.offload)) {
              c.kind = kind;
              c.sharding = sharding;
              c.shard_size = shard_size;
              c.overlap = overlap;
              c.offload = offload;
              AddRecomputation(c, illegal);
            }
  }

  void AddRecomputation(Configuration c, const char* illegal) {
    for (Recompute recompute : RangeOr(ranges_.recompute, base_.recompute))
      for (int64_t layers : RangeOr(ranges_.recompute_layers, base_.recompute_layers)) {
        for (bool offload : RangeOr(ranges_.activation_offload, base_.activation_offload)) {
          c.recompute = recompute;
          c.recompute_layers = layers;
          c.activation_offload = offload;
          Add(c, illegal);
        }
      }
  }

  void Add(Configuration c, const char* given_reason) {
    ++space_.combinations;
    if (const char* reason = legality_.WhyTooLarge(c)) {
      ++space_.illegal[reason];
      return;
    }
    c.devices_per_node = std::min(base_.cluster.devices_per_node, c.devices());
    c.nodes = c.devices() / c.devices_per_node;
    Derive(c);
    const auto reason = given_reason != nullptr ? given_reason : legality_.WhyIllegal(c);
    if (reason) ++space_.illegal[*reason];
    else space_.legal.push_back(std::move(c));
  }

  void Derive(Configuration& c) {
    if (c.pipeline > 1 && c.schedule.ends_with(".csv") && base_.derived.virtual_stages &&
        ranges_.virtual_stages.empty())
      c.virtual_stages = std::max<int64_t>(StagesOfFile(c) / c.pipeline, 1);
    const int64_t copies = c.data * c.context;
    if (base_.derived.kind && ranges_.kind.empty()) c.kind = DerivedKind(copies);
    const bool has_size = !ranges_.shard_size.empty() && c.shard_size > 0;
    if (base_.derived.shard_size && !has_size)
      c.shard_size = DerivedShardSize(c.kind, c.sharding, c.devices_per_node, c.tensor, copies);
  }

  // 0 if the file cannot be read, or is for another number of micro-batches.
  int64_t StagesOfFile(const Configuration& c) {
    auto [entry, is_new] = stages_of_file_.try_emplace(std::tuple(c.schedule, c.pipeline, c.accumulate), 0);
    if (!is_new) return entry->second;
    if (const auto schedule = ScheduleOf(ScenarioOf(base_, c))) entry->second = schedule->stages();
    return entry->second;
  }

  const Scenario base_;
  const SearchSpec& ranges_;
  Legality legality_;
  const std::function<bool()>& stops_;
  const int64_t global_batch_;
  SearchSpace space_;
  // By what a schedule depends on.
  std::map<std::tuple<std::string, int64_t, int64_t>, int64_t> stages_of_file_;
};

}  // namespace

Result<std::vector<int64_t>> StagesByRoughCosts(const Scenario& scenario) {
  return ChooseBalance(scenario, {RoughTime});
}

Status CheckRanges(const Scenario& scenario) {
  if (scenario.search) return Ok();
  return InvalidInput(
      "{}: search is missing, expected a block of ranges such as {{tensor: [1, 2, 4], micro: [1, 2]}}",
      scenario.source_file.empty() ? scenario.name : scenario.source_file);
}

Result<SearchSpace> EnumerateSpace(const Scenario& scenario, const ChooseStages& choose,
                                   const std::function<bool()>& stops) {
  WT_RETURN_IF_ERROR(CheckRanges(scenario));
  SearchSpace space = Enumeration(scenario, choose, stops).Run();
  if (stops && stops()) return Failed("interrupted while looking for legal configurations");
  if (!space.legal.empty()) return space;
  std::vector<std::string> reasons;
  for (const auto& [reason, count] : space.illegal) reasons.push_back(fmt::format("in {} {}", count, reason));
  return InvalidInput("search: none of {} combinations is legal: {}", space.combinations,
                      fmt::join(reasons, ", "));
}

}  // namespace windtunnel
