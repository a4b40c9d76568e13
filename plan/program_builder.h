// Builds one program of a role: operators are added in host order, and the lifetimes of temporaries follow from their uses.
//
//   ProgramBuilder b(role, "steady");
//   b.SetPhase(Phase::kForward);
//   Slice y = b.Temporary("y", 512 * 256, Category::kActivations);
//   b.Add(Gemm{…}, "blocks.0.mlp.up", {x, weight, bias}, {y});
//   role.steady = b.Finish();
#pragma once

#include <boost/container/deque.hpp>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace windtunnel {

class ProgramBuilder {
 public:
  ProgramBuilder(Role& role, std::string name) : role_(role), name_(std::move(name)) {}

  void SetPhase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }
  void SetLayer(int layer) { layer_ = layer; }  // -1: outside the blocks
  int layer() const { return layer_; }
  void SetStage(int stage) { stage_ = stage; }  // -1: outside the stages
  void SetMicroBatch(int micro_batch) { micro_batch_ = micro_batch; }

  // A buffer that lives from its first use in this program to its last; memory that an operator of another stream uses lives
  // until the compute stream waits for that operator.
  Slice Temporary(std::string name, int64_t elements, Category category, DType dtype = DType::kFloat32,
                  MemorySpace space = MemorySpace::kDevice);

  // The temporary belongs to the stream that uses it first, and is freed while the compute stream may still use it; a caching
  // allocator that keeps memory by stream (PyTorch's) has to be told (Tensor.record_stream).
  void RecordOnCompute(Slice temporary) { recorded_.push_back(temporary.buffer); }

  // The temporary belongs to a stream apart (MemoryOp::apart), whichever uses it first.
  void BelongsApart(Slice temporary, StreamId stream) { apart_[temporary.buffer] = stream; }

  // The temporary lives, beside its uses, until the last operator of the compute stream so far.
  void KeepUntilHere(Slice temporary) { kept_.emplace_back(temporary.buffer, LastCompute()); }

  // Memory that operator `op` of the compute stream works in, and nothing else, though none of its operands says so.
  void WorkedInBy(OpIndex op, Slice temporary) { worked_in_.emplace_back(temporary.buffer, op); }

  // Two runs of operators that take turns on the device, neither of which needs what the other makes: each is added as if the other were
  // not there, first one, then, from NextRun to EndTurns, the other. Where an operator goes is said by AtTurn before it: Finish has them by
  // turn, by slot within it, and as they were added within that. Outside of BeginTurns and EndTurns AtTurn does nothing.
  void BeginTurns();
  void NextRun();
  void EndTurns();
  void AtTurn(int turn) { AtTurn(turn, 0); }
  void AtSlot(int slot) { AtTurn(turn_, slot); }
  static constexpr int kLastTurn = 1 << 24;

  // All temporaries belong to the compute stream, whichever stream uses them first: where, in what is modelled, communication is
  // enqueued on the stream that computes.
  void BelongToCompute() { belong_to_compute_ = true; }

  // Adds an operator on the compute stream, or on `stream` with dependencies on other streams' operators.
  OpIndex Add(OpKind kind, std::string name, std::vector<Slice> reads, std::vector<Slice> writes,
              std::vector<OpIndex> dependencies = {}, StreamId stream = kComputeStream);

  // Says whose values or gradients a communication operator carries, for reports. Nothing when `op` is -1.
  void Carries(OpIndex op, const std::vector<int>& parameters);

  // The next operator on the compute stream also waits for `op` of another stream; nothing when it is -1.
  void WaitBeforeNextCompute(OpIndex op);

  // What uses `slice`'s buffer next, on the compute stream or before that on others, waits for `op` of another stream; nothing when
  // that is -1.
  void WaitBeforeUse(const Slice& slice, OpIndex op);

  // What uses `other`'s buffer next waits for what uses of `slice` wait for, and those no longer do. REQUIRES: both wait for one stream.
  void AwaitWith(const Slice& slice, const Slice& other);

  // A part of the rows of what is gathered, and the operator of another stream that it comes with; -1: it is there.
  struct Arrival {
    Slice part;
    OpIndex op = -1;
  };
  // `whole` comes in parts, which `start` sends on their way when something first uses it; they come in the order that it returns. What uses
  // `whole` without asking for its parts waits for the last.
  void ComesInParts(const Slice& whole, std::function<std::vector<Arrival>()> start);
  bool WillComeInParts(const Slice& whole) const { return coming_.contains(whole.buffer); }
  // Starts them where they have not been: what uses `whole` next waits for the last.
  void StartParts(const Slice& whole);
  // Starts them; from now on it is the caller who waits for each. Empty: it is there, or comes at once.
  std::vector<Arrival> TakeParts(const Slice& whole);

  // Allocates or frees a buffer that outlives this program (Role::buffers, not a temporary).
  void Alloc(BufferId id) { AddMemory({.kind = MemoryOp::Kind::kAlloc, .buffer = id}); }
  void AllocApart(BufferId id, StreamId stream) {
    AddMemory({.kind = MemoryOp::Kind::kAlloc, .apart = true, .buffer = id, .stream = stream});
  }
  void Free(BufferId id) { AddMemory({.kind = MemoryOp::Kind::kFree, .buffer = id}); }

  // What the next operator on the compute stream comes after: the last one there, and what it will wait for.
  std::vector<OpIndex> BeforeNextCompute() const;
  // The last operator added on the compute stream; -1: none yet.
  OpIndex LastCompute() const { return LastOn(kComputeStream); }
  OpIndex LastOn(StreamId stream) const;
  // The last operator that writes the buffer. REQUIRES: there is one.
  OpIndex LastWriterOf(BufferId buffer) const;
  StreamId StreamOf(OpIndex op) const { return ops_[op].stream; }

  // Places where temporaries are allocated and freed. The builder is spent.
  Program Finish();

  Role& role() { return role_; }

 private:
  void AddMemory(MemoryOp op);
  // The operators of two runs that take turns: ops_[begin, next) and [next, end), and the place of each among them; and what they do to
  // memory, memory_[begin_memory, end_memory).
  struct Turns {
    OpIndex begin = -1, next = -1, end = -1;
    size_t begin_memory = 0, end_memory = 0;
    std::vector<int32_t> places = {}, memory_places = {};
    // As they were at the beginning, and what the first run left to be awaited.
    std::vector<OpIndex> last_on = {}, awaited = {}, left_awaited = {};
  };
  void AtTurn(int turn, int slot) { turn_ = turn, slot_ = slot; }
  int32_t Place() const;  // of what is added now
  // That each stream has the operators of either run in the order in which they were added, on which what they wait for counts.
  void CheckOrder(const Turns& turns) const;
  std::vector<OpIndex> InOrder(const Turns& turns) const;
  void PutMemoryInOrder(const Turns& turns, const std::vector<OpIndex>& order);
  void PutInOrder();
  // Freed after `last`, which uses it; or before `last`, which begins only when another stream has done with it.
  struct Lifetime {
    OpIndex first = -1, last = -1;
    bool ends_before = false;
  };
  // By operator of another stream: the first later operator of the compute stream that begins after it is done, whether it waits for
  // that itself, for a later one of its stream, or for one that waited for it; the program's last one when nothing waits.
  std::vector<OpIndex> WaitedForBy() const;
  std::vector<Lifetime> LifetimesOfTemporaries() const;  // indexed as temporaries_
  std::vector<MemoryOp> PlaceMemory() const;

  bool IsOnHost(const Op& op) const;

  // In blocks: operators are large and many, and do not move until they have their places.
  using BlockOptions = boost::container::deque_options<boost::container::block_size<1024>>;
  Role& role_;
  std::string name_;
  boost::container::deque<Op, void, BlockOptions::type> ops_;
  std::vector<MemoryOp> memory_;  // but for temporaries
  Phase phase_ = Phase::kForward;
  int layer_ = -1;
  int stage_ = -1;
  int micro_batch_ = -1;
  std::vector<OpIndex> last_on_;  // by stream
  std::vector<OpIndex> awaited_;  // by the next operator on the compute stream
  std::unordered_map<BufferId, OpIndex> awaited_by_use_;
  std::unordered_map<BufferId, std::function<std::vector<Arrival>()>> coming_;
  std::vector<BufferId> temporaries_;
  std::vector<BufferId> recorded_;
  std::unordered_map<BufferId, StreamId> apart_;  // temporaries, and whose they are
  std::vector<std::pair<BufferId, OpIndex>> kept_, worked_in_;
  bool belong_to_compute_ = false;
  std::vector<Turns> turns_;
  bool is_in_turns_ = false;
  int turn_ = 0, slot_ = 0;
};

// Adds a buffer that outlives single programs to the role, and returns the whole of it.
Slice NewBuffer(Role& role, std::string name, int64_t elements, Category category,
                DType dtype = DType::kFloat32, MemorySpace space = MemorySpace::kDevice);

}  // namespace windtunnel
