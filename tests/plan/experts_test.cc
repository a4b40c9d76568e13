// What a mixture of experts sends and computes, over which ranks gradients are summed, and how its size is
// counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "plan/experts.h"
#include "plan/plan.h"
#include "tests/plan/plan_checks.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario Experts(Scenario s, int64_t expert_ranks,
                 ExpertsSpec spec = {.count = 4, .top_k = 2, .capacity_factor = 1.5}) {
  s.model.experts = spec;
  s.parallel.expert.size = expert_ranks;
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

// 32 tokens x 2 of 4 experts: 16 rows per expert and rank on average, with room for 24.
TEST(Experts, KeepRoomByTheCapacityFactor) {
  const Plan plan = *CompilePlan(Experts(TinyLlama(2), 2));
  // Forward: up and down of the rank's 2 experts, each with room for both ranks' 24.
  EXPECT_EQ(Count<GroupedGemm>(plan,
                               [](const Op& op, const GroupedGemm& g) {
                                 return op.layer == 0 && op.phase == Phase::kForward && g.groups == 2 &&
                                        g.m == 48;
                               }),
            2);
  EXPECT_EQ(Count<GroupedGemm>(plan, [](const Op&, const GroupedGemm&) { return true; }), 2 * 2 * 3);
}

TEST(Experts, SendTokensThereAndBackForwardAndBackward) {
  const Plan plan = *CompilePlan(Experts(TinyLlama(2), 2));
  for (Phase phase : {Phase::kForward, Phase::kBackward}) {
    EXPECT_EQ(Count<Collective>(plan,
                                [&](const Op& op, const Collective& c) {
                                  return op.layer == 0 && op.phase == phase &&
                                         c.kind == CollectiveKind::kAllToAll && c.elements == 4 * 24 * 32;
                                }),
              2);
  }
  const Plan whole = *CompilePlan(Experts(TinyLlama(2), 1));
  EXPECT_EQ(Count<Collective>(
                whole, [](const Op&, const Collective& c) { return c.kind == CollectiveKind::kAllToAll; }),
            0);
}

// With two expert ranks, two tensor ranks that split tokens each send 12 of every expert's 24. What has
// arrived is gathered over tensor ranks, and summed and scattered on its way back.
TEST(Experts, TensorRanksSendTheirOwnTokens) {
  const auto collectives = [](const Plan& plan, CollectiveKind kind, int64_t elements) {
    return Count<Collective>(plan, [&](const Op& op, const Collective& c) {
      return op.layer == 0 && op.phase == Phase::kForward && c.kind == kind && c.elements == elements;
    });
  };
  const auto with_tensor_ranks = [](bool sequence, int expert_ranks) {
    Scenario s = Experts(TinyLlama(2), expert_ranks);
    s.parallel.tensor = {.size = 2, .sequence = sequence};
    s.cluster.devices_per_node = s.WorldSize();
    return *CompilePlan(s);
  };
  const int64_t arrived = 2 * 2 * 12 * 32;  // for the rank's experts, from every expert rank
  const Plan own = with_tensor_ranks(true, 2);
  EXPECT_EQ(collectives(own, CollectiveKind::kAllToAll, 4 * 12 * 32), 2);
  EXPECT_EQ(collectives(own, CollectiveKind::kAllGather, 2 * arrived), 1);
  EXPECT_EQ(collectives(own, CollectiveKind::kReduceScatter, 2 * arrived), 1);
  EXPECT_EQ(Count<RouteTokens>(own, [](const Op&, const RouteTokens& r) { return r.tokens == 16; }), 2);
  EXPECT_EQ(Count<GroupedGemm>(own,
                               [](const Op& op, const GroupedGemm& g) {
                                 return op.layer == 0 && op.phase == Phase::kForward && g.groups == 2 &&
                                        g.m == 48;
                               }),
            2);
  // Where ranks do not split tokens, or have all experts, each routes all tokens.
  const Plan all = with_tensor_ranks(false, 2);
  EXPECT_EQ(collectives(all, CollectiveKind::kAllToAll, 4 * 24 * 32), 2);
  EXPECT_EQ(Count<RouteTokens>(all, [](const Op&, const RouteTokens& r) { return r.tokens == 32; }), 2);
  const Plan at_home = with_tensor_ranks(true, 1);
  EXPECT_EQ(Count<RouteTokens>(at_home, [](const Op&, const RouteTokens& r) { return r.tokens == 32; }), 2);
}

std::vector<int> GroupOf(const Plan& plan, std::string_view axis, int rank) {
  for (const Axis& other : plan.axes)
    if (other.name == axis) return other.GroupOf(rank).ranks;
  return {};
}

// Two tensor ranks with experts of their own and two data ranks make four expert ranks. Each routes and sends
// its own 16 tokens, has one whole expert, and gathers nothing for it.
TEST(Experts, TensorRanksMayHaveExpertsOfTheirOwn) {
  Scenario s = Experts(TinyLlama(4), 1);
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.parallel.expert = {.size = 4, .tensor = 1};
  s.cluster.devices_per_node = s.WorldSize();
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(Count<RouteTokens>(plan, [](const Op&, const RouteTokens& r) { return r.tokens == 16; }), 2);
  EXPECT_EQ(Count<GroupedGemm>(plan,
                               [&](const Op& op, const GroupedGemm& g) {
                                 return op.phase == Phase::kForward && g.groups == 1 && g.m == 4 * 12 &&
                                        g.k == s.model.ffn;  // down, undivided
                               }),
            2);
  EXPECT_EQ(GroupOf(plan, "expert", 5), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(GroupOf(plan, "expert data", 5), (std::vector<int>{1, 5}));
  const auto& parameters = plan.roles[0].parameters;
  const auto up = std::find_if(parameters.begin(), parameters.end(), [](const Parameter& parameter) {
    return parameter.name == "blocks.0.mlp.experts.up.weight";
  });
  ASSERT_NE(up, parameters.end());
  EXPECT_EQ(up->elements, WholeElements(*up) / 4);
  EXPECT_EQ(up->expert_stride, 2 * up->elements);  // behind the other tensor rank's
}

// By simulation: tokens choose `top_k` of the experts in `top_k_groups` groups at random.
double ShareReachingByTrial(const ExpertsSpec& spec, int64_t bin) {
  std::mt19937 random(7);
  constexpr int kTokens = 20'000;
  const int groups = spec.groups > 0 ? spec.groups : 1, chosen = spec.groups > 0 ? spec.top_k_groups : 1;
  const int each = spec.count / groups;
  int reached = 0;
  for (int token = 0; token < kTokens; ++token) {
    std::vector<int> order(static_cast<size_t>(groups)), experts;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int g = 0; g < chosen; ++g)
      for (int e = 0; e < each; ++e) experts.push_back(order[static_cast<size_t>(g)] * each + e);
    std::shuffle(experts.begin(), experts.end(), random);
    reached += std::any_of(experts.begin(), experts.begin() + spec.top_k, [&](int e) { return e < bin; });
  }
  return reached / static_cast<double>(kTokens);
}

TEST(Experts, ReachRanksAndNodesAsOftenAsTrialsDo) {
  const ExpertsSpec plain{.count = 256, .top_k = 8};
  EXPECT_NEAR(ShareReaching(plain, 4), 0.120, 0.001);
  EXPECT_NEAR(ShareReaching(plain, 32), 0.662, 0.001);
  EXPECT_EQ(ShareReaching(plain, 256), 1);
  const ExpertsSpec in_groups{.count = 64, .top_k = 6, .groups = 8, .top_k_groups = 3};
  for (const ExpertsSpec& spec : {plain, in_groups, ExpertsSpec{.count = 16, .top_k = 1}}) {
    for (const int64_t bin : {1, 4, 8, 12, 16})  // part of a group, one, one and a half, two
      EXPECT_NEAR(ShareReaching(spec, bin), ShareReachingByTrial(spec, bin), 0.015)
          << spec.count << ' ' << bin;
  }
}

// Four ranks on one node have 32 tokens each, which choose two of four experts. A rank gets 1 - C(3, 2) /
// C(4, 2) = 1/2 of all tokens, once each.
TEST(Experts, DeepEpSendsATokenOnceToARank) {
  Scenario s = Experts(TinyLlama(4), 4, {.count = 4, .top_k = 2, .capacity_factor = 0});
  s.parallel.expert.dispatcher = ExpertDispatcher::kDeepEp;
  const Plan plan = *CompilePlan(s);
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    EXPECT_EQ(Count<Collective>(plan,
                                [&](const Op& op, const Collective& c) {
                                  return op.layer == 0 && op.phase == phase &&
                                         c.kind == CollectiveKind::kTokenExchange && c.elements == 32 * 32 &&
                                         std::abs(c.reach.rank - 0.5) < 1e-12 && c.reach.node == 1;
                                }),
              2);
  }
  EXPECT_EQ(Count<Collective>(
                plan, [](const Op&, const Collective& c) { return c.kind == CollectiveKind::kAllToAll; }),
            0);
  // The same rows in the end: 64 on average.
  EXPECT_EQ(Count<DispatchTokens>(
                plan, [](const Op&, const DispatchTokens& d) { return d.tokens == 64 && d.rows == 64; }),
            2);
  EXPECT_EQ(Count<GroupedGemm>(plan, [](const Op&, const GroupedGemm& g) { return g.m == 64 || g.k == 64; }),
            2 * 2 * 3);
}

