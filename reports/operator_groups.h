// The groups in which operators are drawn: some twelve, each with a colour that is the same in every picture.
#pragma once

#include <span>
#include <string_view>

#include "plan/op.h"

namespace windtunnel {

struct OperatorGroup {
  std::string_view name;    // "gemm", "attention", …, "collective", "barrier", "other"
  std::string_view colour;  // "#4c78a8"
};
// In the order in which legends list them.
std::span<const OperatorGroup> OperatorGroups();

// Small operators belong to the larger ones that they serve (RoPE to attention, the bias's gradient to gemm).
const OperatorGroup& OperatorGroupOf(const OpKind& kind);

}  // namespace windtunnel
