#include "plan/whole_parameters.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "plan/data_parallel.h"
#include "plan/model.h"

namespace windtunnel {

WholeParameters::WholeParameters(Role& role, const Scenario& scenario, CollectiveStream& tensor,
                                 int dense_copies, std::vector<CollectiveStream*> model_parts,
                                 UpdateSharing sharing)
    : role_(role),
      type_(TypesOf(scenario.precision).storage),
      updated_(TypeOf(scenario.precision.optimizer)),
      sharing_(sharing),
      is_own_(role.parameters.size(), sharing.ranks == nullptr),
      values_(role.parameters.size()),
      optimizer_(role, scenario, tensor, {std::move(model_parts), dense_copies}) {
  if (sharing_.ranks != nullptr) {
    shares_ = ShareParameters(role_.parameters, sharing_.ranks->ranks());
    for (const int index : shares_[sharing_.own]) is_own_[index] = true;
    if (sharing_.in_buckets) PlaceInBuckets();
  }
  for (size_t i = 0; i < role_.parameters.size(); ++i) {
    Parameter& parameter = role_.parameters[i];
    if (values_[i].buffer < 0) values_[i] = ValuesBuffer(role_, parameter, type_);
    const bool has_masters_somewhere = has_masters() && !parameter.is_frozen;
    masters_.push_back(
        has_masters_somewhere && is_own_[i]
            ? NewBuffer(role_, parameter.name + ".master", parameter.elements, Category::kOptimizer)
            : Slice());
    const Slice& updated = has_masters_somewhere ? masters_.back() : values_[i];
    parameter.values.buffer = updated.buffer;
    parameter.values.offset = updated.offset;
  }
}

void WholeParameters::PlaceInBuckets() {
  for (size_t rank = 0; rank < shares_.size(); ++rank) {
    int64_t elements = 0;
    for (const int index : shares_[rank]) elements += role_.parameters[index].elements;
    buckets_.push_back(elements > 0 ? NewBuffer(role_, fmt::format("values of rank {}", rank), elements,
                                                Category::kParameters, type_)
                                    : Slice());
    int64_t offset = 0;
    for (const int index : shares_[rank]) {
      values_[index] = {buckets_[rank].buffer, offset, role_.parameters[index].elements};
      offset += role_.parameters[index].elements;
    }
  }
}

void WholeParameters::Initialize(ProgramBuilder& b) {
  for (const Slice& bucket : buckets_)
    if (bucket.buffer >= 0) b.Alloc(bucket.buffer);
  for (size_t i = 0; i < values_.size(); ++i) {
    if (masters_[i].buffer >= 0) b.Alloc(masters_[i].buffer);
    InitializeValues(b, static_cast<int>(i));
  }
}

void WholeParameters::InitializeValues(ProgramBuilder& b, int index) {
  const Parameter& parameter = role_.parameters[index];
  const bool is_in_bucket = sharing_.in_buckets && !parameter.is_frozen;
  const auto allocate = [&] {
    if (!is_in_bucket) b.Alloc(values_[index].buffer);
  };
  if (!has_masters() || parameter.is_frozen) {
    allocate();
    if (parameter.is_frozen) AddFrozenValues(b, index, values_[index]);
    else AddInitialValues(b, {index}, {values_[index]});
    return;
  }
  const Slice first = masters_[index].buffer >= 0
                          ? masters_[index]
                          : b.Temporary(parameter.name + ".fp32", parameter.elements, Category::kWorkspace);
  AddInitialValues(b, {index}, {first});
  allocate();
  b.Add(Copy{.elements = parameter.elements, .to = type_}, parameter.name, {first}, {values_[index]});
}

// What the optimizer reads: with masters, a copy.
Slice WholeParameters::GradientInFp32(ProgramBuilder& b, int index, const Slice& gradient) const {
  if (!has_masters()) return gradient;
  const std::string& name = role_.parameters[index].name;
  const Slice copy = b.Temporary(name + ".grad.fp32", values_[index].elements, Category::kGradients);
  b.Add(Copy{.elements = values_[index].elements, .from = type_}, name, {gradient}, {copy});
  return copy;
}

OptimizerTarget WholeParameters::TargetOf(int index, const Slice& gradient) const {
  const bool has_master = masters_[index].buffer >= 0;
  return {role_.parameters[index].name, has_master ? masters_[index] : values_[index], gradient,
          is_own_[index]};
}

std::vector<OptimizerTarget> WholeParameters::Targets(ProgramBuilder& b,
                                                      const std::vector<Slice>& gradients) {
  std::vector<OptimizerTarget> targets;
  for (const int i : TrainedOf(role_.parameters))
    targets.push_back(TargetOf(i, GradientInFp32(b, i, gradients[i])));
  return targets;
}

void WholeParameters::Update(ProgramBuilder& b, bool first, const std::vector<Slice>& gradients) {
  b.SetPhase(Phase::kOptimizer);
  optimizer_.BeginUpdate(b, Targets(b, gradients));
  optimizer_.PrepareGradients(b, first);
  optimizer_.AddUpdate(b, first, 0, optimizer_.targets());
  ConvertMasters(b);
  BroadcastValues(b);
}

void WholeParameters::UpdateOne(ProgramBuilder& b, bool first, int index, const Slice& gradient) {
  WT_CHECK(sharing_.ranks == nullptr);
  if (target_of_.empty()) {
    std::vector<OptimizerTarget> targets;
    target_of_.resize(role_.parameters.size());
    for (const int i : TrainedOf(role_.parameters)) {
      target_of_[i] = static_cast<int>(targets.size());
      targets.push_back(TargetOf(i, Slice()));
    }
    optimizer_.Prepare(std::move(targets));
  }
  const Phase phase = b.phase();
  b.SetPhase(Phase::kOptimizer);
  const int target = target_of_[index];
  optimizer_.SetGradient(target, GradientInFp32(b, index, gradient));
  optimizer_.AddUpdate(b, first, target, target + 1);
  ConvertMaster(b, index);
  b.SetPhase(phase);
}

// Without masters, what is restored are the values themselves, of all ranks.
void WholeParameters::Restore(ProgramBuilder& b) {
  if (!has_masters()) return;
  ConvertMasters(b);
  BroadcastValues(b);
}

void WholeParameters::ConvertMaster(ProgramBuilder& b, int index) {
  if (masters_[index].buffer < 0) return;
  b.Add(Copy{.elements = values_[index].elements, .to = type_}, role_.parameters[index].name,
        {masters_[index]}, {values_[index]});
}

void WholeParameters::ConvertMasters(ProgramBuilder& b) {
  for (size_t i = 0; i < masters_.size(); ++i) ConvertMaster(b, static_cast<int>(i));
}

// All are issued at once; what follows waits for them (ZeroRedundancyOptimizer._sync_params).
void WholeParameters::BroadcastValues(ProgramBuilder& b) {
  const OpIndex updated = b.LastCompute();
  OpIndex last = -1;
  for (size_t rank = 0; rank < shares_.size(); ++rank) {
    const auto broadcast = [&](const Slice& values, std::string name, std::vector<int> parameters) {
      last = sharing_.ranks->Broadcast(b, static_cast<int>(rank), values, std::move(name), {updated});
      b.Carries(last, std::move(parameters));
    };
    if (sharing_.in_buckets && !shares_[rank].empty()) {
      broadcast(buckets_[rank], role_.buffers[buckets_[rank].buffer].name, shares_[rank]);
    } else {
      for (const int index : shares_[rank]) broadcast(values_[index], role_.parameters[index].name, {index});
    }
  }
  if (last >= 0) b.WaitBeforeNextCompute(last);
}

}  // namespace windtunnel
