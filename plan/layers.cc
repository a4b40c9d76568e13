#include "plan/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "plan/fp8.h"

namespace windtunnel {

DType TypeOf(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return DType::kFloat32;
    case Precision::kTf32:
      return DType::kTf32;
    case Precision::kBf16:
      return DType::kBFloat16;
    case Precision::kFp16:
      return DType::kFloat16;
    case Precision::kFp8:
      return DType::kFloat8;
    case Precision::kFp4:
      return DType::kFloat4x2;
  }
  return DType::kFloat32;
}

namespace {

// PyTorch's two streams, which take turns (torch/distributed/_symmetric_memory); at most three in Transformer
// Engine (NVTE_COMM_OVERLAP_MAX_STREAMS); the single compute stream of Windtunnel's runtime.
int StreamsOfParts(Framework framework) {
  switch (framework) {
    case Framework::kWindtunnel:
      return 1;
    case Framework::kPytorch:
    case Framework::kPytorchCompile:
      return 2;
    case Framework::kMegatron:
    case Framework::kMegatronCore:
    case Framework::kDeepspeed:
      return 3;
  }
  return 1;
}

// torch.autocast runs embeddings, norms and additions to the residual stream in fp32.
DType StreamOf(DType storage, DType activations) {
  return activations == storage ? activations : DType::kFloat32;
}

}  // namespace

ModelTypes TypesOf(const PrecisionSpec& precision) {
  const DType storage = precision.param == Precision::kTf32 ? DType::kFloat32 : TypeOf(precision.param);
  if (precision.fp8_recipe == Fp8Recipe::kNone) {
    const DType gemm = TypeOf(precision.compute);
    return {.storage = storage,
            .activations = gemm == DType::kTf32 ? storage : gemm,
            .stream = gemm == DType::kTf32 ? storage : StreamOf(storage, gemm),
            .gemm = gemm};
  }
  // Everything but the products of blocks computes in 16 bits, whatever type parameters are stored in.
  const DType activations = storage == DType::kFloat16 ? storage : DType::kBFloat16;
  return {.storage = storage,
          .activations = activations,
          .stream = StreamOf(storage, activations),
          .gemm = activations,
          .fp8 = precision.fp8_recipe,
          .stores_weights_in_fp8 = precision.fp8_param_gather};
}

std::unique_ptr<Model> MakeModel(const Scenario& scenario, const StageRange& stage,
                                 const ModelParallel& parallel) {
  return scenario.model.kind == ModelKind::kTransformer ? MakeTransformer(scenario, stage, parallel)
                                                        : MakeMlp(scenario, stage, parallel);
}

ModuleId Model::AddModule(std::string name, ModuleId parent) {
  if (!is_in_stage_) return -1;
  modules_.push_back(Module{std::move(name), parent, {}});
  return static_cast<ModuleId>(modules_.size()) - 1;
}

Slice Model::Backward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice doutput,
                      WeightGradients weights) {
  if (weights == WeightGradients::kDelayed) {
    DeferredOps deferred;
    const Slice dinput = AddBackward(builder, hooks, micro_batch, doutput, &deferred, /*delays=*/true);
    WT_CHECK(deferred.empty());
    return dinput;
  }
  const bool defers = weights == WeightGradients::kDeferred;
  return AddBackward(builder, hooks, micro_batch, doutput, defers ? &deferred_[micro_batch] : nullptr,
                     /*delays=*/false);
}

void Model::BackwardWeights(ProgramBuilder& builder, int micro_batch) {
  auto deferred = deferred_.extract(micro_batch);
  WT_CHECK(!deferred.empty());
  builder.SetMicroBatch(micro_batch);
  builder.SetPhase(Phase::kBackwardWeights);
  for (const auto& [layer, add] : deferred.mapped()) {
    builder.SetLayer(layer);
    add();
  }
  builder.SetLayer(-1);
  builder.SetMicroBatch(-1);
}