// Megatron-Core multiplies the activation's output by the router's weights, which it sends along with the
// tokens. So it keeps nothing of the experts' output, which others keep for the gradients of these weights.
TEST(Experts, MegatronCoreKeepsNothingOfWhatTheyGive) {
  const auto freed_in_forward = [](const Plan& plan) {
    const Role& role = plan.roles[0];
    for (const MemoryOp& op : role.steady.memory)
      if (!op.allocates() && role.buffers[op.buffer].name == "blocks.0.mlp.combine.exchanged")
        return op.phase == Phase::kForward;
    return false;
  };
  const auto exchanged = [](const Plan& plan, Phase phase, int64_t elements) {
    return Count<Collective>(plan, [&](const Op& op, const Collective& c) {
      return op.layer == 0 && op.phase == phase && c.kind == CollectiveKind::kAllToAll &&
             c.elements == elements;
    });
  };
  Scenario s = Experts(TinyLlama(2), 2, {.count = 4, .top_k = 2, .capacity_factor = 0});
  const Plan own = *CompilePlan(s);
  s.framework = Framework::kMegatronCore;
  const Plan core = *CompilePlan(s);
  EXPECT_FALSE(freed_in_forward(own));
  EXPECT_TRUE(freed_in_forward(core));
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    EXPECT_EQ(exchanged(own, phase, 32 * 2), 0);
    EXPECT_EQ(exchanged(core, phase, 32 * 2), 1);  // a number for each row
    EXPECT_EQ(exchanged(core, phase, 32 * 2 * 32), exchanged(own, phase, 32 * 2 * 32));
  }
  EXPECT_EQ(Count<ActivationForward>(core, [](const Op&, const ActivationForward& a) { return a.weighted; }),
            2);
  EXPECT_EQ(Count<CombineBackward>(core, [](const Op&, const CombineBackward& c) { return c.weighted; }), 0);
}

