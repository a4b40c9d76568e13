// What a model asks of the data-parallel strategy that owns its parameters. Models (plan/model.h) know only
// this; a strategy (plan/data_parallel.h) implements it to hook itself in, as PyTorch's DDP hooks gradient
// accumulators and FSDP modules.
#pragma once

#include <string>
#include <vector>

#include "plan/step_program.h"

namespace windtunnel {

using ModuleId = int;
inline constexpr ModuleId kRootModule = 0;

// A part of the model that strategies may treat as a unit. Modules form a tree with the whole model, or the
// stage, at its root, listed in forward order (preorder). If a rank holds several stages, its modules are
// their trees, one after the other.
struct Module {
  std::string name;  // "blocks.0.attn"; the root's is empty
  ModuleId parent = -1;
  std::vector<int> parameters;  // its own, without those of its children (indices in registration order)

  bool is_root() const { return parent < 0; }
};

// The hooks that a model's view (ModelHooks) and a strategy (DataParallel) have in common.
class ParameterHooks {
 public:
  virtual ~ParameterHooks() = default;

  // Called where a module's part of a micro-batch begins or ends; nested as the modules are. Recomputation in
  // backward calls the forward pair again, inside the backward pair.
  virtual void BeforeForward(ModuleId) {}
  virtual void AfterForward(ModuleId) {}
  virtual void BeforeBackward(ModuleId) {}
  virtual void AfterBackward(ModuleId) {}

  // Where the next operator finds the values of parameter `index`, in the type that the model computes in, or
  // packed (Parameter::packed).
  virtual Slice Values(int index) = 0;
  // The numbers of each run (Dequantize::run) in the values of a packed parameter; 0: there is one run.
  virtual int64_t NumbersInRun(int) const { return 0; }
  // Where its gradient is, of the same type; allocates it if necessary.
  virtual Slice Gradient(int index) = 0;
  // Whether the gradient already holds a value of this step, which the next operator must add to.
  virtual bool HoldsValue(int index) const = 0;
  // Reports that it holds a value, to which another operator of this micro-batch will add.
  virtual void Wrote(int index) = 0;
};

class ModelHooks : public ParameterHooks {
 public:
  // Reports that the last operator that writes this gradient in this micro-batch has been added, and the last
  // one that reads the parameter in this backward.
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

// The same for its backward.
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