namespace {

// Cuts the parameter down to the part of one expert rank. If tensor ranks have experts of their own, each has
// those behind its neighbour's, in the order in which equal parts of a tensor are counted.
void TakeExperts(const ExpertParallel& expert, int tensor_ranks, Parameter& parameter) {
  const int ranks = expert.ranks();
  if (ranks == 1) return;
  parameter.shape[0] /= ranks;
  parameter.elements /= ranks;
  parameter.part = {{0, parameter.elements}};
  const int neighbours = expert.with_tensor_ranks ? tensor_ranks : 1;
  if (ranks > neighbours) parameter.expert_stride = neighbours * parameter.elements;
}

// Cuts the parameter down to the part of one of `ranks` tensor ranks.
void SplitParameter(const ParameterSplit& split, int ranks, Parameter& parameter) {
  if (split.by == ParameterSplit::By::kNothing || ranks == 1) return;
  const int64_t rows = parameter.shape[0], columns = parameter.elements / rows;
  parameter.part.clear();
  if (split.by == ParameterSplit::By::kColumns) {
    parameter.part = {{0, columns / ranks, rows, columns}};
    parameter.shape[1] /= ranks;
  } else {
    for (int64_t first = 0; first < rows;) {
      for (int64_t block : split.blocks) {
        parameter.part.push_back({first * columns, block / ranks * columns});
        first += block;
      }
      WT_CHECK(first == rows || split.experts > 0);
    }
    parameter.shape[0] /= ranks;
  }
  parameter.elements /= ranks;
  WT_CHECK_EQ(ElementsOf(parameter.part), parameter.elements);
}

// The rows of each matrix that the rank's part of a weight stacks. `ranks`: those that split each matrix.
std::vector<int64_t> MatricesOf(const Parameter& parameter, const ParameterSplit& split, int ranks) {
  std::vector<int64_t> of_one = {parameter.whole_shape[0] / std::max(split.experts, 1)};
  if (split.by == ParameterSplit::By::kRows) {
    of_one = split.blocks;
    for (int64_t& rows : of_one) rows /= ranks;
  }
  std::vector<int64_t> matrices;
  for (int64_t rows = 0; rows < parameter.shape[0];) {
    for (const int64_t of_matrix : of_one) {
      matrices.push_back(of_matrix);
      rows += of_matrix;
    }
    WT_CHECK(rows <= parameter.shape[0]);
  }
  return matrices;
}

}  // namespace

int Model::AddParameter(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape,
                        ParameterInit init, const ParameterSplit& split) {
  constexpr int64_t kBehindAll = int64_t{1} << 40;
  const int64_t ordinal = next_ordinal_++;
  const int64_t random_stream = of_adapter_ ? kBehindAll + of_adapters_++ : ordinal - of_adapters_;
  registered_elements_ += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (!is_in_stage_) return -1;
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = parameter.whole_shape = std::move(shape);
  parameter.init = init;
  parameter.ordinal = ordinal;
  parameter.random_stream = random_stream;
  parameter.layer = layer_;
  parameter.elements = WholeElements(parameter);
  const bool is_of_experts = split.experts > 0;
  if (is_of_experts) TakeExperts(expert_, tensor_.ranks(), parameter);
  const int splitting = is_of_experts && expert_.with_tensor_ranks ? 1 : tensor_.ranks();
  SplitParameter(split, splitting, parameter);
  if (has_muon_ && is_hidden_ && parameter.shape.size() == 2)
    parameter.matrices = MatricesOf(parameter, split, splitting);
  parameter.is_frozen = freezes_;
  const bool is_partial =
      (tensor_.splits_tokens() && split.is_partial_gradient) || (tensor_.splits() && split.sees_partial_sums);
  parameter.is_partial_gradient = is_partial && !freezes_;
  const int index = static_cast<int>(role.parameters.size());
  role.parameters.push_back(std::move(parameter));
  modules_[module].parameters.push_back(index);
  parameters_.push_back(index);
  return index;
}

int Model::AddTied(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape,
                   ParameterInit init, int64_t ordinal, const ParameterSplit& split) {
  for (size_t i = 0; i < role.parameters.size(); ++i) {
    if (role.parameters[i].ordinal != ordinal) continue;
    parameters_.push_back(static_cast<int>(i));
    return parameters_.back();
  }
  const int64_t next = std::exchange(next_ordinal_, ordinal);
  const int index = AddParameter(role, module, std::move(name), std::move(shape), init, split);
  next_ordinal_ = next;
  role.parameters[index].is_copy = true;
  role.parameters[index].random_stream = ordinal;  // a tied weight is the model's first parameter
  return index;
}

