#include "plan/axes.h"

#include <algorithm>

#include "scenarios/derived.h"
#include "scenarios/known_schedules.h"

namespace windtunnel {
namespace {

AxisId Add(Plan& plan, Axis axis) {
  plan.axes.push_back(std::move(axis));
  return static_cast<AxisId>(plan.axes.size()) - 1;
}

// The axis groups adjacent ranks, as _get_post_forward_mesh_info of fully_shard does. None is needed for
// groups of one rank or of the whole shard group.
Status AddReshardAxis(Plan& plan, PlanAxes& axes, int shard) {
  const DataParallelSpec& data = plan.scenario.parallel.data;
  const int ranks = static_cast<int>(data.reshard_ranks);
  if (data.kind != DataParallelKind::kFsdp || ranks == 0) return Ok();
  if (plan.scenario.parallel.expert.size > 1) {
    return InvalidInput(
        "parallel.data.reshard_after_forward: {}, expected true or false where ranks share experts, which are "
        "sharded over others",
        ranks);
  }
  if (shard % ranks != 0) {
    return InvalidInput(
        "parallel.data.reshard_after_forward: {} does not divide the {} ranks that share a unit", ranks,
        shard);
  }
  if (ReshardRanks(plan.scenario) > 0) axes.reshard = Add(plan, plan.mesh.DataAxis("reshard", ranks, 1));
  return Ok();
}

Status AddDataAxes(Plan& plan, PlanAxes& axes) {
  const DeviceMesh& mesh = plan.mesh;
  if (mesh.copies() == 1) return Ok();
  axes.data = mesh.copies() == mesh.world_size() ? axes.world : Add(plan, mesh.DataAxis());
  const DataParallelKind kind = plan.scenario.parallel.data.kind;
  const bool replicates =
      kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp || kind == DataParallelKind::kDp;
  if (replicates) return Ok();
  const int shard = static_cast<int>(ShardRanks(plan.scenario));
  if (mesh.copies() % shard != 0) {
    return InvalidInput("parallel.data.shard_size: {} does not divide parallel.data.size x context.size ({})",
                        shard, mesh.copies());
  }
  WT_RETURN_IF_ERROR(AddReshardAxis(plan, axes, shard));
  if (shard == 1 || shard == mesh.copies()) return Ok();
  axes.shard = Add(plan, mesh.DataAxis("shard", shard, 1));
  axes.replicate = Add(plan, mesh.DataAxis("replicate", mesh.copies() / shard, shard));
  return Ok();
}

// The ranks of a shard group that have the same experts shard these experts' states; if no two of its ranks
// do, the states are not sharded.
Status AddExpertAxes(Plan& plan, PlanAxes& axes) {
  const DeviceMesh& mesh = plan.mesh;
  const ParallelSpec& parallel = plan.scenario.parallel;
  const int experts = static_cast<int>(parallel.ExpertDataRanks());
  const bool of_tensor = parallel.TensorRanksHaveExperts();
  axes.expert = Add(plan, mesh.ExpertAxis(static_cast<int>(parallel.expert.size), of_tensor));
  // Only tensor ranks divide the experts: all copies of a tensor rank have the same.
  if (experts == 1) return Ok();
  axes.expert_part = of_tensor ? Add(plan, mesh.DataAxis("expert part", experts, 1)) : axes.expert;
  const int same = mesh.copies() / experts;
  if (same > 1) axes.expert_data = Add(plan, mesh.DataAxis("expert data", same, experts));
  const int shard = static_cast<int>(ShardRanks(plan.scenario));
  if (shard % experts != 0 && experts % shard != 0) {
    return InvalidInput(
        "parallel.data.shard_size: {} ranks share states, expected a divisor or a multiple of the {} of the "
        "data axis that share the experts",
        shard, experts);
  }
  const int sharing = std::max(1, shard / experts);
  if (sharing == same) {
    axes.expert_shard = axes.expert_data;
  } else if (sharing == 1) {
    axes.expert_replicate = axes.expert_data;
  } else {
    axes.expert_shard = Add(plan, mesh.DataAxis("expert shard", sharing, experts));
    axes.expert_replicate = axes.replicate;  // the same ranks of each shard group
  }
  return Ok();
}

void AddPipelineAxes(Plan& plan, PlanAxes& axes) {
  if (!plan.pipeline) return;
  const DeviceMesh& mesh = plan.mesh;
  const Schedule& schedule = plan.pipeline->schedule;
  if (plan.scenario.optimizer.clip_norm > 0 || plan.scenario.precision.scales_loss())
    axes.pipeline = Add(plan, mesh.PipelineAxis());
  // The other stage with the table: that of the head, if tied, or of the modules of multi-token prediction.
  const int first = schedule.rank_of_stage.front();
  const int other = *(schedule.rank_of_stage.end() - (PredictsBeforeLastStage(plan.scenario) ? 2 : 1));
  if (plan.scenario.model.SharesEmbedding() && first != other) {
    axes.embedding = Add(plan, mesh.PairAxis("embedding", std::min(first, other), std::max(first, other)));
  }
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Action& action : schedule.ranks[rank]) {
      if (IsSend(action.kind)) axes.messages[{static_cast<int>(rank), ReceiverOf(schedule, action)}] = -1;
    }
  }
  for (auto& [pair, axis] : axes.messages) {
    axis = Add(
        plan, mesh.PairAxis(fmt::format("pipeline {}>{}", pair.first, pair.second), pair.first, pair.second));
  }
}

}  // namespace

