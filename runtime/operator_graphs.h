// Operators that a device with queues launches as one graph (plan/graphs.h), captured from their own launches.
//
//   graphs.Begin(program, index, context);             // of the operator that the graph begins with
//   graphs.Add(op, reads, writes);                     // of each of its operators, in order
//   WT_ASSIGN_OR_RETURN(bool at_once, graphs.Issue());
//
// A captured graph contains the addresses of its operands. It is launched as long as its operators come with
// the same operands. When they come with others, they are issued one by one, and a graph is captured when
// they come with those again. So nothing relies on an allocator that hands out the same memory in every step,
// although that is what it does.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "plan/segment_source.h"
#include "runtime/device.h"
#include "runtime/device_queues.h"

namespace windtunnel {

struct Op;
struct Program;

class OperatorGraphs {
 public:
  // REQUIRES: a device with queues, which outlives this.
  explicit OperatorGraphs(Device& device) : device_(device), queues_(*device.queues()) {}

  // `context` is that of all operators of the graph.
  void Begin(const Program& program, int32_t first, const KernelContext& context);
  // `op` must outlive Issue.
  void Add(const Op& op, std::span<const TensorRef> reads, std::span<const TensorRef> writes);
  // Puts what was added into the context's queue. Returns whether it was launched as a graph that had been
  // captured before. Errors: the operators' own, the device's.
  Result<bool> Issue();
  // Called before memory is released that operators which were added may work on: they are issued now, one by
  // one, and the others of their graph when they are added. Issue returns the errors.
  void Flush();

 private:
  static constexpr DeviceQueues::Graph kNone = -1;
  // Operands that change now and then are worth a new graph; those that change again and again are not.
  static constexpr int kMostCaptures = 8;

  struct Part {
    const Op* op;
    size_t reads, writes;  // their numbers; operands_ has them one after the other
  };
  struct Known {
    std::vector<TensorRef> operands = {};  // that the operators came with last
    DeviceQueues::Graph graph = kNone;
    int64_t generation = 0;  // the device's, when it was captured
    int captures = 0;
  };

  Result<bool> IssueWhole();
  Status LaunchEach();
  Status Capture(Known& known);
  bool HasOperandsOf(const Known& known) const;

  Device& device_;
  DeviceQueues& queues_;
  std::map<std::pair<const Program*, int32_t>, Known> known_;
  // The graph that has begun.
  std::pair<const Program*, int32_t> key_ = {};
  KernelContext context_;
  std::vector<Part> parts_;
  std::vector<TensorRef> operands_;
  bool is_flushed_ = false;
  Status flushed_ = Ok();
};

// A device's memory that calls `before_release` before any of it is released.
class WatchedMemory : public SegmentSource {
 public:
  // `memory` must outlive this.
  WatchedMemory(SegmentSource& memory, std::function<void()> before_release)
      : memory_(memory), before_release_(std::move(before_release)) {}

  Result<uint64_t> Reserve(Bytes bytes) override { return memory_.Reserve(bytes); }
  Result<uint64_t> ReserveAddresses(Bytes bytes) override { return memory_.ReserveAddresses(bytes); }
  Status Map(uint64_t address, Bytes bytes) override { return memory_.Map(address, bytes); }
  void Release(uint64_t address, Bytes bytes) override {
    before_release_();
    memory_.Release(address, bytes);
  }
  void Unmap(uint64_t address, Bytes bytes) override {
    before_release_();
    memory_.Unmap(address, bytes);
  }

 private:
  SegmentSource& memory_;
  std::function<void()> before_release_;
};

}  // namespace windtunnel
