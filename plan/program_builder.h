// Builds one program of a role: operators are added in host order, and the lifetimes of temporaries follow
// from their uses.
//
//   ProgramBuilder b(role, "steady");
//   b.SetPhase(Phase::kForward);
//   Slice y = b.Temporary("y", 512 * 256, Category::kActivations);
//   b.Add(Gemm{…}, "blocks.0.mlp.up", {x, weight, bias}, {y});
//   role.steady = b.Finish();
#pragma once

#include <boost/container/deque.hpp>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/activation_offload.h"
#include "plan/plan.h"

namespace windtunnel {

class ProgramBuilder {
 public:
  ProgramBuilder(Role& role, std::string name) : role_(role), name_(std::move(name)) {}

  void SetPhase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }
  void SetLayer(int layer) { layer_ = layer; }  // -1: outside the blocks
  int layer() const { return layer_; }
  void SetPart(LayerPart part) { part_ = part; }
  LayerPart part() const { return part_; }
  void SetStage(int stage) { stage_ = stage; }  // -1: outside the stages
  void SetMicroBatch(int micro_batch) { micro_batch_ = micro_batch; }
  int micro_batch() const { return micro_batch_; }

  // The program only evaluates: nothing is dropped.
  void Evaluates() { evaluates_ = true; }
  bool evaluates() const { return evaluates_; }

  // A buffer that lives from its first use in this program to its last. If an operator of another stream uses
  // it, it lives until the compute stream waits for that operator.
  Slice Temporary(std::string name, int64_t elements, Category category, DType dtype = DType::kFloat32,
                  MemorySpace space = MemorySpace::kDevice);

  // The temporary belongs to the stream that uses it first, and is freed while the compute stream may still
  // use it. A caching allocator with a pool per stream (PyTorch's) must be told so (Tensor.record_stream).
  void RecordOnCompute(Slice temporary) { recorded_.push_back(temporary.buffer); }

  // The temporary belongs to the second pool (MemoryOp::apart) of `stream`, whichever stream uses it first.
  void BelongsApart(Slice temporary, StreamId stream) { apart_[temporary.buffer] = stream; }

  // The temporary lives at least until the end of the last operator that is on the compute stream so far.
  void KeepUntilHere(Slice temporary) { kept_.emplace_back(temporary.buffer, LastCompute()); }

  // The temporary is a workspace of operator `op` of the compute stream alone, and not among its operands.
  void WorkedInBy(OpIndex op, Slice temporary) { worked_in_.emplace_back(temporary.buffer, op); }

  // What forward keeps for backward leaves the device in between (Finish adds the copies).
  void OffloadActivations(ActivationOffload how) { offload_ = std::move(how); }

  // Interleaves two runs of operators that are independent of each other. Each run is added as if the other
  // did not exist, the first from BeginTurns to NextRun, the second from NextRun to EndTurns. AtTurn and
  // AtSlot set the position of the operators added next. Finish sorts the operators of both runs by turn,
  // then by slot, then in the order of adding. Outside of BeginTurns and EndTurns, AtTurn has no effect.
  void BeginTurns();
  void NextRun();
  void EndTurns();
  void AtTurn(int turn) { AtTurn(turn, 0); }
  void AtSlot(int slot) { AtTurn(turn_, slot); }
  static constexpr int kLastTurn = 1 << 24;

  // All temporaries belong to the compute stream, whichever stream uses them first: for frameworks, predicted
  // only, that enqueue communication on the compute stream.
  void BelongToCompute() { belong_to_compute_ = true; }

  // Adds an operator on `stream`. `dependencies`: operators of other streams that it waits for.
  OpIndex Add(OpKind kind, std::string name, std::vector<Slice> reads, std::vector<Slice> writes,
              std::vector<OpIndex> dependencies = {}, StreamId stream = kComputeStream);

  // Records whose values or gradients a communication operator carries, for reports. If `op` is -1: nothing.
  void Carries(OpIndex op, const std::vector<int>& parameters);

  // The next operator on the compute stream also waits for `op` of another stream; if `op` is -1: nothing.
  void WaitBeforeNextCompute(OpIndex op);

  // The next use of `slice`'s buffer on the compute stream, and uses on other streams before that, wait for
  // `op` of another stream. Does nothing if `op` is -1.
  void WaitBeforeUse(const Slice& slice, OpIndex op);

  // Moves the wait of `slice` (WaitBeforeUse) to `other`: the next use of `other`'s buffer waits for it, and
  // uses of `slice` no longer do. REQUIRES: both wait for operators of the same stream.
  void AwaitWith(const Slice& slice, const Slice& other);

  // A part of the rows of a gathered tensor, and the operator of another stream that brings it; -1: none.
  struct Arrival {
    Slice part;
    OpIndex op = -1;
  };
  // `whole` arrives in parts. `start` adds their transfers when something first uses `whole`, and returns
  // them in the order of arrival. An operator that uses `whole` without TakeParts waits for the last part.
  void ComesInParts(const Slice& whole, std::function<std::vector<Arrival>()> start);
  bool WillComeInParts(const Slice& whole) const { return coming_.contains(whole.buffer); }
  // Starts the parts if they have not been started: the next use of `whole` waits for the last one.
  void StartParts(const Slice& whole);
  // Starts the parts and returns them; the caller must wait for each. Empty: `whole` is not coming in parts.
  std::vector<Arrival> TakeParts(const Slice& whole);