// Both GEMMs of an expert may have biases. Megatron-Core adds those of the experts' output separately.
TEST(Experts, MayHaveBiases) {
  Scenario s = Experts(TinyLlama(2), 2);
  const int64_t without = CompilePlan(s)->model.parameters;
  s.model.experts->bias = true;
  const Plan own = *CompilePlan(s);
  EXPECT_EQ(own.model.parameters, without + 2 * 4 * (2 * s.model.ffn + s.model.hidden));
  const auto added = [](const Plan& plan, bool apart) {
    return Count<AddBias>(plan, [&](const Op& op, const AddBias& a) {
      return op.layer == 0 && a.groups == 2 && a.apart == apart;
    });
  };
  EXPECT_EQ(added(own, false), 2);
  EXPECT_EQ(added(own, true), 0);
  s.framework = Framework::kMegatronCore;
  const Plan core = *CompilePlan(s);
  EXPECT_EQ(added(core, false), 1);
  EXPECT_EQ(added(core, true), 1);
}

Scenario DroplessInFp8(int64_t expert_ranks) {
  Scenario s = Experts(TinyLlama(expert_ranks), expert_ranks, {.count = 4, .top_k = 2, .capacity_factor = 0});
  s.precision.param = s.precision.reduce = Precision::kBf16;
  s.precision.compute = Precision::kFp8;
  s.precision.fp8_recipe = Fp8Recipe::kTensorwise;
  s.framework = Framework::kMegatronCore;
  return s;
}

