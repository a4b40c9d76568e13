// Each rank's part of an operator whose ranks are threads of one process: which elements it copies and which
// it sums. How it does so is up to whatever has the memory (the host, a device's queue).
//
// The work is in phases. Between the ranks' meeting and the end of a phase nobody writes what another rank
// reads.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "runtime/group_operator.h"
#include "runtime/thread_group.h"

namespace windtunnel {

// The address of element `first`, of the operator's type.
inline const char* At(const void* memory, int64_t first, const GroupOperator& op) {
  return static_cast<const char*>(memory) + first * op.element_bytes();
}
inline char* At(void* memory, int64_t first, const GroupOperator& op) {
  return static_cast<char*>(memory) + first * op.element_bytes();
}

// Copies and sums elements of an operator.
class ElementMover {
 public:
  virtual ~ElementMover() = default;
  // REQUIRES: elements > 0, and `to` is not `from`.
  virtual Status Copy(const GroupOperator& op, void* to, const void* from, int64_t elements) = 0;
  // out = the sum (or the maximum) over ranks in their order, of `elements` elements from `first` on of each
  // input. `out` may be in an input.
  virtual Status Reduce(const GroupOperator& op, const std::vector<const void*>& inputs, int64_t first,
                        int64_t elements, void* out) = 0;
};

// 0 for an operator whose ranks only meet.
int PhasesOf(GroupOperation operation);

// This rank's part of phase `phase` of its operator `op`. REQUIRES: all ranks have finished the phase before.
Status DoPhase(const GroupOperator& op, const Meeting& meeting, int rank, int phase, ElementMover& mover);

}  // namespace windtunnel