void LayerContext::AddDelayed(LayerSlot slot) const {
  if (!delays_weights) return;
  AtSlot(b, slot);
  const InPart none(b, LayerPart::kNone);
  const Phase phase = b.phase();
  const int layer = b.layer();
  b.SetPhase(Phase::kBackwardWeights);
  for (const DeferredOp& op : std::exchange(*deferred, {})) {
    b.SetLayer(op.layer);
    op.add();
  }
  b.SetLayer(layer);
  b.SetPhase(phase);
}

Slice LayerContext::Reordered(Slice x, const std::string& name, Neighbor neighbor) const {
  if (!tensor.copies_tokens(neighbor == Neighbor::kElementwise)) return x;
  const Slice y = b.Temporary(name + ".reordered", x.elements, Category::kActivations, TypeOf(x));
  b.Add(Copy{.elements = x.elements, .from = TypeOf(x), .to = TypeOf(x)}, name + ".reorder", {x}, {y});
  return y;
}

Slice LayerContext::GatherTokens(Slice own, const std::string& name, Neighbor taker) const {
  if (!tensor.splits_tokens()) return own;
  const Slice all =
      b.Temporary(name + ".gathered", own.elements * tensor.ranks(), Category::kActivations, TypeOf(own));
  b.WaitBeforeUse(all, tensor.stream->AllGather(b, own, all, name, b.BeforeNextCompute()));
  return Reordered(all, name, taker);
}

Slice LayerContext::SumOverRanks(Slice partial, const std::string& name, Neighbor maker) const {
  if (!tensor.splits()) return partial;
  if (!tensor.sequence) {
    b.WaitBeforeUse(partial, tensor.stream->AllReduce(b, partial, name, b.BeforeNextCompute()));
    return partial;
  }
  partial = Reordered(partial, name, maker);
  const Slice own = b.Temporary(name + ".scattered", partial.elements / tensor.ranks(),
                                Category::kActivations, TypeOf(partial));
  b.WaitBeforeUse(own, tensor.stream->ReduceScatter(b, partial, own, name, b.BeforeNextCompute()));
  return own;
}

ExpertParallel ExpertParallelOf(const Scenario& scenario, CollectiveStream* stream) {
  const ParallelSpec& parallel = scenario.parallel;
  const bool with_tensor_ranks = parallel.TensorRanksHaveExperts();
  const int64_t of_node = scenario.cluster.devices_per_node / (with_tensor_ranks ? 1 : parallel.tensor.size);
  return {.stream = stream,
          .with_tensor_ranks = with_tensor_ranks,
          .dispatcher = parallel.expert.dispatcher,
          .ranks_per_node = static_cast<int>(std::clamp<int64_t>(of_node, 1, parallel.expert.size))};
}

bool HostCountsTokens(const Scenario& scenario) {
  const bool is_megatron =
      scenario.framework == Framework::kMegatron || scenario.framework == Framework::kMegatronCore;
  return scenario.model.experts && scenario.model.experts->capacity_factor == 0 &&
         scenario.cluster.device != "cpu" && (scenario.parallel.expert.size > 1 || is_megatron);
}

TensorParallel TensorParallelOf(const Scenario& scenario, CollectiveStream* stream) {
  const TensorParallelSpec& spec = scenario.parallel.tensor;
  return {.stream = stream,
          .sequence = spec.sequence,
          .overlap = spec.overlap,
          .by_copy_engine = scenario.framework != Framework::kWindtunnel,
          .streams = StreamsOfParts(scenario.framework)};
}

Slice TensorParallel::PartOf(Slice whole, int turn) const {
  Slice part = stream->OwnPart(whole);
  part.cycle = static_cast<int16_t>(ranks());
  part.turn = static_cast<int16_t>((turn % ranks() + ranks()) % ranks());
  return part;
}

Gemm TensorParallel::OfPart(Gemm whole) const {
  whole.m /= ranks();
  whole.streams = std::min(streams, ranks());
  whole.parts = whole.streams > 1 ? ranks() : 1;
  return whole;
}

