// ZeRO-3 as DeepSpeed's third stage has it (deepspeed/runtime/zero: stage3.py, partitioned_param_coordinator.py,
// partition_parameters.py, 0.16 and later).
//
// Between steps every rank has a part of each parameter, ceil(elements / ranks) long, in the type that the model
// computes in; of what is trained also the same part of the gradient, of the optimizer's masters and its
// state. Small parameters (param_persistence_threshold) are whole on every rank besides.
//
// Fetching. A module here is a layer with weights of its own: a linear layer, a norm, an embedding. The first
// time that a pass comes to it, its parameters are all-gathered. The first micro-batch records the order of
// modules. From then on, each module also starts to gather what comes next, prefetch_bucket_size elements and
// more at each module, as long as no more than max_live_parameters are there or on their way.
// What is gathered together is packed, gathered and copied out into whole tensors; a parameter alone is
// gathered in place. All-gathers and these copies follow each other here, as on one stream, and the host
// waits for what was fetched three waits ago. (In DeepSpeed copies into a buffer do not wait for the
// all-gather before, which is on NCCL's stream.)
//
// Releasing. Behind a module its parameters are dropped, unless they are needed again within max_reuse_distance
// elements of other modules, or prefetching has passed over a later use because they were there. So the last
// billion parameters around the turn from forward to backward are gathered once, and small models as a whole.
// An embedding is gathered for its backward, too, though that does not read it.
//
// Gradients. Each is copied into a bucket as soon as it is complete. A full bucket is reordered by ranks,
// divided by their number and reduce-scattered, and the result is added to the parts of gradients (`reduce`).
// All of this is on one stream of its own; a parameter that is larger than the bucket is reduced from where
// it is. Every micro-batch reduces: there is no no_sync.
//
// With shard_size (MiCS) parameters are spread over so many ranks, and the last micro-batch's gradients are also
// summed over the ranks with the same part, bucket by bucket.
//
// The update is of fp32 masters. DeepSpeed updates them in sub-groups of a billion elements, which changes
// nothing but the memory of their fp32 gradients: here these exist all at once. It then converts the masters,
// and gathers the parameters that are whole: Windtunnel's own those that changed, together; DeepSpeed all of
// them, one by one.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "plan/data_parallel.h"
#include "plan/optimizer_steps.h"

namespace windtunnel {

class Zero3 : public DataParallel {
 public:
  explicit Zero3(const StrategyContext& context);

  void Initialize(ProgramBuilder& b) override;
  void BeginStep(ProgramBuilder& b, int64_t step) override;
  void BeginForward() override;
  void BeginBackward(bool is_last) override;
  void EndBackward() override;
  Slice ReducedGradient(int index) override;
  void Update(ProgramBuilder& b, bool first) override;
  void Restore(ProgramBuilder& b) override;
  void BeginEvaluation(ProgramBuilder& b) override;
  // The first step's first micro-batch tells the order of modules.
  bool learns() const override { return true; }

  void BeforeForward(ModuleId) override { EnterScope(); }
  void AfterForward(ModuleId) override { scopes_.pop_back(); }
  void BeforeBackward(ModuleId) override { EnterScope(); }
  void AfterBackward(ModuleId) override { scopes_.pop_back(); }

  Slice Values(int index) override;
  Slice Gradient(int index) override;
  bool HoldsValue(int index) const override { return parameters_[index].holds_gradient; }
  void Ready(int index, bool is_last) override;
  void Wrote(int index) override { parameters_[index].holds_gradient = true; }

 private:
  static constexpr int kNone = -1;

  // Parameters that are fetched together, while a program is built.
  struct Fetch {
    std::vector<int> parameters;
    Slice packed;  // of several parameters: what is gathered, by ranks
    OpIndex gather = -1;
    OpIndex available = -1;  // the operator behind which the parameters are in order; -1: not yet
  };
  // Parts of parameters to be gathered: `own` within `whole`, which has those of all ranks.
  struct Packed {
    Slice own, whole;
    std::vector<int64_t> shards;
    OpIndex ready = -1;
  };
  struct ParameterState {
    int module = kNone;
    int64_t elements = 0, shard = 0;
    int64_t start = 0;      // of its part among the rank's parts
    bool is_whole = false;  // on every rank, always
    Slice values;           // the rank's part
    Slice whole;            // buffer -1: not there
    int fetch = kNone;      // the fetch that brings it, or has
    bool is_awaited = false;
    int64_t seen_until = kNone;  // the place of its last use that has left the queue
    Slice gradient;              // of this micro-batch, not yet in the bucket; buffer -1: none
    bool holds_gradient = false;
  };
  struct ModuleState {
    std::vector<int> parameters;
    int64_t elements = 0;
    int64_t used_in = kNone;  // the scope (scopes_) that used it last
  };
  // A gradient to be reduced, and where it is, behind operator `ready`.
  struct Reduced {
    int parameter = kNone;
    Slice gradient;
    OpIndex ready = -1;
  };
  // A reduction whose result, this rank's parts, has not been added yet. It is there behind operator `after`.
  struct Arriving {
    std::vector<Reduced> gradients;
    Slice own;
    OpIndex after = -1;
  };
  // A use of a parameter, by its place in the order of modules.
  struct Queued {
    int parameter = kNone;
    int64_t place = 0;
  };

