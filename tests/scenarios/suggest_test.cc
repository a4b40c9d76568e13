#include "scenarios/suggest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "scenarios/keys.h"
#include "scenarios/other_names.h"

namespace windtunnel {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(EditDistance("batch", "batch"), 0);
  EXPECT_EQ(EditDistance("bathc", "batch"), 1);
  EXPECT_EQ(EditDistance("btch", "batch"), 1);
  EXPECT_EQ(EditDistance("baatch", "batch"), 1);
  EXPECT_EQ(EditDistance("botch", "batch"), 1);
  EXPECT_EQ(EditDistance("", "abc"), 3);
}

RC_GTEST_PROP(EditDistance, IsSymmetricAndZeroOnlyForEqualWords,
              (const std::string& a, const std::string& b)) {
  RC_ASSERT(EditDistance(a, b) == EditDistance(b, a));
  RC_ASSERT((EditDistance(a, b) == 0) == (a == b));
}

RC_GTEST_PROP(Nearest, IsTheFirstOfThoseWithTheLeastDistance, (const std::string& word)) {
  const auto known = *rc::gen::nonEmpty<std::vector<std::string>>();
  const std::string nearest = Nearest(word, known);
  const auto first = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return EditDistance(word, a) < EditDistance(word, b);
  });
  RC_ASSERT(nearest == *first);
}

TEST(SuggestKey, PrefersANearKeyOfTheBlockThenTheSameNameElsewhere) {
  std::vector<std::string> known = {"micro", "accumulate"};
  EXPECT_EQ(SuggestKey("batch", "micros", known).key, "batch.micro");
  EXPECT_EQ(SuggestKey("batch", "seq_len", known).key, "model.seq_len");
  EXPECT_EQ(SuggestKey("", "weight_decay", {"name"}).key, "optimizer.weight_decay");
  EXPECT_EQ(SuggestKey("batch", "acumulation", known).key, "batch.accumulate");
  EXPECT_EQ(SuggestKey("cluster.network", "gbits_per_nic", {"intra_node", "nics_per_node"}).key,
            "cluster.network.inter_node.gbits_per_nic");
}

TEST(SuggestKey, KnowsWhatOthersCallAKeyAndIsSilentWhereNothingIsNear) {
  EXPECT_EQ(SuggestKey("", "tp", {"name", "parallel"}).key, "parallel.tensor.size");
  EXPECT_EQ(SuggestKey("model", "num_layers", {"layers"}).key, "model.layers");
  EXPECT_EQ(SuggestKey("parallel", "kind", {"data", "tensor"}).key, "parallel.data.kind");
  EXPECT_EQ(SuggestKey("", "epochs", {"name", "batch"}).key, "");
  EXPECT_EQ(SuggestKey("", "foo", {"name", "run"}).key, "");
  EXPECT_EQ(SuggestKey("model", "name", {"layers", "norm", "preset"}).key, "model.preset");
}

// As options of a command, and in vain.
TEST(SuggestKey, KnowsOptionsAndWhatIsNotModelled) {
  EXPECT_EQ(SuggestKey("", "--tensor-model-parallel-size", {"name"}).key, "parallel.tensor.size");
  EXPECT_EQ(SuggestKey("", "recompute-granularity", {"name"}).key, "recompute");
  EXPECT_EQ(SuggestKey("parallel", "FSDP", {"data"}).key, "parallel.data.kind");
  EXPECT_EQ(SuggestKey("", "--fp8-param-gather", {"name"}).key, "precision.fp8_param_gather");
  const KeySuggestion none = SuggestKey("", "moe-shared-expert-overlap", {"name"});
  EXPECT_EQ(none.key, "");
  EXPECT_EQ(none.not_modelled, "a shared expert beside the exchange of tokens is not modelled");
}

