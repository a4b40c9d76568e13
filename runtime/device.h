// A device executes operators on memory of its own. `cpu` runs an operator in the calling thread and has
// finished when Launch returns; `cuda` puts it into a queue (runtime/device_queues.h) and returns at once.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "plan/op.h"
#include "plan/segment_source.h"
#include "runtime/kernel_context.h"

namespace windtunnel {

class DeviceQueues;

class Device {
 public:
  virtual ~Device() = default;
  // Null where operators have finished when Launch returns.
  virtual DeviceQueues* queues() { return nullptr; }
  // Runs one operator that is neither communication, memory nor LoadBatch, on the queue of the context.
  // `reads` and `writes` are in the order that plan/ops.h documents for the kind. Errors: Unsupported (a type
  // or a kind that the device has no kernel for).
  virtual Status Launch(const OpKind& kind, std::span<const TensorRef> reads,
                        std::span<const TensorRef> writes, const KernelContext& context) = 0;
  // Where Launch returns before operators have finished: Failed if one that has finished
  // found its data wrong.
  virtual Status Fault() { return Ok(); }
  // Changes when graphs captured before (DeviceQueues::BeginCapture) must not be launched any more.
  virtual int64_t generation() const { return 0; }
  // Prepares copies between this device's memory and that of `other`, the device of another rank of this
  // process. From now on they go directly where the machine can do that, else through the host. Each of the
  // two ranks calls it once, in its own thread.
  virtual Status Link(Device&) { return Ok(); }
  // The source of the allocator's segments, which live as long as the device.
  virtual SegmentSource& memory() = 0;
  // Name -> version of the libraries in use.
  virtual std::map<std::string, std::string> Libraries() const = 0;
};

// fp32, bf16 and fp16 kernels by oneDNN and OpenBLAS in the calling thread (both are set to one thread).
std::unique_ptr<Device> MakeCpuDevice();

}  // namespace windtunnel
