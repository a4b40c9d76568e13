// What tests of several kinds of parallelism ask of a plan.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "plan/plan.h"

namespace windtunnel {

// The number of operators of kind T in the first role's steady step for which `take` is true.
template <typename T, typename Take>
int Count(const Plan& plan, Take take) {
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  return static_cast<int>(std::count_if(ops.begin(), ops.end(), [&](const Op& op) {
    const T* kind = std::get_if<T>(&op.kind);
    return kind != nullptr && take(op, *kind);
  }));
}

// Expects that the scenario is refused, naming `key`.
inline void ExpectRefused(const Scenario& s, const std::string& key) {
  const auto plan = CompilePlan(s);
  ASSERT_FALSE(plan) << key;
  EXPECT_NE(plan.error().message.find(key), std::string::npos) << plan.error().message;
}

}  // namespace windtunnel
