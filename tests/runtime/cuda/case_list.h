// The list to which the files of this folder add their operator cases.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/cuda/operator_case.h"

namespace windtunnel::test {

inline constexpr DType kFloat = DType::kFloat32;

// Collects cases of one type.
class Cases {
 public:
  Cases(DType dtype, bool large) : dtype(dtype), large(large) {}

  OperatorCase& Add(std::string name, OpKind kind, KernelContext context = {}) {
    cases.push_back({.name = std::move(name), .kind = std::move(kind), .context = context});
    return cases.back();
  }

  const DType dtype;
  const bool large;
  std::vector<OperatorCase> cases;
};

// The case's outcome on the cpu device, from which further cases take their operands.
Outcome OnCpu(const OperatorCase& operator_case);

// Attention of whole sequences and of context ranks' blocks.
void AddAttention(Cases& c);
void AddContextAttention(Cases& c);
void AddCrossAttention(Cases& c);
void AddRelativePositions(Cases& c);
void AddStateSpace(Cases& c);
void AddDeltaNets(Cases& c);
// Operands are fp32 whatever the type of the cases.
void AddOptimizers(Cases& c);

}  // namespace windtunnel::test
