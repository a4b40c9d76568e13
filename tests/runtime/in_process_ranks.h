// Ranks as threads of the test's process: the same sessions, communicators and store as the launcher's processes have.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/rank_session.h"

namespace windtunnel {

// Runs `work` once per rank, each in a thread with a session of its own; errors become test failures.
inline void WithRanks(const Plan& plan, const std::function<Status(RankSession&, Store&)>& work) {
  auto server = ServeStore("127.0.0.1", 0, "test");
  ASSERT_TRUE(server) << server.error().message;
  std::vector<std::string> errors(plan.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto run = [&]() -> Status {
        WT_ASSIGN_OR_RETURN(auto store, ConnectStore("127.0.0.1", (*server)->port(), "test", std::chrono::seconds(20)));
        FlightRecorder recorder = FlightRecorder::Private();
        WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, *store, recorder, RankOptions{.rank = rank}));
        WT_RETURN_IF_ERROR(session->Initialize());
        return work(*session, *store);
      };
      if (auto status = run(); !status) errors[rank] = status.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// The outcome of training: the mean loss over ranks of every step, and rank 0's parameters.
struct Trained {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
  std::vector<std::vector<float>> weights;
};

inline Trained Train(const Plan& plan, int steps) {
  std::vector<std::vector<double>> losses(plan.world_size), norms(plan.world_size);
  Trained result;
  WithRanks(plan, [&](RankSession& session, Store&) -> Status {
    for (int step = 0; step < steps; ++step) {
      WT_RETURN_IF_ERROR(session.Step());
      losses[session.rank()].push_back(session.executor().Loss());
      norms[session.rank()].push_back(session.executor().GradientNormValue());
    }
    if (session.rank() != 0) return Ok();
    for (const Parameter& parameter : session.executor().role().parameters) {
      const auto values = session.executor().Values(Slice{parameter.buffer, 0, parameter.elements});
      result.weights.emplace_back(values.begin(), values.end());
    }
    return Ok();
  });
  if (testing::Test::HasFailure()) return Trained{std::vector<double>(steps), std::vector<double>(steps), {}};
  for (int step = 0; step < steps; ++step) {
    double sum = 0;
    for (const auto& of_rank : losses) sum += of_rank.at(step);
    result.losses.push_back(sum / plan.world_size);
    result.gradient_norms.push_back(norms[0].at(step));
  }
  return result;
}

}  // namespace windtunnel
