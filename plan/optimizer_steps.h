// The optimizer's part of a step: summing gradients over tensor ranks where each has a part of the sum,
// unscaling if the loss was scaled, clipping by the global norm, making the state at first use, the update.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "plan/collectives.h"
#include "plan/program_builder.h"

namespace windtunnel {

// What the optimizer updates as one tensor: a parameter, or a shard of several.
struct OptimizerTarget {
  std::string name;
  Slice values, gradient;
};

// PyTorch's foreach optimizer, which on a device updates all tensors at once, with the roots of all second
// moments in memory of their own.
bool UpdatesForeach(Framework framework, const OptimizerSpec& spec);

class OptimizerSteps {
 public:
  // The states are in the same memory space (device or host) as their values. `tensor`: the axis whose ranks
  // have parts of the parameters. `dense_copies`: the number of ranks, of those that the norm is summed over,
  // that have the same part of the parameters that are not experts'.
  OptimizerSteps(Role& role, const OptimizerSpec& spec, CollectiveStream& tensor,
                 const std::vector<OptimizerTarget>& targets, Framework framework, int dense_copies = 1);

  // Sets other gradients (buffers of another program); everything else must stay the same.
  void SetTargets(std::vector<OptimizerTarget> targets) { targets_ = std::move(targets); }

  // Sums over the tensor axis, in one all-reduce, the gradients that each rank has computed from its own
  // tokens only (Parameter::is_partial_gradient). If the parameter is also sharded, the rank sums its shard.
  // Gradients in host memory are packed there, and copied to the device and back on stream `copies`.
  void AddTensorSums(ProgramBuilder& b, StreamId copies = kComputeStream);
  // Divides all gradients by the loss scale. The ranks that hold parts of them, over the axes `agree_over`,
  // agree on whether one overflowed; if so, updates write nothing. Does nothing without loss scaling.
  void AddUnscaling(ProgramBuilder& b, const std::vector<CollectiveStream*>& agree_over);
  // Clips all gradients. `sum_over`: the axes over which the ranks hold parts of them. What several of these
  // ranks hold counts once: copies (Parameter::is_copy), parameters that every tensor rank has whole, and
  // `dense_copies`. Does nothing without clip_norm.
  void AddClipping(ProgramBuilder& b, bool first, const std::vector<CollectiveStream*>& sum_over);
  // Updates targets [begin, end). `first` also makes their state, as torch.optim does in its first step.
  OpIndex AddUpdate(ProgramBuilder& b, bool first, int begin, int end, const std::string& name = "optimizer");

  int targets() const { return static_cast<int>(targets_.size()); }

 private:
  // What one state belongs to: a target; with Muon, a parameter within a target.
  struct Piece {
    int target;
    int64_t first, elements;  // within the target
    std::string name;
    int parameter = -1;  // updated by Muon
    // Momentum or first moments, and second moments; buffer -1: none.
    std::array<Slice, 2> states = {};
  };

  std::vector<Piece> PiecesOf(int target) const;
  static Slice PartOf(Slice whole, const Piece& piece);
  Slice ValuesOf(const Piece& piece) const { return PartOf(targets_[piece.target].values, piece); }
  Slice GradientOf(const Piece& piece) const { return PartOf(targets_[piece.target].gradient, piece); }
  using Pieces = std::vector<const Piece*>;
  void MakeStates(ProgramBuilder& b, const Pieces& pieces) const;
  // The update of pieces that are not Muon's: all at once, element by element.
  OpIndex AddElementwise(ProgramBuilder& b, const Pieces& pieces, const std::string& name);
  OpIndex AddMuon(ProgramBuilder& b, const Piece& piece);
  Slice GradientOf(const Parameter& parameter) const;
  GradientNorm NormOf(std::vector<Slice>& gradients) const;

  Role& role_;
  OptimizerSpec spec_;
  CollectiveStream& tensor_;
  int dense_copies_;
  std::vector<OptimizerTarget> targets_;
  std::vector<Piece> pieces_;  // in the order of targets
  Framework framework_;
  bool is_foreach_ = false;
};

}  // namespace windtunnel