// Of DDP's hooks, of FSDP's and DTensor's arguments, of optimizers, of amp.
TEST(SuggestKey, KnowsWhatPyTorchsScriptsPass) {
  const auto words = [](const std::string& path, const std::string& name) {
    return SuggestKey(path, name, {"parallel", "framework"}).words;
  };
  EXPECT_EQ(words("", "fp16_compress_hook"), "'precision.reduce: fp16'");
  EXPECT_EQ(words("", "bf16_compress_hook"), "'precision.reduce: bf16'");
  const char* const kHooks =
      "'parallel.data.powersgd' (or, for a hook that compresses to 16 bits, precision.reduce)";
  EXPECT_EQ(words("parallel.data", "ddp_comm_hook"), kHooks);
  EXPECT_EQ(words("parallel.data", "register_comm_hook"), kHooks);
  EXPECT_EQ(words("", "powerSGD_hook"), "'parallel.data.powersgd'");
  EXPECT_EQ(words("parallel.data.powersgd", "matrix_approximation_rank"), "'parallel.data.powersgd.rank'");
  EXPECT_EQ(words("", "start_powerSGD_iter"), "'parallel.data.powersgd.start_step'");
  EXPECT_EQ(words("", "MixedPrecisionPolicy"), "'precision.param' (and precision.reduce)");
  EXPECT_EQ(words("", "fsdp_transformer_layer_cls_to_wrap"), "'parallel.data.wrap: block'");
  EXPECT_EQ(words("", "dp_mesh"), "'parallel.data.size'");
  EXPECT_EQ(words("", "tp_mesh"), "'parallel.tensor.size'");
  EXPECT_EQ(words("", "parallelize_plan"),
            "'parallel.tensor.size' (the plan of each layer follows from the model)");
  for (const char* name : {"dp_replicate", "num_replicate"})
    EXPECT_EQ(SuggestKey("", name, {"name"}).key, "parallel.data.sharding") << name;
  EXPECT_EQ(words("model", "nhead"), "'model.heads'");
  EXPECT_EQ(words("batch", "global"),
            "'batch.accumulate' (the global batch / (batch.micro x parallel.data.size))");
  EXPECT_EQ(words("lr_scheduler", "kind"), "'lr_scheduler.decay'");
  EXPECT_EQ(words("lr_scheduler", "name"), "'lr_scheduler.decay'");
  EXPECT_EQ(words("lr_scheduler", "warmup_ratio"), "'lr_scheduler.warmup_steps' (that share of all steps)");
  EXPECT_EQ(words("precision", "grad_scaler"), "'precision.loss_scale'");
  EXPECT_EQ(words("optimizer", "zero_redundancy_optimizer"), "'optimizer.zero_redundancy: true'");
  EXPECT_EQ(words("", "ZeroRedundancyOptimizer"), "'optimizer.zero_redundancy: true'");
  EXPECT_EQ(words("", "parameters_as_bucket_view"), "'optimizer.parameters_as_bucket_view'");
}

TEST(SuggestKey, KnowsWhatPyTorchsScriptsPassInVain) {
  const auto why = [](const std::string& name) {
    return SuggestKey("", name, {"name", "parallel"}).not_modelled;
  };
  EXPECT_EQ(why("batched_powerSGD_hook"), why("BATCHED_POWER_SGD"));
  EXPECT_EQ(why("loss_parallel"), why("disable_loss_parallel"));
  EXPECT_EQ(why("overlap_with_ddp"), "an update that overlaps with DDP's reductions is not modelled");
  for (const char* name : {"batched_powersgd_hook", "warm_start", "gradient_predivide_factor",
                           "sync_module_states", "device_mesh", "mesh_dim_names", "loss_parallel",
                           "consolidate_state_dict", "amsgrad", "nesterov", "foreach", "use_reentrant"})
    EXPECT_NE(why(name), "") << name;
}