int ProductsInFp8(const Plan& plan) {
  return Count<GroupedGemm>(plan, [](const Op&, const GroupedGemm& g) { return g.dtype == DType::kFloat8; });
}

// Transformer Engine's grouped linear layers convert each expert's rows at a scale of its own, and keep what
// backward needs in fp8.
TEST(Experts, ComputeInFp8UnderTransformerEngineAlone) {
  Scenario s = DroplessInFp8(2);
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(ProductsInFp8(plan), 2 * 2 * 3);
  // In each layer: both inputs, both gradients, and both weights.
  const auto of_each = [](const Op&, const Fp8Amax& a) { return a.groups == 2 && a.numbers() == 2; };
  EXPECT_EQ(Count<Fp8Amax>(plan, of_each), 2 * (2 + 2 + 2));
  for (const Framework framework : {Framework::kPytorch, Framework::kPytorchCompile}) {
    s.framework = framework;
    EXPECT_EQ(ProductsInFp8(*CompilePlan(s)), 0);
  }
}

// In fp4 the rows of all experts are converted together; weights each by itself.
TEST(Experts, ConvertTheRowsOfAllExpertsIntoFp4Together) {
  Scenario s = DroplessInFp8(2);
  s.model.ffn = 64;
  s.batch.micro = 4;
  s.precision.fp8_recipe = Fp8Recipe::kNvfp4;
  const Plan plan = *CompilePlan(s);
  int of_weights = 0;
  EXPECT_GT(Count<Fp8Cast>(plan,
                           [&](const Op& op, const Fp8Cast& cast) {
                             if (cast.groups == 1) {
                               EXPECT_FALSE(cast.together) << op.name;
                               return false;
                             }
                             const bool is_weight = op.name.ends_with(".weight");
                             EXPECT_NE(cast.together, is_weight) << op.name;
                             of_weights += is_weight ? 1 : 0;
                             return cast.together;
                           }),
            0);
  EXPECT_GT(of_weights, 0);
}

// The projections to latents and from them take fp8 as other linear layers do; and no layer of modules does,
// if they are said to stay in 16 bits.
TEST(Experts, LatentsTakeFp8AndModulesMayNot) {
  Scenario s = DroplessInFp8(2);
  s.model.experts->latent = 16;
  s.model.mtp = TokenPredictionSpec{.layers = 1};
  const auto in_fp8 = [&](const char* part) {
    return Count<Gemm>(*CompilePlan(s), [&](const Op& op, const Gemm& gemm) {
      return gemm.dtype == DType::kFloat8 && op.name.find(part) != std::string::npos;
    });
  };
  const auto grouped_in_fp8 = [&] {
    return Count<GroupedGemm>(*CompilePlan(s), [](const Op& op, const GroupedGemm& gemm) {
      return gemm.dtype == DType::kFloat8 && op.name.starts_with("mtp.");
    });
  };
  EXPECT_EQ(in_fp8(".latent_down"), 3 * 3) << "two layers and a module, forward and both gradients";
  EXPECT_EQ(in_fp8(".latent_up"), 3 * 3);
  EXPECT_GT(in_fp8("mtp."), 0);
  EXPECT_GT(grouped_in_fp8(), 0);
  s.model.mtp->fp8 = false;
  EXPECT_EQ(in_fp8(".latent_down"), 2 * 3);
  EXPECT_EQ(in_fp8("mtp."), 0);
  EXPECT_EQ(grouped_in_fp8(), 0);
}