// In step s a rank has the part of the rank that is s before it.
Slice LayerContext::GatherForProducts(Slice own, const std::string& name, bool is_kept) const {
  if (!tensor.overlaps()) return GatherTokens(own, name, Neighbor::kProduct);
  const Slice all =
      b.Temporary(name + ".gathered", own.elements * tensor.ranks(), Category::kActivations, TypeOf(own));
  b.ComesInParts(all, [c = *this, own, all, name, is_kept] {
    std::vector<ProgramBuilder::Arrival> arrivals = {{own}};
    std::vector<OpIndex> ready = c.b.BeforeNextCompute();
    for (int step = 1; step < c.tensor.ranks(); ++step) {
      const Slice part = c.tensor.PartOf(all, -step);
      const OpIndex op =
          c.tensor.stream->Shift(c.b, arrivals.back().part, part, fmt::format("{}.{}", name, step),
                                 std::exchange(ready, {}), {.by_copy_engine = c.tensor.by_copy_engine});
      arrivals.push_back({part, op});
    }
    if (is_kept) {
      const Copy copy{.elements = own.elements, .from = c.TypeOf(own), .to = c.TypeOf(own)};
      c.b.Add(copy, name + ".own", {own}, {c.tensor.PartOf(all, 0)});
    }
    return arrivals;
  });
  return all;
}

void LayerContext::AddProducts(const std::vector<Product>& products) const {
  const std::vector<ProgramBuilder::Arrival> arrivals = b.TakeParts(products.front().reads.front());
  if (arrivals.empty()) {
    for (const Product& product : products) b.Add(product.gemm, product.name, product.reads, {product.y});
    return;
  }
  for (size_t step = 0; step < arrivals.size(); ++step) {
    b.WaitBeforeNextCompute(arrivals[step].op);
    for (Product product : products) {
      product.gemm = tensor.OfPart(product.gemm);
      product.reads.front() = arrivals[step].part;
      b.Add(product.gemm, product.name, std::move(product.reads),
            {tensor.PartOf(product.y, -static_cast<int>(step))});
    }
  }
}

// In step s a rank computes the part of the rank that is s + 1 ahead; its own comes last.
Slice LayerContext::SumProductInParts(Product product) const {
  const int ranks = tensor.ranks();
  product.gemm = tensor.OfPart(product.gemm);
  const int64_t elements = product.gemm.m * product.gemm.n;
  const Slice x = product.reads.front(), received = Activation(product.name + ".received", ranks * elements);
  const auto place = [&](int step) { return Slice{received.buffer, step * elements, elements}; };
  OpIndex last = -1;
  for (int step = 0; step < ranks; ++step) {
    const bool is_own = step + 1 == ranks;
    const Slice part = is_own ? place(step) : Activation(product.name, elements);
    product.reads.front() = tensor.PartOf(x, step + 1);
    b.Add(product.gemm, product.name, product.reads, {part});
    if (is_own) break;
    last = tensor.stream->Shift(b, part, place(step), fmt::format("{}.{}", product.name, step + 1),
                                b.BeforeNextCompute(),
                                {.distance = step + 1, .by_copy_engine = tensor.by_copy_engine});
  }
  const Slice sum = Activation(product.name + ".scattered", elements);
  b.WaitBeforeNextCompute(last);
  b.Add(SumParts{ranks, elements, TypeOf(sum)}, product.name + ".sum", {received}, {sum});
  return sum;
}

Slice LayerContext::InType(DType to, Slice x, const std::string& name) const {
  if (TypeOf(x) == to) return x;
  const Slice converted = b.Temporary(name + ".converted", x.elements, Category::kActivations, to);
  b.Add(Copy{.elements = x.elements, .from = TypeOf(x), .to = to}, name, {x}, {converted});
  return converted;
}

Slice LayerContext::OperandOf(int parameter, const std::string& name) const {
  const Slice values = hooks.Values(parameter);
  if (IsPacked(TypeOf(values))) {
    const int64_t numbers = b.role().parameters[parameter].elements;
    const Slice unpacked = b.Temporary(name + ".unpacked", numbers, Category::kWorkspace, types.activations);
    b.Add(Dequantize{numbers, hooks.NumbersInRun(parameter), TypeOf(values), types.activations}, name,
          {values}, {unpacked});
    return unpacked;
  }
  if (!types.autocasts()) return values;
  WT_CHECK(copies != nullptr);
  const auto [place, is_new] = copies->current.try_emplace(parameter);
  if (!is_new) return place->second;
  place->second = b.Temporary(name + ".converted", values.elements, Category::kParameters, types.activations);
  b.Add(Copy{.elements = values.elements, .from = types.storage, .to = types.activations}, name, {values},
        {place->second});
  copies->of_forward.push_back(place->second);
  return place->second;
}

