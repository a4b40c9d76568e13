// A device executes operators on memory of its own. `cpu` runs an operator in the calling thread and has finished when Launch
// returns; `cuda` puts it into a queue (runtime/device_queues.h) and returns at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "plan/allocator.h"
#include "plan/op.h"

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
// And in its context-parallel and its expert-parallel group.
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

class DeviceQueues;

class Device {
 public:
  virtual ~Device() = default;
  // Null where operators have finished when Launch returns.
  virtual DeviceQueues* queues() { return nullptr; }
  // Runs one operator that is neither communication, memory nor LoadBatch, on the queue of the context. `reads` and `writes` are in the order that
  // plan/op.h documents for the kind. Errors: Unsupported (a type or a kind that the device has no kernel for).
  virtual Status Launch(const OpKind& kind, std::span<const TensorRef> reads,
                        std::span<const TensorRef> writes, const KernelContext& context) = 0;
  // Where the allocator's segments come from; they live as long as the device.
  virtual SegmentSource& memory() = 0;
  // Name -> version of the libraries in use.
  virtual std::map<std::string, std::string> Libraries() const = 0;
};

// fp32, bf16 and fp16 kernels by oneDNN and OpenBLAS in the calling thread (both are set to one thread).
std::unique_ptr<Device> MakeCpuDevice();

}  // namespace windtunnel