// Tensor ranks need not agree on the scales of experts that no other tensor rank has.
TEST(Experts, OfTensorRanksHaveScalesOfTheirOwn) {
  Scenario s = DroplessInFp8(4);
  s.parallel.data.size = 2;
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.parallel.expert.tensor = 1;
  const Plan plan = *CompilePlan(s);
  const auto agreed = [&](std::string_view part) {
    return Count<Collective>(plan, [&](const Op& op, const Collective& c) {
      return c.reduction == Reduction::kMax && op.name.find(part) != std::string::npos;
    });
  };
  EXPECT_EQ(ProductsInFp8(plan), 2 * 2 * 3);
  EXPECT_EQ(agreed("experts"), 0);
  EXPECT_GT(agreed("attn"), 0);
}

// Without a limit nothing is padded, and the busiest expert's rank decides. Of the 64 rows of each of 2 ranks
// it gets 32 for the busiest expert, and a third of the others for its other one.
TEST(Experts, WithoutALimitHaveTheBusiestRanksLoad) {
  const ExpertsSpec spec{.count = 4, .top_k = 2, .capacity_factor = 0, .imbalance = 2};
  const Plan plan = *CompilePlan(Experts(TinyLlama(2), 2, spec));
  EXPECT_EQ(Count<GroupedGemm>(plan,
                               [](const Op& op, const GroupedGemm& g) {
                                 return op.layer == 0 && op.phase == Phase::kForward &&
                                        g.m == (2 * (32 * 3 + 32) / 3 + 1) / 2;
                               }),
            2);
  EXPECT_EQ(Count<DispatchTokens>(plan, [](const Op&, const DispatchTokens& d) { return d.rows == 32 * 2; }),
            2);
}

// A rank that has all experts has all rows and no more, whatever the imbalance is.
TEST(Experts, ImbalanceMakesNoRows) {
  for (const double imbalance : {1.0, 1.5, 2.0}) {
    const ExpertsSpec spec{.count = 4, .top_k = 2, .capacity_factor = 0, .imbalance = imbalance};
    const Plan plan = *CompilePlan(Experts(TinyLlama(2), 1, spec));
    EXPECT_EQ(Count<GroupedGemm>(plan,
                                 [](const Op& op, const GroupedGemm& g) {
                                   return op.layer == 0 && op.phase == Phase::kForward &&
                                          g.m * g.groups == 32 * 2;
                                 }),
              2);
  }
}

TEST(Experts, GradientsAreAddedUpOverTheRanksThatHaveThem) {
  const Plan plan = *CompilePlan(Experts(TinyLlama(4), 2));
  const Role& role = plan.roles[0];
  for (const Op& op : role.steady.ops) {
    const auto* c = std::get_if<Collective>(&op.kind);
    if (c == nullptr || c->kind != CollectiveKind::kAllReduce || !op.name.starts_with("bucket")) continue;
    ASSERT_FALSE(op.parameters.empty());
    const bool of_experts = role.parameters[op.parameters.front()].is_of_experts();
    for (int parameter : op.parameters) EXPECT_EQ(role.parameters[parameter].is_of_experts(), of_experts);
    EXPECT_EQ(plan.axes[role.streams[op.stream].axis].size(), of_experts ? 2 : 4);
  }
  for (const Axis& axis : plan.axes) {
    if (axis.name == "expert") {
      EXPECT_EQ(axis.GroupOf(3).ranks, (std::vector<int>{2, 3}));
    }
    if (axis.name == "expert data") {
      EXPECT_EQ(axis.GroupOf(3).ranks, (std::vector<int>{1, 3}));
    }
  }
}

// A token's FLOPs include those of k experts, or of half as many if there is room for half of the tokens.
TEST(Experts, ModelFlopsAreThoseOfTheExpertsThatTokensReach) {
  const auto flops = [](ExpertsSpec spec) {
    return CompilePlan(Experts(TinyLlama(2), 2, spec))->model.flops_per_token.count();
  };
  const double one = flops({.count = 4, .top_k = 1, .capacity_factor = 1}),
               two = flops({.count = 4, .top_k = 2, .capacity_factor = 1});
  EXPECT_GT(two, one);
  EXPECT_DOUBLE_EQ(flops({.count = 4, .top_k = 2, .capacity_factor = 2.5}), two);
  EXPECT_DOUBLE_EQ(flops({.count = 4, .top_k = 2, .capacity_factor = 0}), two);
  EXPECT_DOUBLE_EQ(flops({.count = 4, .top_k = 2, .capacity_factor = 0.5}), one);
}

