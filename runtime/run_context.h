// What the runs of a rank's programs work with, whether its device has queues or not: the rank's buffers,
// communicators, data and place in the job.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/buffer_pool.h"
#include "plan/plan.h"
#include "plan/segment_source.h"
#include "runtime/batch_loader.h"
#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/flight_recorder.h"
#include "runtime/kernel_context.h"

namespace windtunnel {

// Indexed by axis. Null where the axis's groups have a single rank, or where the rank's
// role has no stream on it.
using Communicators = std::vector<std::unique_ptr<Communicator>>;

// An operator's operands, located.
struct Operands {
  std::vector<TensorRef> reads, writes;
};

class RunContext {
 public:
  // All arguments must outlive it. `memory` is the device's.
  RunContext(const Plan& plan, int rank, Device& device, SegmentSource& memory, Communicators& communicators,
             BatchLoader& loader, FlightRecorder& recorder);

  const Plan& plan() const { return plan_; }
  const Role& role() const { return role_; }
  int rank() const { return rank_; }
  Device& device() { return device_; }
  BufferPool& pool() { return pool_; }
  FlightRecorder& recorder() { return recorder_; }

  // The axis of a communication stream.
  const Axis& AxisOf(StreamId stream) const { return plan_.axes[role_.streams[stream].axis]; }
  // This rank's position in its group of the axis.
  int PositionOn(const Axis& axis) const { return axis.position_of_rank[rank_]; }
  Communicator& CommunicatorOf(StreamId stream) { return *communicators_[role_.streams[stream].axis]; }
  // Communicator::Wait. If it fails, the error also gives the job's numbers of the group's ranks.
  Status Await(StreamId stream, uint64_t ticket);

  // Where the operator's operands are now.
  void Resolve(const Op& op, Operands& operands) const;
  // Loads a batch of the program that the flight recorder knows as `noted_step`: `step` is a step's number or
  // a held-out batch's.
  void Load(const LoadBatch& op, int64_t step, int64_t noted_step, std::span<const TensorRef> writes);
  KernelContext ContextOf(int64_t step) const;  // of the step's operators

  // Steps that an earlier job with loss scaling skipped, where this one does not scale the loss.
  int64_t skipped_before() const { return skipped_before_; }
  void SetSkippedBefore(int64_t steps) { skipped_before_ = steps; }

  // An operator's error with its name, and that of the program that the flight recorder knows as
  // `noted_step`.
  Error Named(const Op& op, int64_t noted_step, const Error& error) const;
  Error Named(const MemoryOp& op, int64_t noted_step, const Error& error) const;

 private:
  void KeepTimesOfPrograms();
  void Resolve(const std::vector<Slice>& slices, std::vector<TensorRef>& refs) const;

  const Plan& plan_;
  const Role& role_;
  const int rank_;
  Device& device_;
  Communicators& communicators_;
  BatchLoader& loader_;
  FlightRecorder& recorder_;
  BufferPool pool_;
  std::vector<Bytes> element_size_;  // by buffer
  int64_t skipped_before_ = 0;
};

}  // namespace windtunnel
