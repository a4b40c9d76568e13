// What an operator is given: the locations of its operands, and its context.
#pragma once

#include <cstdint>

namespace windtunnel {

// A slice of a buffer, located.
struct TensorRef {
  void* data = nullptr;
  int64_t elements = 0;

  float* f32() const { return static_cast<float*>(data); }
  int32_t* i32() const { return static_cast<int32_t*>(data); }
};

// Where the rank is in its tensor-parallel group.
struct TensorPosition {
  int rank = 0, ranks = 1;
};
// Where the rank is in its context-parallel and in its expert-parallel group.
struct ContextPosition {
  int rank = 0;
};
struct ExpertPosition {
  int rank = 0;
};

// What an operator may know beside its operands.
struct KernelContext {
  int64_t step = 0;   // optimizer steps taken before this one: Adam's bias correction uses step + 1
  uint64_t seed = 0;  // run.seed, for InitializeParameter
  TensorPosition tensor = {};
  ContextPosition context = {};
  ExpertPosition expert = {};
  int32_t queue = 0;  // DeviceQueues::Queue; copies between host and device have one of their own
};

}  // namespace windtunnel