  bool has_masters() const { return type_ != DType::kFloat32 || offload_ != Offload::kNone; }
  // DeepSpeed gathers each of the parameters that stay whole by itself, also those that are frozen.
  bool gathers_each() const { return framework_ != Framework::kWindtunnel; }
  int ranks() const { return shard_axis_.ranks(); }
  static bool is_beside(StreamId stream) { return stream != kComputeStream; }
  const std::string& NameOf(int parameter) const { return role_.parameters[parameter].name; }
  // Of the first of several, and how many more there are: "head.weight +3".
  static std::string NameOf(const std::string& first, size_t count) {
    return count == 1 ? first : fmt::format("{} +{}", first, count - 1);
  }
  // The rank's part of the sum.
  Slice PartOf(int parameter) const {
    return Slice{gradients_.buffer, parameters_[parameter].start, parameters_[parameter].shard};
  }
  // Neither there nor on its way.
  bool IsAway(int parameter) const {
    return !parameters_[parameter].is_whole && parameters_[parameter].fetch == kNone;
  }
  OpIndex AddOn(StreamId stream, OpKind kind, std::string name, std::vector<Slice> reads,
                std::vector<Slice> writes, std::vector<OpIndex> after);

  // zero3.cc
  void MakeModules();
  void MakeParts(int64_t threshold);
  void MakeBuffers();
  void InitializeParameter(ProgramBuilder& b, int index);
  void BeginProgram(ProgramBuilder& b);
  OpIndex ConvertMasters(OpIndex after);
  void GatherWhole(OpIndex after, bool with_frozen);
  void GatherEach(const std::vector<int>& parameters, OpIndex after);

  // zero3_parameters.cc
  void EnterScope() { scopes_.push_back(++last_scope_); }
  void Use(int index);
  void Enter(int module);
  void Leave();
  void TakeFromQueue(int module);
  void Prefetch();
  bool IsNeededSoon() const;
  void Release(int index);
  void FollowOrder();
  Packed Pack(const std::vector<int>& parameters, OpIndex after);
  Copy ToDevice(int64_t elements) const;
  Slice PartOnDevice(int index, OpIndex& ready);
  void Gather(std::vector<int> parameters);
  void GatherAlone(int index, OpIndex after, Fetch& fetch);
  void Await(int index);
  void PutInOrder(Fetch& fetch);

  // zero3_gradients.cc
  Slice InOrder(OpIndex& ready);
  std::string NameOf(const std::vector<Reduced>& gradients) const;
  void Launch();
  void Settle();
  void SumOverReplicas(const std::vector<Reduced>& gradients);

  Role& role_;
  Zero3Spec spec_;
  Offload offload_;
  Framework framework_;
  DType type_, reduce_;  // of parameters; of gradients in buckets, on the wire, and added up
  CollectiveStream &data_, &shard_axis_, &replicate_;
  // Copies around all-gathers, and all that is done to gradients; the compute stream without overlap, or where
  // the host computes.
  StreamId copies_, reductions_, host_;
  bool overlaps_;
  int64_t bucket_elements_;
  std::vector<ParameterState> parameters_;
  std::vector<ModuleState> modules_;
  int64_t elements_ = 0,
          trained_ = 0;  // of the rank's parts: all, and those that are trained, which come first
  Slice values_, masters_, gradients_, bucket_;
  OptimizerSteps optimizer_;

  // The order of modules in one micro-batch, and by place: the elements of all modules before, and the place
  // of the module's next use (-1: none).
  std::vector<int> order_;
  std::vector<int64_t> elements_before_;
  std::vector<int64_t> next_use_;
  enum class Trace { kNone, kRecords, kFollows } trace_ = Trace::kNone;
  bool has_order_ = false;

  ProgramBuilder* b_ = nullptr;
  bool evaluates_ = false;
  std::vector<int64_t> scopes_;  // the models' modules that are open, numbered, innermost last
  int64_t last_scope_ = 0;
  int module_ = kNone;          // the module whose parameters are in use
  int64_t place_ = 0;           // of the next module in the order
  std::vector<Queued> queued_;  // all uses of parameters, in order
  size_t queue_ = 0;            // those before it have left the queue
  int64_t live_ = 0;            // elements that are whole, or on their way
  std::vector<Fetch> fetches_;
  OpIndex last_fetch_ = -1;      // of the all-gathers and the copies around them
  std::deque<OpIndex> fetched_;  // what the host has yet to wait for

  std::vector<Reduced> in_bucket_;
  int64_t filled_ = 0;
  std::vector<Arriving> arriving_;
  OpIndex last_copied_ = -1, last_reduction_ = -1, bucket_free_after_ = -1;
  bool is_last_backward_ = false, adds_gradients_ = false;
};

}  // namespace windtunnel