Slice Linear::Forward(const LayerContext& c, Slice x, int64_t rows, Slice* partial) const {
  const bool is_row_parallel = split == LinearSplit::kRowParallel;
  const bool adds_bias_after = is_row_parallel && bias >= 0;
  Slice y;
  if (is_row_parallel && c.tensor.overlaps()) {
    y = c.SumProductInParts(ProductOf(c, x, rows, /*adds_bias=*/false, kNoSlice));
  } else {
    y = ForwardProduct(c, x, rows, bias >= 0 && !adds_bias_after);
    if (is_row_parallel && partial != nullptr) *partial = y;
    if (is_row_parallel) y = c.SumOverRanks(y, name, LayerContext::Neighbor::kProduct);
  }
  if (adds_bias_after) {
    c.b.Add(AddBias{y.elements / out, out, c.types.activations}, name + ".bias",
            {y, c.OperandOf(bias, name + ".bias")}, {y});
  }
  return y;
}

Slice Linear::InputToKeep(const LayerContext& c, Slice x) const {
  if (!c.types.keeps_inputs_in_fp8 || !is_fp8 || is_frozen) return x;
  return Fp8Factors(c, name).OfTokens(x, in, Gathering::kNone, Fp8Sum::kOverColumns,
                                      split == LinearSplit::kRowParallel);
}

Slice Linear::ForwardProduct(const LayerContext& c, Slice x, int64_t rows, bool adds_bias) const {
  const Slice y = c.Activation(name, rows * out);
  const LayerContext::Product product = ProductOf(c, x, rows, adds_bias, y);
  c.AddProducts({product});
  if (!adapter) return y;
  // In fp8, the adapter takes tokens of its own in 16 bits.
  Slice all = product.reads.front();
  if (is_fp8) all = gathers() ? c.GatherTokens(x, name + ".lora_a", LayerContext::Neighbor::kProduct) : x;
  AddAdapterTo(c, y, all, rows);
  return y;
}

LayerContext::Product Linear::ProductOf(const LayerContext& c, Slice x, int64_t rows, bool adds_bias,
                                        Slice y) const {
  const bool sums_over_ranks = split == LinearSplit::kRowParallel;
  Gemm gemm{.m = rows, .n = out, .k = in, .transpose_b = true, .bias = adds_bias, .dtype = c.types.gemm};
  std::vector<Slice> reads;
  if (is_fp8) {
    const Fp8Factors fp8(c, name);
    c.types.TakesFactors(gemm);
    gemm.is_forward = true;
    gemm.fast_accumulation = fp8.forward_accumulates_fast();
    reads = {fp8.OfTokens(x, in, gathers() ? Gathering::kForProducts : Gathering::kNone, Fp8Sum::kOverColumns,
                          sums_over_ranks),
             fp8.OfWeight(weight, out, in, Fp8Sum::kOverColumns, sums_over_ranks)};
  } else {
    if (gathers()) x = c.GatherForProducts(x, name, /*is_kept=*/false);
    reads = {x, c.OperandOf(weight, name)};
  }
  if (adds_bias) reads.push_back(c.OperandOf(bias, name + ".bias"));
  return {gemm, name, std::move(reads), y};
}

void Linear::AddBiasGradient(const LayerContext& c, Slice dy) const {
  c.AddBiasGradient(ColumnSum{dy.elements / out, out, false, c.types.activations}, name + ".bias", dy, bias);
}

Slice Linear::InputGradient(const LayerContext& c, Slice dy, int64_t rows) const {
  const Slice dx = c.Activation(name + ".dx", rows * in);
  AddInputGradient(c, dy, rows, dx, /*accumulate=*/false);
  return dx;
}

void Linear::AddInputGradient(const LayerContext& c, Slice dy, int64_t rows, Slice dx,
                              bool accumulate) const {
  Gemm gemm{.m = rows, .n = in, .k = out, .accumulate = accumulate, .dtype = c.types.gemm};
  std::vector<Slice> reads;
  if (is_fp8) {
    c.types.TakesFactors(gemm);
    gemm.transpose_b = true;
    reads = {dy, Fp8Factors(c, name).OfWeight(weight, out, in, Fp8Sum::kOverRows,
                                              split == LinearSplit::kColumnParallel)};
  } else {
    reads = {dy, c.OperandOf(weight, name)};
  }
  c.AddProducts({{gemm, name + ".input", std::move(reads), dx}});
  if (const Fp8Factors factors(c, name + ".input"); is_fp8 && factors.rescales()) factors.Rescale(dx);
}