// If an expert is busier than others, its rank receives more than it sends, in both directions.
TEST(Experts, TheBusiestRankDecidesBothWays) {
  const ExpertsSpec spec{.count = 4, .top_k = 2, .capacity_factor = 0, .imbalance = 2};
  const Plan plan = *CompilePlan(Experts(TinyLlama(4), 4, spec));
  EXPECT_EQ(Count<Collective>(plan,
                              [](const Op&, const Collective& c) {
                                return c.kind == CollectiveKind::kAllToAll && c.elements == 4 * 32 * 32;
                              }),
            2 * 4);
}

// A shared expert's GEMMs are those of a dense MLP of its width, without any biases. Tensor ranks sum both.
TEST(Experts, OneThatAllTokensGoToIsADenseMlpBesideTheOthers) {
  const ExpertsSpec without{.count = 4, .top_k = 1}, with{.count = 4, .top_k = 1, .shared_ffn = 64};
  for (const Scenario& s : {TinyLlama(2), TinyGpt(2)}) {
    const Plan dense = *CompilePlan(Experts(s, 2, without)), shared = *CompilePlan(Experts(s, 2, with));
    const int64_t matrices = IsGated(s.model.activation) ? 3 : 2;
    EXPECT_EQ(shared.model.parameters - dense.model.parameters, 2 * matrices * 32 * 64);
    EXPECT_DOUBLE_EQ(shared.model.flops_per_token.count() - dense.model.flops_per_token.count(),
                     6.0 * 2 * static_cast<double>(matrices) * 32 * 64);
    const auto products = [](const Plan& plan) {
      return Count<Gemm>(plan, [](const Op& op, const Gemm& gemm) {
        return op.layer == 1 && op.phase == Phase::kForward &&
               (gemm.n == 64 || gemm.n == 128 || gemm.k == 64);
      });
    };
    EXPECT_EQ(products(shared) - products(dense), 2);
    for (const Parameter& parameter : shared.roles[0].parameters)
      EXPECT_EQ(parameter.is_of_experts(), parameter.name.find("mlp.experts.") != std::string::npos)
          << parameter.name;
  }
}

// ---- sharded

Scenario Fsdp(Scenario s, int version = 2) {
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.version = version;
  return s;
}
Scenario Hybrid(Scenario s, int64_t shard_size) {
  s = Fsdp(s);
  s.parallel.data.sharding = Sharding::kHybridShard;
  s.parallel.data.shard_size = shard_size;
  return s;
}

// The axis of the steady step's collectives of `kind`, by the units that they are for.
std::map<std::string, std::string> AxesOf(const Plan& plan, CollectiveKind kind) {
  std::map<std::string, std::string> axes;
  const Role& role = plan.roles[0];
  for (const Op& op : role.steady.ops) {
    const auto* c = std::get_if<Collective>(&op.kind);
    if (c == nullptr || c->kind != kind || op.parameters.empty()) continue;
    const bool of_experts = role.parameters[op.parameters.front()].is_of_experts();
    for (int parameter : op.parameters) EXPECT_EQ(role.parameters[parameter].is_of_experts(), of_experts);
    axes[of_experts ? "experts" : "rest"] = plan.axes[role.streams[op.stream].axis].name;
  }
  return axes;
}
using Axes = std::map<std::string, std::string>;

TEST(ShardedExperts, AreGatheredAndReducedAmongTheRanksThatHaveThem) {
  const Plan plan = *CompilePlan(Fsdp(Experts(TinyLlama(4), 2)));
  const Axes over = {{"experts", "expert data"}, {"rest", "world"}};
  EXPECT_EQ(AxesOf(plan, CollectiveKind::kAllGather), over);
  EXPECT_EQ(AxesOf(plan, CollectiveKind::kReduceScatter), over);
  EXPECT_EQ(AxesOf(plan, CollectiveKind::kAllReduce), Axes());
}

