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

// Several blocks have a `kind`; a word that only ends like a key is another word.
TEST(SuggestKey, IsSilentWhereAnyOfSeveralCouldBeMeant) {
  EXPECT_EQ(SuggestKey("parallel.tensor", "kind", {"size", "sequence", "overlap"}).key, "");
  EXPECT_EQ(SuggestKey("", "fault_tolerance", {"name", "tolerance", "framework"}).key, "");
  EXPECT_EQ(SuggestKey("model", "cross_attention", {"layers", "attention"}).key, "");
  EXPECT_EQ(SuggestKey("batch", "seq_len", {"micro", "accumulate"}).key, "model.seq_len");
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
  EXPECT_EQ(MeantWord("warp", {"none", "full"}), "");
  EXPECT_EQ(MeantWord("x", {}), "");
}

TEST(JoinWithOr, ReadsAsASentence) {
  EXPECT_EQ(JoinWithOr({"a"}), "a");
  EXPECT_EQ(JoinWithOr({"a", "b"}), "a or b");
  EXPECT_EQ(JoinWithOr({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace windtunnel
