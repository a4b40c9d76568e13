// Ranks as threads of the test's process, with the same sessions and store as the launcher's processes have.
// WINDTUNNEL_TEST_BACKEND in the environment says how they communicate: `threads` (in place, half of the
// time), `mpi` (as processes that the test forks); without, or `gloo`, over the scenario's backend.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/cores.h"
#include "runtime/rank_session.h"
#include "tests/runtime/rank_processes.h"

namespace windtunnel {

inline bool TestsUse(std::string_view backend) {
  const char* chosen = getenv("WINDTUNNEL_TEST_BACKEND");
  return chosen != nullptr && chosen == backend;
}

// Equipment of ranks that communicate as threads, whatever their scenario says.
inline Equipment CommunicatingInPlace() {
  struct Groups {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<ThreadGroup>> by_name;
  };
  Equipment equipment;
  equipment.connect = [groups = std::make_shared<Groups>()](
                          const std::string& name, int position,
                          int size) -> Result<std::unique_ptr<Communicator>> {
    std::lock_guard lock(groups->mutex);
    std::shared_ptr<ThreadGroup>& group = groups->by_name[name];
    if (group == nullptr)
      group = MakeThreadGroup({.name = name, .size = size, .spin = std::chrono::microseconds(0)});
    return MakeThreadCommunicator(group, position);
  };
  return equipment;
}

inline void WithRanksOfMpi(Plan plan, const std::function<Status(RankSession&, Store&)>& work) {
  plan.scenario.run.backend = Backend::kMpi;
  WithProcesses(plan.world_size, [&](int rank, Store& store) {
    FlightRecorder recorder = FlightRecorder::Private();
    const auto run = [&]() -> Status {
      RankOptions options{.rank = rank};
      options.shares_core = true;
      WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, store, recorder, options));
      WT_RETURN_IF_ERROR(session->Initialize());
      return work(*session, store);
    };
    const Status status = run();
    EXPECT_TRUE(status) << status.error().message;
  });
}