// With as many expert ranks as data ranks, no other rank has a rank's experts.
TEST(ShardedExperts, StayWhereOneRankHasThem) {
  const Plan plan = *CompilePlan(Fsdp(Experts(TinyLlama(2), 2)));
  EXPECT_EQ(AxesOf(plan, CollectiveKind::kAllGather), (Axes{{"rest", "world"}}));
  EXPECT_EQ(AxesOf(plan, CollectiveKind::kReduceScatter), (Axes{{"rest", "world"}}));
}

TEST(ShardedExperts, FollowTheShardGroups) {
  // Two groups of four ranks, with each expert twice: shards within, sums across.
  const Plan both = *CompilePlan(Hybrid(Experts(TinyLlama(8), 2), 4));
  EXPECT_EQ(AxesOf(both, CollectiveKind::kAllGather), (Axes{{"experts", "expert shard"}, {"rest", "shard"}}));
  EXPECT_EQ(AxesOf(both, CollectiveKind::kAllReduce),
            (Axes{{"experts", "replicate"}, {"rest", "replicate"}}));
  for (const Axis& axis : both.axes) {
    if (axis.name == "expert shard") {
      EXPECT_EQ(axis.GroupOf(3).ranks, (std::vector<int>{1, 3}));
    }
    if (axis.name == "replicate") {
      EXPECT_EQ(axis.GroupOf(3).ranks, (std::vector<int>{3, 7}));
    }
  }
  // Groups that have each expert once, or not all of them, have no shards.
  for (int64_t shard_size : {2, 1}) {
    const Plan none = *CompilePlan(Hybrid(Experts(TinyLlama(4), 2), shard_size));
    EXPECT_EQ(AxesOf(none, CollectiveKind::kAllGather).count("experts"), 0u);
    EXPECT_EQ(AxesOf(none, CollectiveKind::kAllReduce).at("experts"), "expert data");
  }
}

// Whatever the wrap policy is, experts are units of their own, since one message cannot go over two groups.
TEST(ShardedExperts, AreUnitsOfTheirOwn) {
  for (WrapPolicy::Kind wrap : {WrapPolicy::Kind::kBlock, WrapPolicy::Kind::kRoot}) {
    Scenario s = Fsdp(Experts(TinyLlama(4), 2));
    s.parallel.data.wrap.kind = wrap;
    const Plan plan = *CompilePlan(s);
    int gathers = 0;
    for (const Op& op : plan.roles[0].steady.ops) {
      if (op.name != "blocks.1.mlp.experts" || OperatorName(op.kind) != "all_gather") continue;
      ++gathers;
      ASSERT_EQ(op.parameters.size(), 2u);
      EXPECT_EQ(plan.roles[0].parameters[op.parameters[0]].name, "blocks.1.mlp.experts.up.weight");
      EXPECT_EQ(plan.roles[0].parameters[op.parameters[1]].name, "blocks.1.mlp.experts.down.weight");
    }
    EXPECT_EQ(gathers, 2);  // forward and backward
  }
}

// Experts' collectives have groups of their own, but wait for those of other units: only one runs at a time.
TEST(ShardedExperts, TakeTurnsWithOtherUnits) {
  const Plan plan = *CompilePlan(Fsdp(Experts(TinyLlama(4), 2)));
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  std::map<CollectiveKind, OpIndex> last;
  int turns = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto* c = std::get_if<Collective>(&ops[i].kind);
    const bool shards =
        c != nullptr && (c->kind == CollectiveKind::kAllGather || c->kind == CollectiveKind::kReduceScatter);
    if (!shards || ops[i].parameters.empty()) continue;
    const auto before = last.find(c->kind);
    if (before != last.end() && ops[before->second].stream != ops[i].stream) {
      const std::vector<OpIndex>& after = ops[i].dependencies;
      EXPECT_NE(std::find(after.begin(), after.end(), before->second), after.end()) << ops[i].name;
      ++turns;
    }
    last[c->kind] = static_cast<OpIndex>(i);
  }
  EXPECT_GE(turns, 8);
}

