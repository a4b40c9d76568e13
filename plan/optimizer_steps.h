// The optimizer's part of a step: summing gradients over tensor ranks where each has a part of the sum,
// unscaling if the loss was scaled, clipping by the global norm, making the state at first use, the update.
//
//   optimizer.BeginUpdate(builder, targets);
//   optimizer.PrepareGradients(builder, first);
//   optimizer.AddUpdate(builder, first, 0, optimizer.targets());
#pragma once

#include <array>
#include <string>
#include <vector>

#include "plan/collectives.h"
#include "plan/data_parallel.h"
#include "plan/program_builder.h"

namespace windtunnel {

// What the optimizer updates as one tensor: a parameter, or a shard of several.
struct OptimizerTarget {
  std::string name;
  Slice values, gradient;
  // False: another rank updates it and has its state. Its gradient counts in the norm, and is clipped.
  bool is_own = true;
};

// PyTorch's foreach optimizer, which on a device updates all tensors at once, with the roots of all second
// moments in memory of their own.
bool UpdatesForeach(Framework framework, const OptimizerSpec& spec);

class OptimizerSteps {
 public:
  // `tensor`: the axis whose ranks have parts of the parameters.
  OptimizerSteps(Role& role, const Scenario& scenario, CollectiveStream& tensor, NormRanks norm_ranks);

  // Begins a step's update of `targets`. From one step to the next only their gradients may change (buffers
  // of another program): the first call makes the states' buffers, in the same memory space (device or host)
  // as the values.
  // Sums over the tensor axis, in one all-reduce, the gradients that each rank has computed from its own
  // tokens only (Parameter::is_partial_gradient). If the parameter is also sharded, the rank sums its shard.
  // Gradients in host memory are packed there, and copied to the device and back on stream `copies`.
  void BeginUpdate(ProgramBuilder& b, std::vector<OptimizerTarget> targets, StreamId copies = kComputeStream);
  // BeginUpdate for updates in backward, which need no sums over the tensor axis: adds no operators.
  void Prepare(std::vector<OptimizerTarget> targets);
  // The gradients are elsewhere now: sets targets that differ in nothing else.
  void SetTargets(std::vector<OptimizerTarget> targets) { targets_ = std::move(targets); }
  // Unscales and clips all gradients, of which the ranks over NormRanks::axes hold parts.
  //   unscaling   divides them by the loss scale. The ranks agree on whether one overflowed; if so, updates
  //               write nothing. Only with loss scaling
  //   clipping    by their norm, in which what several of these ranks hold counts once: copies
  //               (Parameter::is_copy), parameters that every tensor rank has whole, and
  //               NormRanks::dense_copies. Only with clip_norm
  void PrepareGradients(ProgramBuilder& b, bool first);
  // The gradient of target `target` is there now.
  void SetGradient(int target, Slice gradient) { targets_[static_cast<size_t>(target)].gradient = gradient; }
  // Updates targets [begin, end); with OptimizerSpec::in_backward parameter by parameter. `first` also makes
  // their state, as torch.optim does in its first step.
  OpIndex AddUpdate(ProgramBuilder& b, bool first, int begin, int end, const std::string& name = "optimizer");

  int targets() const { return static_cast<int>(targets_.size()); }

 private:
  // What one state belongs to: a target; with Muon, moments in 8 bits or updates in backward, a parameter within
  // a target.
  struct Piece {
    int target;
    int64_t first, elements;  // within the target
    std::string name;
    int parameter = -1;     // updated by Muon
    bool is_small = false;  // its moments are in fp32, and others in 8 bits
    // Momentum or first moments, and second moments; buffer -1: none.
    std::array<Slice, 2> states = {};
  };

  void MakeBuffers();
  void AddTensorSums(ProgramBuilder& b, StreamId copies);
  void AddUnscaling(ProgramBuilder& b);
  void AddClipping(ProgramBuilder& b, bool first);
  std::vector<Piece> PiecesOf(int target) const;
  static Slice PartOf(Slice whole, const Piece& piece);
  Slice ValuesOf(const Piece& piece) const { return PartOf(targets_[piece.target].values, piece); }
  Slice GradientOf(const Piece& piece) const { return PartOf(targets_[piece.target].gradient, piece); }
  using Pieces = std::vector<const Piece*>;
  void MakeStates(ProgramBuilder& b, const Pieces& pieces) const;
  // The update of pieces that are not Muon's: all at once, element by element.
  OpIndex AddElementwise(ProgramBuilder& b, const Pieces& pieces, const std::string& name);
  OpIndex AddMuon(ProgramBuilder& b, const Piece& piece);
  OpIndex AddUpdatesOneByOne(ProgramBuilder& b, bool first, int begin, int end);
  Slice GradientOf(const Parameter& parameter) const;
  GradientNorm NormOf(std::vector<Slice>& gradients) const;

  Role& role_;
  OptimizerSpec spec_;
  CollectiveStream& tensor_;
  NormRanks norm_ranks_;
  Framework framework_;
  bool is_foreach_;
  bool has_buffers_ = false;
  std::vector<OptimizerTarget> targets_;
  std::vector<Piece> pieces_;  // in the order of targets
};

}  // namespace windtunnel