// Runs `work` once per rank, each in a thread with its own session (and `equipment`, unless null). Errors
// become test failures. If `work` is to run over MPI too, state that it shares with the test must be Shared
// (rank_processes.h).
inline void WithRanks(const Plan& plan, const std::function<Status(RankSession&, Store&)>& work,
                      const Equipment* equipment = nullptr) {
  const bool may_choose = equipment == nullptr && plan.world_size > 1 && !SharesProcess(plan);
  if (may_choose && TestsUse("mpi")) return WithRanksOfMpi(plan, work);
  const Equipment in_place = CommunicatingInPlace();
  if (may_choose && TestsUse("threads")) equipment = &in_place;
  auto server = ServeStore("127.0.0.1", 0, "test");
  ASSERT_TRUE(server) << server.error().message;
  std::vector<std::string> errors(plan.world_size);
  const std::shared_ptr<ThreadGroup> group =
      SharesProcess(plan) ? MakeThreadGroup({.name = "world", .size = plan.world_size}) : nullptr;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto run = [&]() -> Status {
        WT_ASSIGN_OR_RETURN(auto store,
                            ConnectStore("127.0.0.1", (*server)->port(), "test", std::chrono::seconds(20)));
        FlightRecorder recorder = FlightRecorder::Private();
        RankOptions options{.rank = rank, .threads = group};
        options.shares_core = true;  // with other tests, if not with other ranks
        options.equipment = equipment;
        WT_ASSIGN_OR_RETURN(auto session, RankSession::Make(plan, *store, recorder, options));
        WT_RETURN_IF_ERROR(session->Initialize());
        return work(*session, *store);
      };
      if (auto status = run(); !status) errors[rank] = status.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Copies this rank's parts of the parameters into the whole model's parameters, whose addresses `weights`
// gives by ordinal.
inline void CopyLocalParts(RankSession& session, const std::function<float*(int64_t ordinal)>& weights) {
  const Role& role = session.executor().role();
  for (size_t i = 0; i < role.parameters.size(); ++i) {
    const Placement& place = role.parameters[i].values;
    if (place.buffer < 0) continue;  // has no values between steps
    const int position = session.plan().axes[place.axis].position_of_rank[session.rank()];
    const LocalPart part = PartOn(place, role.parameters[i].elements, position);
    if (part.elements == 0) continue;
    const auto values = session.executor().Values(Slice{place.buffer, part.offset, part.elements}).value();
    const Parameter& parameter = role.parameters[i];
    float* whole = weights(parameter.ordinal);
    if (parameter.part.empty()) {
      std::copy(values.begin(), values.end(), whole + part.first);
      continue;
    }
    const int tensor_rank = session.plan().mesh.PlaceOf(session.rank()).tensor;
    const int64_t skipped = session.plan().ExpertRankOf(session.rank()) * parameter.expert_stride;
    ForEachRun(parameter.part, tensor_rank, part.first, part.first + part.elements,
               [&](int64_t local, int64_t first, int64_t elements) {
                 std::copy_n(values.begin() + local - part.first, elements, whole + skipped + first);
               });
  }
}

// The outcome of training: each step's mean loss over ranks, and the parameters, assembled from all ranks'
// shards.
struct Trained {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
  std::vector<std::vector<float>> weights;
};

inline Trained Train(const Plan& plan, int steps, const Equipment* equipment = nullptr) {
  Trained result;
  for (const Role& role : plan.roles) {
    for (const Parameter& parameter : role.parameters) {
      result.weights.resize(std::max<size_t>(result.weights.size(), parameter.ordinal + 1));
      result.weights[parameter.ordinal].assign(WholeElements(parameter), NAN);
    }
  }
  std::vector<int64_t> begin = {0};  // by parameter: its offset in `values`
  for (const auto& weights : result.weights)
    begin.push_back(begin.back() + static_cast<int64_t>(weights.size()));
  const Shared<float> values(static_cast<size_t>(begin.back()));
  std::fill_n(values.data(), begin.back(), NAN);
  const size_t cells = static_cast<size_t>(plan.world_size) * steps;
  const Shared<double> shared_losses(cells), shared_norms(cells);
  const Shared<int> has_loss(cells);
  const auto train = [&](RankSession& session, Store&) -> Status {
    for (int step = 0; step < steps; ++step) {
      // CUDA graphs are only used in steps that record no spans.
      WT_RETURN_IF_ERROR(session.Step(/*spans=*/!plan.scenario.run.cuda_graphs));
      const size_t cell = static_cast<size_t>(session.rank()) * steps + step;
      if (const auto losses = session.executor().Losses().value(); !losses.empty()) {
        shared_losses[cell] = losses.front();
        has_loss[cell] = 1;
      }
      shared_norms[cell] = session.executor().GradientNormValue().value();
    }
    static std::mutex mutex;  // replicas write the same places
    std::lock_guard lock(mutex);
    CopyLocalParts(session, [&](int64_t ordinal) { return values.data() + begin[ordinal]; });
    return Ok();
  };
  WithRanks(plan, train, equipment);
  std::vector<std::vector<double>> losses(plan.world_size), norms(plan.world_size);
  for (size_t cell = 0; cell < cells; ++cell) {
    if (has_loss[cell]) losses[cell / steps].push_back(shared_losses[cell]);
    norms[cell / steps].push_back(shared_norms[cell]);
  }
  for (size_t i = 0; i < result.weights.size(); ++i)
    std::copy_n(values.data() + begin[i], result.weights[i].size(), result.weights[i].begin());
  if (testing::Test::HasFailure()) return Trained{std::vector<double>(steps), std::vector<double>(steps), {}};
  for (int step = 0; step < steps; ++step) {
    double sum = 0, ranks = 0;
    for (const auto& of_rank : losses) {
      if (of_rank.empty()) continue;  // not a rank of the last stage
      sum += of_rank.at(step);
      ++ranks;
    }
    result.losses.push_back(sum / ranks);
    result.gradient_norms.push_back(norms[0].at(step));
  }
  return result;
}

}  // namespace windtunnel
