// What a model asks of the data-parallel strategy that owns its parameters. Models (plan/model.h) know only this; a strategy
// (plan/data_parallel.h) implements it to hook itself in, as PyTorch's DDP hooks gradient accumulators and FSDP modules.
#pragma once

#include <string>
#include <vector>

#include "plan/program_builder.h"

namespace windtunnel {

using ModuleId = int;
inline constexpr ModuleId kRootModule = 0;

// A part of the model that strategies may treat as one: a tree with the whole model, or the stage, at its root, in forward order
// (preorder). The modules of a rank that holds several stages are their trees, one after the other.
struct Module {
  std::string name;  // "blocks.0.attn"; the root's is empty
  ModuleId parent = -1;
  std::vector<int> parameters;  // its own, without those of its children (indices in registration order)

  bool is_root() const { return parent < 0; }
};

// What a model's hooks and a strategy's have in common.
class ParameterHooks {
 public:
  virtual ~ParameterHooks() = default;

  // A module's part of a micro-batch begins, or is over; nested as the modules are. What recomputes in backward calls the forward
  // pair again, inside the backward pair.
  virtual void BeforeForward(ModuleId) {}
  virtual void AfterForward(ModuleId) {}
  virtual void BeforeBackward(ModuleId) {}
  virtual void AfterBackward(ModuleId) {}

  // Where parameter `index` has its values for the next operator, in the type that the model computes in.
  virtual Slice Values(int index) = 0;
  // Where it has its gradient, of the same type; allocated if need be.
  virtual Slice Gradient(int index) = 0;
  // Whether the gradient already holds a value of this step, to be added to.
  virtual bool HoldsValue(int index) const = 0;
  // It holds a value, and another operator of this micro-batch will add to it.
  virtual void Wrote(int index) = 0;
};

class ModelHooks : public ParameterHooks {
 public:
  // The last operator that writes this gradient in this micro-batch has been added.
  virtual void Ready(int index) = 0;
};

// Calls the hooks of a module's forward around a scope.
class ForwardScope {
 public:
  ForwardScope(ModelHooks& hooks, ModuleId module) : hooks_(hooks), module_(module) {
    hooks_.BeforeForward(module_);
  }
  ~ForwardScope() { hooks_.AfterForward(module_); }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  ModelHooks& hooks_;
  ModuleId module_;
};

// And of its backward.
class BackwardScope {
 public:
  BackwardScope(ModelHooks& hooks, ModuleId module) : hooks_(hooks), module_(module) {
    hooks_.BeforeBackward(module_);
  }
  ~BackwardScope() { hooks_.AfterBackward(module_); }
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  ModelHooks& hooks_;
  ModuleId module_;
};

}  // namespace windtunnel