// Several blocks have a `kind`; a word that only ends like a key is another word.
TEST(SuggestKey, IsSilentWhereAnyOfSeveralCouldBeMeant) {
  EXPECT_EQ(SuggestKey("parallel.tensor", "kind", {"size", "sequence", "overlap"}).key, "");
  EXPECT_EQ(SuggestKey("", "fault_tolerance", {"name", "tolerance", "framework"}).key, "");
  EXPECT_EQ(SuggestKey("model", "attentions_core", {"layers", "attention"}).key, "");
  EXPECT_EQ(SuggestKey("batch", "seq_len", {"micro", "accumulate"}).key, "model.seq_len");
  EXPECT_EQ(SuggestKey("", "layers", {"name", "model"}).key, "model.layers");
  EXPECT_EQ(SuggestKey("model", "cross_attention", {"layers", "attention"}).key, "model.encoder");
}

TEST(SuggestKey, SaysWhichValueAndHowToComeToIt) {
  EXPECT_EQ(SuggestKey("", "bf16", {"name", "run"}).words, "'precision.param: bf16'");
  EXPECT_EQ(SuggestKey("", "compile", {"name", "run"}).words, "'framework: pytorch_compile'");
  EXPECT_EQ(SuggestKey("batch", "global_batch_size", {"micro", "accumulate"}).words,
            "'batch.accumulate' (the global batch / (batch.micro x parallel.data.size))");
  EXPECT_EQ(SuggestKey("batch", "micros", {"micro", "accumulate"}).words, "'batch.micro'");
  EXPECT_EQ(SuggestKey("", "foo", {"name", "run"}).words, "");
}

// No alias is of an outdated key, and none is there twice.
TEST(SuggestKey, HasAliasesOfKeysThatThereAre) {
  const std::vector<std::string> keys = ScenarioKeys();
  std::set<std::string_view> names;
  for (const Alias& alias : kAliases) {
    EXPECT_NE(std::find(keys.begin(), keys.end(), alias.key), keys.end()) << alias.name;
    EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
  }
  for (const NotModelled& theirs : kNotModelled) EXPECT_TRUE(names.insert(theirs.name).second) << theirs.name;
}

// No main key is an outdated name.
TEST(MainKeyOf, AreKeysThatThereAre) {
  const std::vector<std::string> keys = ScenarioKeys();
  for (const char* block : {"model", "batch", "precision", "optimizer", "parallel.data", "parallel.tensor",
                            "parallel.pipeline", "cluster", "run"}) {
    for (const bool is_number : {true, false}) {
      const std::string_view main = MainKeyOf(block, is_number);
      if (main.empty()) continue;
      const std::string key = JoinPath(block, main);
      EXPECT_NE(std::find(keys.begin(), keys.end(), key), keys.end()) << key;
    }
  }
  EXPECT_EQ(MainKeyOf("parallel.data", true), "size");
  EXPECT_EQ(MainKeyOf("parallel.data", false), "kind");
}

TEST(MeantWord, IsTheSameInCapitalsAnotherSpellingABeginningOrNear) {
  EXPECT_EQ(MeantWord("DDP", {"dp", "ddp"}), "ddp");
  EXPECT_EQ(MeantWord("bfloat16", {"fp32", "bf16"}), "bf16");
  EXPECT_EQ(MeantWord("bfloat16", {"fp32"}), "");
  EXPECT_EQ(MeantWord("gpt2", {"llama-7b", "gpt2-124m"}), "gpt2-124m");
  EXPECT_EQ(MeantWord("fulll", {"none", "full"}), "full");
  EXPECT_EQ(MeantWord("dense_h_to_4h", {"gate_up", "up", "down"}), "up") << "of GPT-NeoX and Falcon";
  EXPECT_EQ(MeantWord("gate_up_proj", {"gate_up", "up"}), "gate_up");
  EXPECT_EQ(MeantWord("DistributedDataParallel", {"dp", "ddp", "fsdp"}), "ddp");
  EXPECT_EQ(MeantWord("FullyShardedDataParallel", {"dp", "ddp", "fsdp"}), "fsdp");
  EXPECT_EQ(MeantWord("Megatron-LM", {"megatron", "megatron_core"}), "megatron_core");
  EXPECT_EQ(MeantWord("megatron", {"megatron", "megatron_core"}), "megatron");
  EXPECT_EQ(MeantWord("warp", {"none", "full"}), "");
  EXPECT_EQ(MeantWord("x", {}), "");
}

