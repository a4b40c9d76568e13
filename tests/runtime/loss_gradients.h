// Expects that gradients are those of the loss.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "plan/plan.h"
#include "tests/runtime/in_process_ranks.h"

namespace windtunnel {

// One step of SGD along the gradient makes the loss smaller by the learning rate times the gradient's square,
// to first order. The optimizer and the batch are the test's.
inline void ExpectGradientsOfTheLoss(Scenario s) {
  SCOPED_TRACE(s.name);
  s.batch = {.micro = 4, .accumulate = 2};
  s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 1e-4, .clip_norm = 1e9};
  WithRanks(*CompilePlan(s), [&](RankSession& session, Store&) -> Status {
    Executor& executor = session.executor();
    for (size_t i = 0; i <= executor.role().startup.size(); ++i) WT_RETURN_IF_ERROR(session.Step());
    std::vector<double> losses;
    double norm = 0;
    for (int run = 0; run < 2; ++run) {
      WT_ASSIGN_OR_RETURN([[maybe_unused]] auto timeline, executor.Run(executor.role().steady, 3));
      WT_ASSIGN_OR_RETURN(const std::vector<double> loss, executor.Losses());
      losses.push_back(loss[0]);
      if (run > 0) continue;
      WT_ASSIGN_OR_RETURN(norm, executor.GradientNormValue());
    }
    const double expected = s.optimizer.lr * norm * norm;
    EXPECT_NEAR(losses[0] - losses[1], expected, 0.03 * expected);
    return Ok();
  });
}

}  // namespace windtunnel