int64_t ShardRanks(const Scenario& s) {
  const DataParallelSpec& data = s.parallel.data;
  const int64_t copies = data.size * s.parallel.context.size;
  switch (data.kind) {
    case DataParallelKind::kZero1:
    case DataParallelKind::kZero2:
    case DataParallelKind::kZero3:
      return data.shard_size > 0 ? data.shard_size : copies;
    case DataParallelKind::kFsdp:
      break;
    default:
      return 1;
  }
  switch (data.sharding) {
    case Sharding::kFullShard:
    case Sharding::kShardGradOp:
      return copies;
    case Sharding::kNoShard:
      return 1;
    case Sharding::kHybridShard:
    case Sharding::kHybridShardZero2:
      break;
  }
  return data.shard_size > 0 ? data.shard_size : std::min(copies, s.cluster.devices_per_node);
}

int64_t ReshardRanks(const Scenario& s) {
  const DataParallelSpec& data = s.parallel.data;
  const bool divides_shards = data.reshard_ranks > 1 && data.reshard_ranks < ShardRanks(s);
  return data.kind == DataParallelKind::kFsdp && divides_shards ? data.reshard_ranks : 0;
}

std::vector<RankGroups> RankGroupsOf(const Scenario& s) {
  using Purpose = RankGroups::Purpose;
  const ParallelSpec& p = s.parallel;
  const int64_t tensor = p.tensor.size, copies = p.data.size * p.context.size, stage = tensor * copies;
  std::vector<RankGroups> all;
  const auto add = [&](Purpose purpose, int64_t ranks, int64_t stride) {
    if (ranks > 1) all.push_back({purpose, ranks, stride});
  };
  add(Purpose::kTensor, tensor, 1);
  add(Purpose::kContext, p.context.size, tensor);
  add(Purpose::kData, copies, tensor);
  const int64_t shard = ShardRanks(s);
  if (shard > 1 && shard < copies) {
    add(Purpose::kShard, shard, tensor);
    add(Purpose::kReplicate, copies / shard, tensor * shard);
  }
  add(Purpose::kReshard, ReshardRanks(s), tensor);
  add(Purpose::kPipeline, p.pipeline.size, stage);
  const int64_t behind =
      PredictsBeforeLastStage(s) ? 1 : 0;  // the stages behind the other one with the table
  const int64_t other = IsVSchedule(p.pipeline.schedule) ? behind : p.pipeline.size - 1 - behind;
  if (s.model.SharesEmbedding() && other > 0) add(Purpose::kEmbedding, 2, stage * other);
  if (p.expert.size == 1) return all;
  add(Purpose::kExpert, p.expert.size, p.TensorRanksHaveExperts() ? 1 : tensor);
  const int64_t parts = p.ExpertDataRanks();
  if (parts == 1) return all;  // all copies of a tensor rank have the same experts
  if (p.TensorRanksHaveExperts()) add(Purpose::kExpertPart, parts, tensor);
  const int64_t same = copies / parts, sharing = shard / parts;
  add(Purpose::kExpertData, same, tensor * parts);
  if (sharing < same) add(Purpose::kExpertShard, sharing, tensor * parts);
  return all;
}

int AxesAcrossNodes(const Scenario& scenario) {
  if (scenario.cluster.nodes < 2) return 0;
  const std::vector<RankGroups> all = RankGroupsOf(scenario);
  using Purpose = RankGroups::Purpose;
  const auto is = [](Purpose purpose) {
    return [=](const RankGroups& groups) { return groups.purpose == purpose; };
  };
  const bool in_shards = std::any_of(all.begin(), all.end(), is(Purpose::kShard));
  const int64_t node = std::max<int64_t>(scenario.cluster.devices_per_node, 1);
  int count = 0;
  for (const RankGroups& groups : all) {
    switch (groups.purpose) {
      case Purpose::kData:
        if (in_shards) continue;
        break;
      case Purpose::kTensor:
      case Purpose::kContext:
      case Purpose::kShard:
      case Purpose::kReplicate:
      case Purpose::kReshard:
      case Purpose::kExpert:
      case Purpose::kExpertData:
        break;
      case Purpose::kExpertPart:
      case Purpose::kExpertShard:
      case Purpose::kPipeline:
      case Purpose::kEmbedding:
        continue;
    }
    if (!groups.LieWithin(node)) ++count;
  }
  return count;
}

Result<PlanAxes> AddAxes(Plan& plan) {
  PlanAxes axes;
  axes.world = Add(plan, MakeAxis("world", plan.world_size, plan.world_size, 1));
  WT_RETURN_IF_ERROR(AddDataAxes(plan, axes));
  const DeviceMesh& mesh = plan.mesh;
  if (mesh.tensor() > 1)
    axes.tensor = mesh.tensor() == mesh.world_size() ? axes.world : Add(plan, mesh.TensorAxis());
  if (mesh.context() > 1) axes.context = Add(plan, mesh.ContextAxis());
  if (plan.scenario.parallel.expert.size > 1) WT_RETURN_IF_ERROR(AddExpertAxes(plan, axes));
  AddPipelineAxes(plan, axes);
  return axes;
}

}  // namespace windtunnel
