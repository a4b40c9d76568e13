// What a layer has in place of attention whose heads have states: the state space model of Mamba-2
// (plan/state_space_ops.h) or a gated delta network (plan/delta_net_ops.h), between the layer's two
// projections. As in Megatron-Core's MambaMixer and GatedDeltaNet, each tensor rank has some of the groups
// (heads of keys), with their heads.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "plan/delta_net_ops.h"
#include "plan/head_exchange.h"
#include "plan/layers.h"
#include "plan/state_space_ops.h"

namespace windtunnel {

struct StateSpace {
  struct Parameter {
    int index = -1;
    std::vector<int64_t> blocks = {};  // elements of each that context ranks divide, of a tensor rank
    const char* suffix = "";
    bool is_shared = false;  // by all heads: context ranks do not divide it
    int64_t elements() const { return std::accumulate(blocks.begin(), blocks.end(), int64_t{0}); }
  };

  std::string name;
  std::variant<StateSpaceShape, DeltaNetShape> shape;  // of the rank's groups, and of all tokens
  // Context ranks exchange: each has all tokens of some of the tensor rank's groups in between, and uses its
  // part of the parameters, of which it has the whole.
  ContextParallel context;
  double epsilon = 1e-5;  // of its norm
  // How frameworks compute and keep it:
  //   kOneOperator  with its norm; what that returns is kept (Windtunnel)
  //   kNormApart    the norm is a module of its own, whose input is kept as well, and the norm of what the first
  //                 projection takes is part of that (Megatron-Core)
  //   kOutputAgain  with its norm and the projection behind, for which backward makes the norm's output again
  //                 (mamba_ssm's and Hugging Face's modules)
  enum class Style : uint8_t { kOneOperator, kNormApart, kOutputAgain } style = Style::kOneOperator;
  bool by_chunks = false;  // its kernels, which have another workspace
  DeltaNetKept kept = DeltaNetKept::kByMegatron;  // of a gated delta network, by_chunks
  // In the order in which the operator takes them.
  std::vector<Parameter> parameters;

  struct Saved {
    Slice scanned, statistics;  // the operator's s, and the norm's
    Slice gated;                // Mamba-2, kNormApart: the input of the norm
    Slice by_chunks;            // of a gated delta network: what frameworks' kernels keep
  };
  // What Forward and Backward take, of what the first projection returned.
  Slice Enter(const LayerContext& c, Slice packed) const;
  // Returns the input of the second projection.
  Slice Forward(const LayerContext& c, Slice packed, Saved& saved) const;
  // kOutputAgain: what Forward returned, made again. (Norms' backwards write it beside their own work; here a
  // copy stands for that.)
  Slice OutputAgain(const LayerContext& c, const Saved& saved) const;
  // Returns the gradient of what Enter took.
  Slice Backward(const LayerContext& c, Slice dy, Slice packed, const Saved& saved) const;

 private:
  std::vector<Slice> PartsOf(const Parameter& parameter, Slice whole) const;
  Slice OwnPart(const LayerContext& c, const Parameter& parameter, Slice whole) const;
  Slice WithZeros(const LayerContext& c, const Parameter& parameter, Slice own) const;
  void AddGradients(const LayerContext& c, const std::vector<Slice>& own, bool are_final) const;
  bool is_divided(const Parameter& parameter) const { return context.splits() && !parameter.is_shared; }
  std::vector<int64_t> PackedColumns() const;  // of the tensor rank
  int64_t tokens() const {
    return std::visit([](const auto& s) { return s.tokens(); }, shape);
  }
  int64_t inner() const {
    return std::visit([](const auto& s) { return s.inner(); }, shape);
  }
  int64_t InnerColumns() const { return context.ranks() * inner(); }
  HeadExchange Heads(const LayerContext& c) const {
    return std::visit(
        [&](const auto& s) { return HeadExchange(c, context, s.batch, s.seq / context.ranks()); }, shape);
  }
  std::vector<Slice> Operands(const LayerContext& c) const;
  Slice Workspace(const LayerContext& c, bool backward) const;
};

}  // namespace windtunnel