  // Allocates or frees a buffer that outlives this program (Role::buffers, not a temporary).
  void Alloc(BufferId id) { AddMemory({.kind = MemoryOp::Kind::kAlloc, .buffer = id}); }
  void AllocApart(BufferId id, StreamId stream) {
    AddMemory({.kind = MemoryOp::Kind::kAlloc, .apart = true, .buffer = id, .stream = stream});
  }
  void Free(BufferId id) { AddMemory({.kind = MemoryOp::Kind::kFree, .buffer = id}); }

  // What the next operator on the compute stream follows: the last one there, and those it will wait for.
  std::vector<OpIndex> BeforeNextCompute() const;
  // The last operator added on the compute stream; -1: none yet.
  OpIndex LastCompute() const { return LastOn(kComputeStream); }
  OpIndex LastOn(StreamId stream) const;
  // The last operator that writes the buffer. REQUIRES: there is one.
  OpIndex LastWriterOf(BufferId buffer) const;
  StreamId StreamOf(OpIndex op) const { return ops_[op].stream; }

  // Adds the allocations and frees of temporaries and returns the program. The builder is then used up.
  Program Finish();

  Role& role() { return role_; }

 private:
  void AddMemory(MemoryOp op);
  // Two interleaved runs: the operators ops_[begin, next) and ops_[next, end), their memory operations
  // memory_[begin_memory, end_memory), and the sort key of each of these (Place).
  struct Turns {
    OpIndex begin = -1, next = -1, end = -1;
    size_t begin_memory = 0, end_memory = 0;
    std::vector<int32_t> places = {}, memory_places = {};
    // last_on_ and awaited_ at the beginning, and awaited_ as the first run left it.
    std::vector<OpIndex> last_on = {}, awaited = {}, left_awaited = {};
  };
  void AtTurn(int turn, int slot) { turn_ = turn, slot_ = slot; }
  int32_t Place() const;  // the sort key of what is added next: turn, then slot
  // Checks that sorting keeps each run's order of adding on every stream, which the operators' waits rely on.
  void CheckOrder(const Turns& turns) const;
  std::vector<OpIndex> InOrder(const Turns& turns) const;
  void PutMemoryInOrder(const Turns& turns, const std::vector<OpIndex>& order);
  void PutInOrder();
  // A temporary is freed after `last`, which uses it; with `ends_before` it is freed before `last`, an
  // operator that waits until another stream has finished using it.
  struct Lifetime {
    OpIndex first = -1, last = -1;
    bool ends_before = false;
  };
  // For each operator of another stream, the first later operator of the compute stream that begins after it
  // has finished: one that waits for it, for a later operator of its stream, or for an operator that waited
  // for it. The program's last operator if nothing waits.
  std::vector<OpIndex> WaitedForBy() const;
  std::vector<Lifetime> LifetimesOfTemporaries() const;  // indexed as temporaries_
  std::vector<MemoryOp> PlaceMemory() const;

  bool IsOnHost(const Op& op) const;
  void AddOffload();

  // A deque: operators are large and many, and growing it does not move them.
  using BlockOptions = boost::container::deque_options<boost::container::block_size<1024>>;
  Role& role_;
  std::string name_;
  boost::container::deque<Op, void, BlockOptions::type> ops_;
  std::vector<MemoryOp> memory_;  // without those of temporaries
  Phase phase_ = Phase::kForward;
  int layer_ = -1;
  LayerPart part_ = LayerPart::kNone;
  int stage_ = -1;
  int micro_batch_ = -1;
  bool evaluates_ = false;
  std::vector<OpIndex> last_on_;  // by stream
  std::vector<OpIndex> awaited_;  // what the next operator on the compute stream waits for
  std::unordered_map<BufferId, OpIndex> awaited_by_use_;
  std::unordered_map<BufferId, std::function<std::vector<Arrival>()>> coming_;
  std::vector<BufferId> temporaries_;
  std::vector<BufferId> recorded_;
  std::unordered_map<BufferId, StreamId> apart_;  // temporaries in a second pool, and its stream
  std::vector<std::pair<BufferId, OpIndex>> kept_, worked_in_;
  bool belong_to_compute_ = false;
  std::optional<ActivationOffload> offload_;
  std::vector<Turns> turns_;
  bool is_in_turns_ = false;
  int turn_ = 0, slot_ = 0;
};

// Operators added within a scope belong to a part of the layer.
class InPart {
 public:
  InPart(ProgramBuilder& b, LayerPart part) : b_(b), before_(b.part()) { b_.SetPart(part); }
  ~InPart() { b_.SetPart(before_); }
  InPart(const InPart&) = delete;
  InPart& operator=(const InPart&) = delete;

 private:
  ProgramBuilder& b_;
  const LayerPart before_;
};

// Adds a buffer that outlives single programs to the role, and returns the whole of it.
Slice NewBuffer(Role& role, std::string name, int64_t elements, Category category,
                DType dtype = DType::kFloat32, MemorySpace space = MemorySpace::kDevice);

}  // namespace windtunnel
