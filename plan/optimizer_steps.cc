#include "plan/optimizer_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"
#include "plan/muon.h"

namespace windtunnel {
namespace {

// The names of what an optimizer keeps for a target between steps, as in torch.optim.
std::span<const char* const> StatesOf(const OptimizerSpec& spec, bool is_muons) {
  static constexpr const char* kMomentum[] = {"momentum"};
  static constexpr const char* kMoments[] = {"exp_avg", "exp_avg_sq"};
  if (is_muons) return kMomentum;
  if (spec.kind != OptimizerKind::kSgd) return kMoments;
  return std::span(kMomentum).first(spec.momentum != 0 ? 1 : 0);
}

// The rule of what is updated element by element: Muon leaves it to AdamW. Beside moments in 8 bits, those of
// small tensors are in fp32.
OptimizerSpec ElementwiseSpec(OptimizerSpec spec, bool is_small) {
  if (spec.kind == OptimizerKind::kMuon) spec.kind = OptimizerKind::kAdamW;
  if (is_small) spec.moments = MomentsType::kFp32;
  return spec;
}

// The sizes of the PyTorch tensors in one target: FSDP 2 shards parameters separately, FSDP 1 whole units.
std::vector<int64_t> TensorsOf(const Role& role, const Slice& values) {
  std::vector<int64_t> sizes;
  int64_t sum = 0;
  for (const Parameter& parameter : role.parameters) {
    if (parameter.values.buffer != values.buffer || parameter.values.per_rank == 0 || parameter.is_frozen)
      continue;
    sizes.push_back(parameter.values.per_rank);
    sum += parameter.values.per_rank;
  }
  return sum == values.elements ? sizes : std::vector{values.elements};
}

}  // namespace

bool UpdatesForeach(Framework framework, const OptimizerSpec& spec) {
  return IsPytorch(framework) && spec.kind != OptimizerKind::kSgd && !spec.fused &&
         spec.moments != MomentsType::kInt8;
}

OptimizerSteps::OptimizerSteps(Role& role, const Scenario& scenario, CollectiveStream& tensor,
                               NormRanks norm_ranks)
    : role_(role),
      spec_(scenario.optimizer),
      tensor_(tensor),
      norm_ranks_(std::move(norm_ranks)),
      framework_(scenario.framework),
      is_foreach_(UpdatesForeach(framework_, spec_)) {}

// The states' and the norm's.
void OptimizerSteps::MakeBuffers() {
  for (int i = 0; i < static_cast<int>(targets_.size()); ++i) {
    if (!targets_[i].is_own) continue;
    for (Piece& piece : PiecesOf(i)) pieces_.push_back(std::move(piece));
  }
  for (size_t state = 0; state < Piece().states.size(); ++state) {
    for (Piece& piece : pieces_) {
      const std::span<const char* const> names = StatesOf(spec_, piece.parameter >= 0);
      if (state >= names.size()) continue;
      const Slice values = ValuesOf(piece);
      const DType dtype = piece.is_small ? DType::kFloat32 : MomentsOf(spec_, /*second=*/state > 0);
      piece.states[state] =
          NewBuffer(role_, piece.name + "." + names[state], ElementsFor(piece.elements, dtype),
                    Category::kOptimizer, dtype, role_.buffers[values.buffer].space);
      role_.optimizer_states.push_back(
          {names[state], values, {piece.states[state].buffer, 0, piece.elements}});
    }
  }
  if (spec_.clip_norm > 0)
    role_.gradient_norm = NewBuffer(role_, "gradient norm", 1, Category::kWorkspace).buffer;
}

void OptimizerSteps::BeginUpdate(ProgramBuilder& b, std::vector<OptimizerTarget> targets, StreamId copies) {
  Prepare(std::move(targets));
  AddTensorSums(b, copies);
  b.SetPhase(Phase::kOptimizer);
}

void OptimizerSteps::Prepare(std::vector<OptimizerTarget> targets) {
  SetTargets(std::move(targets));
  if (!has_buffers_) MakeBuffers();
  has_buffers_ = true;
}

std::vector<OptimizerSteps::Piece> OptimizerSteps::PiecesOf(int target) const {
  const OptimizerTarget& of = targets_[target];
  const bool is_muon = spec_.kind == OptimizerKind::kMuon, in_8_bits = spec_.moments == MomentsType::kInt8;
  if (!is_muon && !in_8_bits && !spec_.in_backward) return {{target, 0, of.values.elements, of.name}};
  std::vector<Piece> pieces;
  for (size_t i = 0; i < role_.parameters.size(); ++i) {
    const Parameter& parameter = role_.parameters[i];
    const Placement& place = parameter.values;
    if (place.buffer != of.values.buffer) continue;
    // Whole, or the same part of it on every rank.
    WT_CHECK(place.per_rank == 0 || (!is_muon && place.start == 0));
    const int64_t first = place.offset - of.values.offset;
    if (first < 0 || first >= of.values.elements) continue;
    Piece piece{target, first, place.per_rank > 0 ? place.per_rank : parameter.elements, parameter.name};
    if (!parameter.matrices.empty()) piece.parameter = static_cast<int>(i);
    piece.is_small = in_8_bits && piece.elements < kLeastIn8Bits;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Slice OptimizerSteps::PartOf(Slice whole, const Piece& piece) {
  whole.offset += piece.first;
  whole.elements = piece.elements;
  return whole;
}

// A parameter's gradient, or the rank's shard of it. Gradients are laid out like the target's values.
Slice OptimizerSteps::GradientOf(const Parameter& parameter) const {
  const Placement& place = parameter.values;
  const auto target = std::find_if(targets_.begin(), targets_.end(),
                                   [&](const OptimizerTarget& t) { return t.values.buffer == place.buffer; });
  WT_CHECK(target != targets_.end());
  const Slice &values = target->values, &gradient = target->gradient;
  const int64_t within = (place.in_whole ? place.start : place.offset) - values.offset;
  Slice slice{gradient.buffer, gradient.offset, parameter.elements, gradient.per_rank};
  if (place.per_rank > 0 && !place.in_whole) {  // the parameter's placement shards it
    slice.offset += within;
    slice.axis = place.axis;
    slice.shard = place.per_rank;
    slice.start = place.start;
  } else if (values.per_rank > 0) {  // the parameter is whole; the target is the rank's part of a buffer
    slice.axis = values.axis;
    slice.shard = values.per_rank;
    slice.start = within;
  } else {
    slice.offset += within;
  }
  return slice;
}

void OptimizerSteps::AddTensorSums(ProgramBuilder& b, StreamId copies) {
  b.SetPhase(Phase::kGradientSync);
  std::vector<Slice> gradients;
  int64_t elements = 0;
  bool sharded = false;
  for (const Parameter& parameter : role_.parameters) {
    if (!parameter.is_partial_gradient) continue;
    gradients.push_back(GradientOf(parameter));
    elements += parameter.elements;
    sharded |= gradients.back().shard > 0;
  }
  if (gradients.empty()) return;
  const std::string name = "tensor sums";
  const bool from_host = role_.buffers[gradients[0].buffer].space == MemorySpace::kHost;
  const Slice all = b.Temporary(name, elements, Category::kCommunication);
  const Slice gathered = from_host ? b.Temporary(name + " (host)", elements, Category::kCommunication,
                                                 DType::kFloat32, MemorySpace::kHost)
                                   : all;
  std::vector<Slice> parts;
  int64_t offset = 0;
  for (const Slice& gradient : gradients) {
    Slice& part = parts.emplace_back(gradient);
    part.buffer = gathered.buffer;
    // Element e of the flat tensor that the gradient is cut from is element e - start of the gradient.
    part.offset = offset - gradient.start;
    part.per_rank = gradient.shard;
    offset += gradient.elements;
  }
  if (sharded)
    b.Add(Fill{elements}, name, {}, {gathered});  // other ranks' shards are summed, too, and not used
  const CopyTensors copy{elements, static_cast<int64_t>(gradients.size())};
  b.Add(copy, name, gradients, parts);
  OpIndex there = b.LastCompute();
  const auto cross = [&](Copy::Crosses crosses, Slice from, Slice to) {
    there = AddBeside(b, copies, Copy{.elements = elements, .crosses = crosses}, name, from, to, {there});
  };
  if (from_host) cross(Copy::Crosses::kToDevice, gathered, all);
  there = tensor_.AllReduce(b, all, name, {there});
  if (from_host) cross(Copy::Crosses::kToHost, all, gathered);
  b.WaitBeforeNextCompute(there);
  b.Add(copy, name, parts, gradients);
}

// The norm over the gradients that the rank counts: over whole targets if all parameters count alike.
GradientNorm OptimizerSteps::NormOf(std::vector<Slice>& gradients) const {
  GradientNorm norm;
  for (const OptimizerTarget& target : targets_) norm.elements += target.gradient.elements;
  const bool has_copies =
      std::any_of(role_.parameters.begin(), role_.parameters.end(),
                  [](const Parameter& parameter) { return parameter.is_copy && !parameter.is_frozen; });
  if (tensor_.ranks() == 1 && norm_ranks_.dense_copies == 1 && !has_copies) {
    for (const OptimizerTarget& target : targets_) gradients.push_back(target.gradient);
  } else {
    for (const Parameter& parameter : role_.parameters) {
      if (parameter.is_copy || parameter.is_frozen) continue;
      gradients.push_back(GradientOf(parameter));
      norm.replicas.push_back((parameter.part.empty() ? tensor_.ranks() : 1) *
                              (parameter.is_of_experts() ? 1 : norm_ranks_.dense_copies));
    }
  }
  norm.tensors = static_cast<int64_t>(gradients.size());
  if (!gradients.empty()) norm.dtype = role_.buffers[gradients.front().buffer].dtype;
  return norm;
}

void OptimizerSteps::PrepareGradients(ProgramBuilder& b, bool first) {
  AddUnscaling(b);
  AddClipping(b, first);
}

void OptimizerSteps::AddUnscaling(ProgramBuilder& b) {
  if (!role_.loss_scaling) return;
  b.SetPhase(Phase::kOptimizer);
  const Slice found_inf = role_.loss_scaling->found_inf;
  std::vector<Slice> writes = {found_inf};
  int64_t elements = 0;
  for (const OptimizerTarget& target : targets_) {
    writes.push_back(target.gradient);
    elements += target.gradient.elements;
  }
  OpIndex found = b.Add(UnscaleGradients{elements, targets()}, "unscale", {role_.loss_scaling->numbers},
                        std::move(writes));
  for (CollectiveStream* axis : norm_ranks_.axes) {
    if (axis->ranks() > 1) found = axis->AllReduce(b, found_inf, "found_inf", {found}, Reduction::kMax);
  }
  if (b.StreamOf(found) != kComputeStream) b.WaitBeforeNextCompute(found);
}

void OptimizerSteps::AddClipping(ProgramBuilder& b, bool first) {
  if (spec_.clip_norm <= 0) return;
  b.SetPhase(Phase::kOptimizer);
  const Slice norm{role_.gradient_norm, 0, 1};
  std::vector<Slice> gradients, counted;
  int64_t elements = 0;
  for (const OptimizerTarget& target : targets_) {
    gradients.push_back(target.gradient);
    elements += target.gradient.elements;
  }
  GradientNorm local = NormOf(counted);
  local.squared = std::any_of(norm_ranks_.axes.begin(), norm_ranks_.axes.end(),
                              [](const CollectiveStream* axis) { return axis->ranks() > 1; });
  if (first) b.Alloc(norm.buffer);
  OpIndex sum = b.Add(local, "gradient_norm", counted, {norm});
  for (CollectiveStream* axis : norm_ranks_.axes) {
    if (axis->ranks() > 1) sum = axis->AllReduce(b, norm, "gradient_norm", {sum});
  }
  if (local.squared) b.Add(SquareRoot{}, "gradient_norm", {norm}, {norm}, {sum});
  b.Add(ClipGradients{elements, targets(), spec_.clip_norm, local.dtype}, "clip", {norm}, gradients);
}

void OptimizerSteps::MakeStates(ProgramBuilder& b, const Pieces& pieces) const {
  for (size_t which = 0; which < Piece().states.size(); ++which) {
    for (const Piece* piece : pieces) {
      const Slice& state = piece->states[which];
      if (state.buffer < 0) continue;
      b.Alloc(state.buffer);
      const Buffer& buffer = role_.buffers[state.buffer];
      b.Add(Fill{.elements = state.elements, .dtype = buffer.dtype}, buffer.name, {}, {state});
    }
  }
}

OpIndex OptimizerSteps::AddElementwise(ProgramBuilder& b, const Pieces& pieces, const std::string& name) {
  std::vector<Slice> gradients, writes;
  int64_t elements = 0;
  for (const Piece* piece : pieces) {
    gradients.push_back(GradientOf(*piece));
    writes.push_back(ValuesOf(*piece));
    elements += piece->elements;
  }
  OptimizerUpdate update{ElementwiseSpec(spec_, pieces.front()->is_small), elements,
                         static_cast<int64_t>(pieces.size())};
  update.one_by_one = spec_.moments == MomentsType::kInt8;
  update.state_tensors = static_cast<int>(StatesOf(spec_, /*is_muons=*/false).size());
  const Buffer& first = role_.buffers[writes.front().buffer];
  const bool is_on_device = first.space == MemorySpace::kDevice;
  update.dtype = first.dtype;
  if (role_.loss_scaling) {
    update.guarded = true;
    gradients.push_back(role_.loss_scaling->found_inf);
    gradients.push_back(role_.loss_scaling->numbers);
  }
  for (int state = 0; state < update.state_tensors; ++state)
    for (const Piece* piece : pieces) writes.push_back(piece->states[state]);
  const OpIndex updated = b.Add(update, name, std::move(gradients), std::move(writes));
  // On the host, tensors are updated one by one (torch/optim/optimizer.py, _default_to_fused_or_foreach).
  if (is_foreach_ && is_on_device) {
    const std::string roots = fmt::format("roots of second moments ({})", name);
    for (const Piece* piece : pieces) {
      for (const int64_t elements_of_one : TensorsOf(role_, ValuesOf(*piece)))
        b.WorkedInBy(updated, b.Temporary(roots, elements_of_one, Category::kWorkspace, update.dtype));
    }
  }
  return updated;
}

OpIndex OptimizerSteps::AddMuon(ProgramBuilder& b, const Piece& piece) {
  const std::vector<int64_t>& matrices = role_.parameters[piece.parameter].matrices;
  const int64_t columns = piece.elements / std::accumulate(matrices.begin(), matrices.end(), int64_t{0});
  const Slice* found_inf = role_.loss_scaling ? &role_.loss_scaling->found_inf : nullptr;
  OpIndex updated = -1;
  int64_t row = 0;
  for (const int64_t rows : matrices) {
    const auto part = [&](Slice whole) {
      whole.offset += row * columns;
      whole.elements = rows * columns;
      return whole;
    };
    const MuonMatrix matrix{.name = piece.name,
                            .rows = rows,
                            .columns = columns,
                            .values = part(ValuesOf(piece)),
                            .gradient = part(GradientOf(piece)),
                            .momentum = part(piece.states[0])};
    updated = AddMuonUpdate(b, spec_, matrix, found_inf,
                            /*keeps_fp32=*/framework_ != Framework::kWindtunnel);
    row += rows;
  }
  return updated;
}

// As hooks do, each with an optimizer for its parameter.
OpIndex OptimizerSteps::AddUpdatesOneByOne(ProgramBuilder& b, bool first, int begin, int end) {
  OpIndex updated = b.LastCompute();
  for (const Piece& piece : pieces_) {
    if (piece.target < begin || piece.target >= end) continue;
    if (first) MakeStates(b, {&piece});
    updated = piece.parameter >= 0 ? AddMuon(b, piece) : AddElementwise(b, {&piece}, piece.name);
  }
  return updated;
}

OpIndex OptimizerSteps::AddUpdate(ProgramBuilder& b, bool first, int begin, int end,
                                  const std::string& name) {
  b.SetPhase(Phase::kOptimizer);
  if (spec_.in_backward) return AddUpdatesOneByOne(b, first, begin, end);
  Pieces all, elementwise, small, muons;
  for (const Piece& piece : pieces_) {
    if (piece.target < begin || piece.target >= end) continue;
    all.push_back(&piece);
    (piece.parameter >= 0 ? muons : piece.is_small ? small : elementwise).push_back(&piece);
  }
  if (first) MakeStates(b, all);
  OpIndex updated = b.LastCompute();  // also of a stage whose parameters are all frozen
  if (!elementwise.empty()) updated = AddElementwise(b, elementwise, name);
  if (!small.empty()) updated = AddElementwise(b, small, name);
  for (const Piece* piece : muons) updated = AddMuon(b, *piece);
  return updated;
}

}  // namespace windtunnel
