// Training in the test's process, with checkpoints (tests/runtime/in_process_ranks.h).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/run_checkpoints.h"
#include "scenarios/scenario.h"
#include "tests/runtime/in_process_ranks.h"

namespace windtunnel {

// The scenario with a small vocabulary, an AdamW that decays weights and clips, and the test's `change`.
inline Scenario Changed(Scenario s, const std::function<void(Scenario&)>& change) {
  s.model.vocab = 256;
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3, .weight_decay = 0.01, .clip_norm = 1.0};
  change(s);
  return s;
}

// An empty directory of the test.
inline std::string EmptyDirectory(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

// Runs the steps up to `steps` that are still to be done according to `options`, as windtunnel run does.
inline void RunSteps(const Plan& plan, const RunOptions& options, int64_t steps) {
  WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
    RunCheckpoints checkpoints(session, store, options, steps);
    WT_ASSIGN_OR_RETURN(const int64_t first, checkpoints.Begin());
    for (int64_t step = first; step < steps; ++step) {
      WT_RETURN_IF_ERROR(session.Step());
      WT_RETURN_IF_ERROR(checkpoints.AfterStep());
    }
    return Ok();
  });
}

// Saves to `to` the state that a session of `plan` has right after it has loaded `from`.
inline void SaveWhatIsLoaded(const Plan& plan, const std::string& from, const std::string& to) {
  WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
    RunOptions options;
    options.resume_from = from;
    RunCheckpoints loading(session, store, options, /*steps=*/1'000);
    WT_ASSIGN_OR_RETURN(const int64_t step, loading.Begin());
    options.checkpoints = to;
    return RunCheckpoints(session, store, options, /*steps=*/step).AfterStep();
  });
}

// Expects two checkpoints to agree in every bit of every tensor.
inline void ExpectSameTensors(const std::string& a, const std::string& b) {
  const auto one = Checkpoint::Open(a), other = Checkpoint::Open(b);
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(one->info().step, other->info().step);
  ASSERT_EQ(one->Tensors(), other->Tensors());
  for (const std::string& name : one->Tensors()) {
    const auto left = one->Read(name), right = other->Read(name);
    ASSERT_TRUE(left) << left.error().message;
    ASSERT_TRUE(right) << right.error().message;
    ASSERT_EQ(left->size(), right->size()) << name;
    EXPECT_EQ(std::memcmp(left->data(), right->data(), left->size() * sizeof(float)), 0) << name;
  }
}

}  // namespace windtunnel
