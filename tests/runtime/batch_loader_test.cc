#include "runtime/batch_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// Two replicas with four sequences each see the same samples as one with eight, also from the middle of an
// epoch on.
TEST(BatchLoader, GoesOnWithTheSameSamplesOnAnotherNumberOfReplicas) {
  Scenario scenario = TinyGpt(1);
  scenario.model.vocab = 256;
  scenario.batch.micro = 8;
  const auto ids_of = [&](int64_t micro, int64_t replicas, bool resumed) {
    Scenario s = scenario;
    s.batch.micro = micro;
    s.parallel.data.size = replicas;
    std::vector<std::vector<int32_t>> sequences;
    for (int64_t replica = 0; replica < replicas; ++replica) {
      auto loader = BatchLoader::Make(s, replica, replicas);
      EXPECT_TRUE(loader) << loader.error().message;
      if (resumed) (*loader)->GoOn(5, 40);
      EXPECT_EQ((*loader)->SamplesSeen(7), 56);
      std::vector<int32_t> ids(static_cast<size_t>(micro * 16)), targets(ids.size());
      const TensorRef writes[] = {{ids.data(), micro * 16}, {targets.data(), micro * 16}};
      (*loader)->Load(LoadBatch{0, micro, 16, 0}, 6, 0, writes);
      for (int64_t row = 0; row < micro; ++row)
        sequences.emplace_back(ids.begin() + row * 16, ids.begin() + (row + 1) * 16);
    }
    std::sort(sequences.begin(), sequences.end());
    return sequences;
  };
  EXPECT_EQ(ids_of(8, 1, false), ids_of(4, 2, true));
  EXPECT_EQ(ids_of(8, 1, false), ids_of(8, 1, true));
}

// With an encoder, a sample's first tokens are the source, and the decoder goes on with those behind it.
TEST(BatchLoader, SourcesComeBeforeTheSequences) {
  Scenario scenario = TinyGpt(1), whole = scenario;
  scenario.model.encoder = EncoderSpec{.layers = 1, .seq_len = 24};
  whole.model.seq_len = 40;
  auto loader = BatchLoader::Make(scenario, 0, 1), of_whole = BatchLoader::Make(whole, 0, 1);
  ASSERT_TRUE(loader && of_whole);
  std::vector<int32_t> ids(32), targets(32), source(48), all(80), next(80);
  const TensorRef writes[] = {{ids.data(), 32}, {targets.data(), 32}, {source.data(), 48}};
  const TensorRef of_all[] = {{all.data(), 80}, {next.data(), 80}};
  (*loader)->Load(LoadBatch{.rows = 2, .columns = 16, .source = 24}, 3, 0, writes);
  (*of_whole)->Load(LoadBatch{.rows = 2, .columns = 40}, 3, 0, of_all);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t t = 0; t < 24; ++t) EXPECT_EQ(source[row * 24 + t], all[row * 40 + t]);
    for (size_t t = 0; t < 16; ++t) EXPECT_EQ(ids[row * 16 + t], all[row * 40 + 24 + t]);
    for (size_t t = 0; t < 16; ++t) EXPECT_EQ(targets[row * 16 + t], next[row * 40 + 24 + t]);
  }
}

}  // namespace
}  // namespace windtunnel