TEST(MeantWord, MayHaveAModuleOrClassBeforeItAndArguments) {
  const std::vector<std::string> shardings = {"full_shard", "shard_grad_op", "hybrid_shard_zero2"};
  EXPECT_EQ(MeantWord("ShardingStrategy.FULL_SHARD", shardings), "full_shard");
  EXPECT_EQ(MeantWord("ShardingStrategy._HYBRID_SHARD_ZERO2", shardings), "hybrid_shard_zero2");
  EXPECT_EQ(MeantWord("BackwardPrefetch.BACKWARD_PRE", {"none", "backward_pre"}), "backward_pre");
  EXPECT_EQ(MeantWord("CPUOffload(offload_params=True)", {"none", "optimizer", "param"}), "param");
  EXPECT_EQ(MeantWord("torch.distributed.fsdp.CPUOffloadPolicy()", {"none", "param"}), "param");
  EXPECT_EQ(MeantWord("torch.bfloat16", {"fp32", "bf16"}), "bf16");
  EXPECT_EQ(MeantWord("torch.optim.AdamW", {"sgd", "adam", "adamw"}), "adamw");
  EXPECT_EQ(MeantWord("llama9.5b", {"none", "full"}), "");
  EXPECT_EQ(MeantWord("(", {"none", "full"}), "");
  EXPECT_EQ(MeantWord(".", {"none", "full"}), "");
}

// The classes of torch.distributed.pipelining, and torchtitan's names, which leave out "Schedule".
TEST(MeantWord, IsAScheduleOfPyTorchs) {
  const std::vector<std::string> schedules = {"none",       "gpipe", "1f1b", "interleaved",
                                              "looped_bfs", "zb_h1", "zb_v", "dualpipe_v"};
  for (const auto& [theirs, ours] :
       {std::pair("GPipe", "gpipe"), std::pair("1F1B", "1f1b"), std::pair("Interleaved1F1B", "interleaved"),
        std::pair("LoopedBFS", "looped_bfs"), std::pair("ZBVZeroBubble", "zb_v"),
        std::pair("DualPipeV", "dualpipe_v")}) {
    EXPECT_EQ(MeantWord(theirs, schedules), ours);
    EXPECT_EQ(MeantWord(std::string("Schedule") + theirs, schedules), ours);
  }
  for (const char* theirs : {"InterleavedZeroBubble", "ScheduleInterleavedZeroBubble"})
    EXPECT_EQ(AnswerTo("parallel.pipeline.schedule", theirs),
              "a .csv file can have it; zb_h1 is a zero-bubble schedule of one stage per rank");
}

TEST(AnswerTo, IsForValuesThatNoWordStandsFor) {
  EXPECT_EQ(AnswerTo("optimizer.kind", "torch.optim.RMSprop"),
            "not modelled; sgd with momentum has as many states");
  EXPECT_EQ(AnswerTo("optimizer.kind", "adamw"), "");
  EXPECT_EQ(AnswerTo("recompute", "lion"), "");
  const std::vector<std::string> keys = ScenarioKeys();
  for (const OtherValue& other : kOtherValues)
    EXPECT_NE(std::find(keys.begin(), keys.end(), other.key), keys.end()) << other.theirs;
}

TEST(JoinWithOr, ReadsAsASentence) {
  EXPECT_EQ(JoinWithOr({"a"}), "a");
  EXPECT_EQ(JoinWithOr({"a", "b"}), "a or b");
  EXPECT_EQ(JoinWithOr({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace windtunnel
