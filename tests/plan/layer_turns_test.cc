// The order in which a forward and a backward of two micro-batches run to hide each other's exchange of
// tokens, and what waits for what.
#include "plan/layer_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// Two layers of four experts, two on each rank.
Scenario Overlapped(int64_t micro_batches, bool delay_wgrad) {
  Scenario s = TinyLlama(2);
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
  s.parallel.expert = {.size = 2, .overlap = true, .delay_wgrad = delay_wgrad};
  s.batch.accumulate = micro_batches;
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

bool IsForward(const Op& op) { return op.phase == Phase::kForward || op.phase == Phase::kLoss; }

// Attention, GEMMs of experts and exchanges, such as "F0 experts" for the forward of layer 0. Repeated tags
// appear once.
std::string TagOf(const Op& op) {
  const std::string pass = (IsForward(op) ? "F" : "B") + std::to_string(op.layer) + " ";
  if (std::holds_alternative<AttentionForward>(op.kind) || std::holds_alternative<AttentionBackward>(op.kind))
    return pass + "attention";
  if (std::holds_alternative<GroupedGemm>(op.kind))
    return pass + (op.name.ends_with(".weight") ? "weights" : "experts");
  if (const auto* collective = std::get_if<Collective>(&op.kind);
      collective != nullptr && collective->kind == CollectiveKind::kAllToAll)
    return pass + op.name.substr(op.name.rfind('.') + 1);
  return "";
}
std::vector<std::string> TagsOf(const Program& program) {
  std::vector<std::string> tags;
  for (const Op& op : program.ops) {
    const std::string tag = TagOf(op);
    if (!tag.empty() && (tags.empty() || tags.back() != tag)) tags.push_back(tag);
  }
  return tags;
}

using Tags = std::vector<std::string>;

Tags Joined(std::initializer_list<Tags> parts) {
  Tags all;
  for (const Tags& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
Tags ForwardAlone(const std::string& layer) {
  const std::string pass = "F" + layer;
  return {pass + " attention", pass + " dispatch", pass + " experts", pass + " combine"};
}

// The order of megatron/core/models/common/model_chunk_schedule_plan.py.
Tags Turn(const std::string& forward, const std::string& backward) {
  const std::string f = "F" + forward, b = "B" + backward;
  return {b + " dcombine",  f + " attention", b + " experts", f + " dispatch", b + " weights",
          b + " ddispatch", f + " experts",   f + " combine", b + " attention"};
}
Tags BackwardAlone(const std::string& layer) {
  const std::string b = "B" + layer;
  return {b + " dcombine", b + " experts", b + " ddispatch", b + " weights", b + " attention"};
}

TEST(LayerTurns, GoAsMegatronsDo) {
  const Plan plan = *CompilePlan(Overlapped(2, /*delay_wgrad=*/true));
  EXPECT_EQ(TagsOf(plan.roles[0].steady), Joined({ForwardAlone("0"), ForwardAlone("1"), Turn("0", "1"),
                                                  Turn("1", "0"), BackwardAlone("1"), BackwardAlone("0")}));
}

// Every micro-batch except the first runs its forward along with the backward of the one before.
TEST(LayerTurns, PairEachBackwardWithTheNextForward) {
  const Plan plan = *CompilePlan(Overlapped(3, false));
  std::vector<std::pair<bool, int>> passes;  // attention's
  for (const Op& op : plan.roles[0].steady.ops)
    if (TagOf(op).ends_with("attention")) passes.emplace_back(IsForward(op), op.micro_batch);
  const std::pair<bool, int> f0{true, 0}, f1{true, 1}, f2{true, 2}, b0{false, 0}, b1{false, 1}, b2{false, 2};
  EXPECT_EQ(passes, (std::vector{f0, f0, f1, b0, f1, b0, f2, b1, f2, b1, b2, b2}));
}

// An exchange waits only for its own micro-batch on the compute stream, so the other's computation runs
// beside it; and none of that computation waits for the exchange.
TEST(LayerTurns, LetExchangesWaitForTheirOwnMicroBatchOnly) {
  for (const bool delay_wgrad : {false, true}) {
    const Plan plan = *CompilePlan(Overlapped(4, delay_wgrad));
    const std::vector<Op>& ops = plan.roles[0].steady.ops;
    const auto is_exchange = [](const Op& op) {
      const auto* collective = std::get_if<Collective>(&op.kind);
      return collective != nullptr && collective->kind == CollectiveKind::kAllToAll;
    };
    int exchanges = 0;
    for (const Op& op : ops) {
      exchanges += is_exchange(op);
      for (OpIndex dependency : op.dependencies) {
        if ((!is_exchange(op) && !is_exchange(ops[dependency])) || op.phase == Phase::kEnd) continue;
        EXPECT_EQ(op.micro_batch, ops[dependency].micro_batch)
            << op.name << " after " << ops[dependency].name;
        EXPECT_EQ(op.layer, ops[dependency].layer) << op.name << " after " << ops[dependency].name;
      }
    }
    EXPECT_EQ(exchanges, 4 * 2 * 4);
  }
}

// Delayed weight gradients come after the exchange, which no longer waits for them.
TEST(LayerTurns, PutGradientsOfWeightsBehindTheExchange) {
  const Plan plan = *CompilePlan(Overlapped(2, true));
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  int found = 0;
  for (const Op& op : ops) {
    if (!TagOf(op).ends_with("ddispatch")) continue;
    for (OpIndex dependency : op.dependencies)
      EXPECT_FALSE(ops[dependency].name.ends_with(".weight")) << ops[dependency].name;
    ++found;
  }
  EXPECT_EQ(found, 4);
}

// The host waits for the counts of tokens only after it has issued the computation that runs meanwhile.
TEST(LayerTurns, LetTheHostWaitForCountsBehindTheBackwardOfExperts) {
  Scenario s = Overlapped(2, true);
  s.model.experts->capacity_factor = 0;
  s.framework = Framework::kMegatronCore;
  s.cluster.device = "h100-sxm-80g";
  s.run.backend = Backend::kNccl;
  const Plan plan = *CompilePlan(s);
  std::vector<std::string> around;
  std::string last;
  for (const Op& op : plan.roles[0].steady.ops) {
    if (std::holds_alternative<HostWait>(op.kind)) around.push_back(last);
    if (const std::string tag = TagOf(op); !tag.empty()) last = tag;
  }
  EXPECT_EQ(around, (Tags{"F0 attention", "F1 attention", "B1 experts", "B0 experts"}));
}

TEST(LayerTurns, HoldTwoMicroBatchesActivationsAtOnce) {
  const auto peak = [](const Scenario& s) {
    const Plan plan = *CompilePlan(s);
    int64_t now = 0, most = 0;
    for (const MemoryOp& op : plan.roles[0].steady.memory) {
      const Buffer& buffer = plan.roles[0].buffers[op.buffer];
      if (buffer.category != Category::kActivations) continue;
      now += op.allocates() ? buffer.bytes.count() : -buffer.bytes.count();
      most = std::max(most, now);
    }
    return most;
  };
  Scenario plain = Overlapped(3, false);
  plain.parallel.expert.overlap = false;
  EXPECT_GT(peak(Overlapped(3, false)), peak(plain));
  EXPECT_LT(peak(Overlapped(3, false)), 2 * peak(plain));
  EXPECT_EQ(peak(Overlapped(3, false)), peak(Overlapped(6, false)));
}

}  // namespace
}  // namespace windtunnel
