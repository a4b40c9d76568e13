// Expects that every rank's peak memory is predicted to the byte.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "plan/plan.h"
#include "sim/role_memory.h"
#include "tests/runtime/in_process_ranks.h"

namespace windtunnel {

inline void ExpectExactPeaks(const Plan& plan) {
  std::vector<RoleMemory> predicted;
  for (const Role& role : plan.roles) {
    auto memory = SimulateMemory(role, {.allocator = plan.scenario.allocator});
    ASSERT_TRUE(memory) << memory.error().message;
    predicted.push_back(std::move(*memory));
  }
  std::mutex mutex;
  WithRanks(plan, [&](RankSession& session, Store&) -> Status {
    const int64_t steps = plan.roles[0].FirstSteadyStep() + 2;
    for (int64_t step = 0; step < steps; ++step) WT_RETURN_IF_ERROR(session.Step());
    const RoleMemory& memory = predicted[plan.role_of_rank[session.rank()]];
    std::lock_guard lock(mutex);
    EXPECT_EQ(session.steady_peak().allocated, memory.steady.allocated) << "rank " << session.rank();
    EXPECT_EQ(session.steady_peak().reserved, memory.steady.reserved) << "rank " << session.rank();
    EXPECT_EQ(session.steady_peak().host_allocated, memory.steady.host_allocated)
        << "rank " << session.rank();
    EXPECT_EQ(session.initial_peak().allocated, memory.initial_peak) << "rank " << session.rank();
    return Ok();
  });
}

}  // namespace windtunnel