// Each of N ranks keeps 1 / N of all parameters, however many ways experts are split (rows divide evenly
// here). Experts are there once among all ranks.
TEST(ShardedExperts, LeaveEveryRankItsPartOfAllParameters) {
  for (int64_t experts : {2, 4}) {
    const Plan plan = *CompilePlan(Fsdp(Experts(TinyLlama(4), experts)));
    int64_t bytes = 0;
    for (const Buffer& buffer : plan.roles[0].buffers)
      if (buffer.name.ends_with(" shard")) bytes += buffer.bytes.count();
    EXPECT_EQ(bytes, plan.model.parameters * 4 / 4);
  }
}

// No part of the gradients counts twice in the norm.
TEST(ShardedExperts, CountOnceInTheNorm) {
  const auto norms = [](Scenario s) {
    s.optimizer.clip_norm = 1;
    const Plan plan = *CompilePlan(s);
    std::map<int, int> replicas;  // by number of ranks: how many tensors count as held by that many
    std::vector<std::string> sums;
    for (const Op& op : plan.roles[0].steady.ops) {
      if (const auto* norm = std::get_if<GradientNorm>(&op.kind)) {
        for (auto ranks : norm->replicas) ++replicas[static_cast<int>(ranks)];
      }
      if (op.name == "gradient_norm" && IsCommunication(op.kind))
        sums.push_back(plan.axes[plan.roles[0].streams[op.stream].axis].name);
    }
    return std::pair(replicas, sums);
  };
  const auto full = norms(Fsdp(Experts(TinyLlama(4), 2)));
  EXPECT_EQ(full.first, (std::map<int, int>{}));
  EXPECT_EQ(full.second, (std::vector<std::string>{"world"}));
  // Two ranks share the rest, four the experts: summed over four, the rest is there twice.
  const auto split = norms(Hybrid(Experts(TinyLlama(4), 4), 2));
  EXPECT_EQ(split.first.at(1), 4);  // two matrices in either layer
  EXPECT_EQ(split.first.size(), 2u);
  EXPECT_EQ(split.first.count(2), 1u);
  EXPECT_EQ(split.second, (std::vector<std::string>{"expert"}));
}

// Mixtral 8x7B has 46,702,792,704 parameters, of which a token sees 12,879,925,248 (published as 46.7B and
// 12.9B).
TEST(Experts, CountTheParametersThatATokenSees) {
  Scenario s = TinyLlama();
  s.model.layers = 32;
  s.model.hidden = 4096;
  s.model.heads = 32;
  s.model.kv_heads = 8;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 14336;
  s.model.vocab = 32000;
  s.model.seq_len = 4096;
  s = Experts(s, 1, {.count = 8, .top_k = 2});
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(plan.model.parameters, 46'702'792'704);
  EXPECT_DOUBLE_EQ(plan.model.flops_per_token.count(), 6.0 * 12'879'925'248 + 12.0 * 32 * 4096 * 4096);
}

TEST(Experts, RefusesWhatCannotBeShared) {
  ExpectRefused(Experts(TinyLlama(2), 2, {.count = 3, .top_k = 1}), "parallel.expert.size");
  Scenario s = Experts(TinyLlama(2), 2);
  s.model.experts.reset();
  ExpectRefused(s, "parallel.expert.size");
  ExpectRefused(Hybrid(Experts(TinyLlama(6), 2), 3), "parallel.data.shard_size");
}

TEST(Experts, RefuseTurnsThatCannotBeTaken) {
  Scenario s = Experts(TinyLlama(2), 2);
  s.parallel.expert.overlap = true;
  s.batch.accumulate = 2;
  ASSERT_TRUE(CompilePlan(s));
  Scenario full = s, fsdp = s, none = s;
  full.recompute = Recompute::kFull;
  ExpectRefused(full, "recompute");
  fsdp.parallel.data.kind = DataParallelKind::kFsdp;
  ExpectRefused(fsdp, "parallel.data.kind");
  none.model.experts.reset();
  none.parallel.expert.size = 1;
  ExpectRefused(none, "parallel.expert.overlap");
}

}  // namespace
}  // namespace windtunnel