LayerContext::Neighbor Linear::MakerOfInputGradient(const LayerContext& c) const {
  const bool is_rescaled = is_fp8 && Fp8Factors(c, name).rescales();
  return is_rescaled ? LayerContext::Neighbor::kElementwise : LayerContext::Neighbor::kProduct;
}

void Linear::AddWeightGradient(const LayerContext& c, Slice dy, Slice x, int64_t rows) const {
  Gemm gemm{.m = out, .n = in, .k = rows, .transpose_a = true, .dtype = c.types.gemm};
  if (is_fp8) {
    c.types.TakesFactors(gemm);
    gemm.transpose_a = false;
    gemm.transpose_b = true;
  }
  const std::string product = name + ".weight";
  if (!is_fp8 || !Fp8Factors(c, product).rescales())
    return c.AddWeightGradient(gemm, product, out * in, dy, x, weight);
  const bool adds = c.hooks.HoldsValue(weight);
  const Slice result = adds ? c.Activation(product + ".grad", out * in) : c.hooks.Gradient(weight);
  c.b.Add(gemm, product, {dy, x}, {result});
  Fp8Factors(c, product).Rescale(result);
  if (adds) c.AddConverted(result, product, weight);
}

Slice Linear::Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows, bool needs_dx,
                       bool weight_ready) const {
  const bool is_column_parallel = split == LinearSplit::kColumnParallel;
  const bool is_row_parallel = split == LinearSplit::kRowParallel;
  const bool gathers_input_later = gathers() && c.deferred != nullptr;
  const Slice own_dy = dy;
  Slice dy_by_rows = dy;  // for the weight gradient's product
  Slice adapter_dy = dy;
  if (is_fp8 && is_frozen) {
    if (needs_dx)
      dy = Fp8Factors(c, name + ".dy")
               .OfTokens(dy, out, is_row_parallel ? Gathering::kForProducts : Gathering::kNone,
                         Fp8Sum::kOverColumns, is_column_parallel);
    if (is_row_parallel && adapter)
      adapter_dy = c.GatherTokens(own_dy, name + ".lora_b.dy", LayerContext::Neighbor::kProduct);
  } else if (is_fp8) {
    const Fp8Factors::Both factors =
        Fp8Factors(c, name + ".dy").OfTokensBothWays(dy, out, is_row_parallel, is_column_parallel);
    dy = factors.over_columns;
    dy_by_rows = factors.over_rows;
  } else if (is_row_parallel) {
    adapter_dy = dy_by_rows = dy = c.GatherForProducts(dy, name + ".dy", /*is_kept=*/true);
  }
  const auto input = [*this, x](const LayerContext& c) {
    if (is_fp8 && !is_frozen)
      return Fp8Factors(c, name + ".x", /*knows_scale=*/true)
          .OfTokens(x, in, gathers() ? Gathering::kKept : Gathering::kNone, Fp8Sum::kOverRows);
    return gathers() ? c.GatherTokens(x, name + ".x", LayerContext::Neighbor::kProduct) : x;
  };
  const bool reads_input = !is_frozen || (adapter && !adapter->dropout.site.drops());
  const Slice known_input = gathers_input_later || !reads_input ? kNoSlice : input(c);
  if (bias >= 0 && !is_frozen) {
    c.AddOrDefer([*this, own_dy](const LayerContext& c) { AddBiasGradient(c, own_dy); });
  }
  Slice dx = kNoSlice;
  if (needs_dx) dx = InputGradient(c, dy, rows);
  const auto whole_input = [input, known_input](const LayerContext& c) {
    return known_input.buffer < 0 ? input(c) : known_input;
  };
  AddAdapterGradients(c, adapter_dy, whole_input, rows, dx);
  if (needs_dx && is_column_parallel) dx = c.SumOverRanks(dx, name + ".dx", MakerOfInputGradient(c));
  if (is_frozen) return dx;
  if (dy_by_rows.buffer < 0) dy_by_rows = Fp8Factors(c, name + ".dy").OverRowsAfterParts(own_dy, dy, out);
  c.AddOrDefer([*this, dy_by_rows, whole_input, rows, weight_ready](const LayerContext& c) {
    AddWeightGradient(c, dy_by_rows, whole_input(c), rows);
    if (weight_ready) c.Ready(weight);
    else c.hooks.Wrote(weight);
  });
  return dx;
}

}  // namespace windtunnel
