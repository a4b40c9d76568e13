// What a framework profile can refer to of an operator: its key, its tensors, and what holds of it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/op.h"

namespace windtunnel {

// The properties of an operator that a framework profile can refer to.
struct OperatorShape {
  std::string_view key;                                      // first word of its cost key
  std::vector<std::pair<std::string_view, double>> tensors;  // elements, by name; the first is the main one
  std::vector<std::string_view> holds;  // conditions for `when`: "residual", "layernorm", …
  DType dtype = DType::kFloat32;
  enum class Issuer { kModel, kEngine, kLoop } issuer = Issuer::kLoop;  // FrameworkProfile::forward_us, …
  bool is_in_block = false;  // its forward runs twice if blocks are recomputed
  double count = 1;          // tensors (or experts) that one operator works on
  double share = 1;          // the part of the launches that this operator bears, if several share them
};
// `parameters`: the type that the model's parameters are held in, besides the optimizer's copy.
// REQUIRES: no communication.
OperatorShape ShapeOf(const OpKind& kind, DType parameters);

// The words that profiles may use of operators of a kind: OperatorShape::holds and names of `tensors`.
struct OperatorVocabulary {
  std::set<std::string, std::less<>> conditions, tensors;
};
// By OperatorShape::key; without communication. It lives as long as the program.
const std::map<std::string, OperatorVocabulary, std::less<>>& KnownOperators();

}  // namespace windtunnel
