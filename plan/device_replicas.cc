#include "plan/device_replicas.h"

#include <numeric>

#include "plan/collectives.h"
#include "plan/gradient_buckets.h"
#include "plan/layers.h"
#include "plan/loss_scaling.h"
#include "plan/parameter_gradients.h"
#include "plan/whole_parameters.h"

namespace windtunnel {
namespace {

constexpr AxisId kWorldAxis = 0;
constexpr int kMain = 0;  // the rank that is the root of every collective
// torch.cuda.comm: buffer_size of broadcast_coalesced and reduce_add_coalesced.
constexpr Bytes kCoalesced = MiB(10);

// Tensors that are communicated as one.
struct Chunk {
  std::string name;
  std::vector<int> parameters;
  std::vector<int64_t> sizes;  // elements, by parameter
  int64_t elements = 0;
};

StageRange ReplicaOf(const ModelSpec& model) {
  StageRange range = WholeModel(model);
  range.is_replica = true;
  return range;
}

// Builds the programs of one role. `main_` has what only main has.
class DeviceRole : public ModelHooks {
 public:
  DeviceRole(const Plan& plan, bool is_main);
  Role Compile(const CompileOptions& options);

  Slice Values(int index) override { return values_[index]; }
  Slice Gradient(int index) override { return gradients_->Gradient(index); }
  bool HoldsValue(int index) const override { return gradients_->HoldsValue(index); }
  void Ready(int index) override { gradients_->Wrote(index); }
  void Wrote(int index) override { gradients_->Wrote(index); }

 private:
  struct Main {
    Main(Role& role, const Scenario& scenario)
        : alone(role, kWorldAxis, 1, ""), parameters(role, scenario, alone, 1, {}) {}
    CollectiveStream alone;
    WholeParameters parameters;
    std::vector<Slice> sums;       // .grad, by chunk of the reduction
    std::vector<Slice> gradients;  // the same, by parameter
    Slice targets;                 // the micro-batch's
  };

  bool is_main() const { return main_ != nullptr; }
  std::vector<Chunk> MakeChunks(const char* name, const std::vector<std::vector<int>>& parameters) const;
  void MakeSums();

  Program Initialize();
  Program Step(int64_t step, std::string name);
  Program Restore();
  Program Evaluate();
  Slice Forward(int micro_batch);
  void MicroBatch(int micro_batch);
  Slice ScatterInputs(int micro_batch);
  void Replicate();
  void ReplicateFromMain(const Chunk& chunk);
  void ReplicateTo(const Chunk& chunk);
  Slice Loss(int micro_batch, Slice output);
  Slice LossGradient(int micro_batch, Slice output);
  Slice ExchangeForGradient(Slice output);
  void ReduceGradients(int micro_batch);
  Slice Flattened(const Chunk& chunk, const std::vector<Slice>& tensors);
  void AddToGradients(size_t chunk, Slice sum);
  void CloseWithBarrier();

  // The compute stream does nothing until `op` is done.
  OpIndex Await(OpIndex op) {
    b_->WaitBeforeNextCompute(op);
    return op;
  }
  std::vector<OpIndex> Now() const { return {b_->LastCompute()}; }

  const Scenario& scenario_;
  Role role_;
  DType type_;
  std::unique_ptr<CollectiveStream> world_;
  StreamId host_ = -1;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Main> main_;
  std::unique_ptr<ParameterGradients> gradients_;  // of the device's replica, for one micro-batch
  std::vector<Chunk> broadcasts_, reductions_;
  std::vector<Slice> values_;  // that the replica computes with
  ProgramBuilder* b_ = nullptr;
};

DeviceRole::DeviceRole(const Plan& plan, bool is_main)
    : scenario_(plan.scenario), type_(TypesOf(plan.scenario.precision).storage) {
  role_.name = is_main ? "main" : "replica";
  role_.ranks.resize(is_main ? 1 : plan.world_size - 1);
  std::iota(role_.ranks.begin(), role_.ranks.end(), is_main ? kMain : kMain + 1);
  role_.streams.push_back(Stream{StreamKind::kCompute, "compute", -1});
  world_ = std::make_unique<CollectiveStream>(role_, kWorldAxis, plan.world_size, "devices");
  host_ = static_cast<StreamId>(role_.streams.size());
  role_.streams.push_back(Stream{StreamKind::kHost, "host", -1});
  model_ = MakeModel(scenario_, ReplicaOf(scenario_.model));
  model_->Register(role_);
  std::vector<Bytes> sizes;
  for (const Parameter& parameter : role_.parameters) sizes.push_back(SizeOf(type_) * parameter.elements);
  broadcasts_ = MakeChunks("replica", AssignBuckets(sizes, {kCoalesced}));
  reductions_ = MakeChunks("gradients", TakeTensors(sizes, kCoalesced));
  if (is_main) AddLossScaling(role_, scenario_.precision);
  if (is_main) main_ = std::make_unique<Main>(role_, scenario_);
  gradients_ = std::make_unique<ParameterGradients>(role_, type_);
  values_ = is_main ? main_->parameters.values() : std::vector<Slice>(role_.parameters.size());
  if (is_main) MakeSums();
}

std::vector<Chunk> DeviceRole::MakeChunks(const char* name,
                                          const std::vector<std::vector<int>>& parameters) const {
  std::vector<Chunk> chunks;
  for (const std::vector<int>& together : parameters) {
    Chunk chunk{fmt::format("{} {}", name, chunks.size()), together, {}, 0};
    for (int parameter : together) chunk.sizes.push_back(role_.parameters[parameter].elements);
    chunk.elements = std::accumulate(chunk.sizes.begin(), chunk.sizes.end(), int64_t{0});
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

// The places of the chunk's tensors, which lie one after the other in `flat`: into `places` (by parameter).
void Unflatten(const Chunk& chunk, Slice flat, std::vector<Slice>& places) {
  int64_t offset = flat.offset;
  for (size_t i = 0; i < chunk.parameters.size(); ++i) {
    places[chunk.parameters[i]] = Slice{flat.buffer, offset, chunk.sizes[i]};
    offset += chunk.sizes[i];
  }
}

void DeviceRole::MakeSums() {
  main_->gradients.resize(role_.parameters.size());
  for (const Chunk& chunk : reductions_) {
    main_->sums.push_back(NewBuffer(role_, chunk.name, chunk.elements, Category::kGradients, type_));
    Unflatten(chunk, main_->sums.back(), main_->gradients);
  }
}

Role DeviceRole::Compile(const CompileOptions& options) {
  if (is_main()) {
    const int64_t micro_batches = scenario_.batch.accumulate;
    const Slice losses = NewBuffer(role_, "losses", micro_batches, Category::kActivations);
    role_.buffers[losses.buffer].use = BufferUse::kLosses;
    for (int64_t i = 0; i < micro_batches; ++i) role_.losses.push_back(Slice{losses.buffer, i, 1});
  }
  role_.initialize = Initialize();
  role_.startup.push_back(Step(0, "step 0"));  // the optimizer makes its state
  role_.steady = Step(1, "steady");
  role_.restore = Restore();
  if (options.evaluates) role_.evaluate = Evaluate();
  world_->SizeScratch();
  return std::move(role_);
}

Program DeviceRole::Initialize() {
  ProgramBuilder builder(role_, "initialize");
  b_ = &builder;
  b_->SetPhase(Phase::kInitialize);
  InitializeLossScaling(*b_);
  world_->Initialize(*b_);
  if (is_main()) {
    b_->Alloc(role_.losses[0].buffer);
    main_->parameters.Initialize(*b_);
  }
  CloseWithBarrier();
  return builder.Finish();
}

Program DeviceRole::Step(int64_t step, std::string name) {
  ProgramBuilder builder(role_, std::move(name));
  b_ = &builder;
  b_->BelongToCompute();
  if (is_main() && step > 0) {  // zero_grad
    for (const Slice& sum : main_->sums) b_->Free(sum.buffer);
  }
  for (int i = 0; i < scenario_.batch.accumulate; ++i) MicroBatch(i);
  if (is_main()) main_->parameters.Update(*b_, /*first=*/step == 0, main_->gradients);
  AddLossScaleUpdate(*b_);
  CloseWithBarrier();
  return builder.Finish();
}

Program DeviceRole::Restore() {
  ProgramBuilder builder(role_, "restore");
  b_ = &builder;
  b_->SetPhase(Phase::kInitialize);
  if (is_main()) main_->parameters.Restore(*b_);
  CloseWithBarrier();
  return builder.Finish();
}

// The forward and the loss alone.
Program DeviceRole::Evaluate() {
  ProgramBuilder builder(role_, "evaluate");
  b_ = &builder;
  b_->Evaluates();
  b_->BelongToCompute();
  for (int i = 0; i < scenario_.batch.accumulate; ++i) {
    const Slice output = Forward(i);
    b_->SetPhase(Phase::kLoss);
    if (is_main()) Loss(i, output);
    else Await(world_->Gather(*b_, kMain, output, kNoSlice, "outputs", Now()));
  }
  b_->SetMicroBatch(-1);
  CloseWithBarrier();
  return builder.Finish();
}

// The micro-batch's outputs for this device's rows.
Slice DeviceRole::Forward(int micro_batch) {
  b_->SetPhase(Phase::kForward);
  b_->SetMicroBatch(micro_batch);
  const Slice inputs = ScatterInputs(micro_batch);
  Replicate();
  const Slice output = model_->Forward(*b_, *this, micro_batch, inputs, kNoSlice, 1.0);
  b_->SetMicroBatch(micro_batch);
  return output;
}

void DeviceRole::MicroBatch(int micro_batch) {
  gradients_->ZeroGrad(*b_, /*alive_at_start=*/false);
  const Slice output = Forward(micro_batch);
  const Slice doutput = is_main() ? LossGradient(micro_batch, output) : ExchangeForGradient(output);
  model_->Backward(*b_, *this, micro_batch, doutput);
  b_->SetMicroBatch(micro_batch);
  b_->SetPhase(Phase::kGradientSync);
  ReduceGradients(micro_batch);
  b_->SetMicroBatch(-1);
}

// This device's rows of the inputs. Main's stay where they are in the whole batch.
Slice DeviceRole::ScatterInputs(int micro_batch) {
  const int devices = world_->ranks();
  Slice whole = kNoSlice, own = kNoSlice;
  if (is_main()) {
    whole = model_->MakeInputs(*b_, devices);
    main_->targets = model_->Load(*b_, micro_batch, devices, whole);
    own = Slice{whole.buffer, 0, whole.elements / devices};
  } else {
    own = model_->MakeInputs(*b_, 1);
  }
  Await(world_->Scatter(*b_, kMain, whole, own, "inputs", Now()));
  return own;
}

void DeviceRole::Replicate() {
  for (const Chunk& chunk : broadcasts_) {
    if (is_main()) ReplicateFromMain(chunk);
    else ReplicateTo(chunk);
  }
}

void DeviceRole::ReplicateFromMain(const Chunk& chunk) {
  const Slice flat = Flattened(chunk, values_);
  const OpIndex broadcast = Await(world_->Broadcast(*b_, kMain, flat, chunk.name, Now()));
  b_->Carries(broadcast, chunk.parameters);
}

void DeviceRole::ReplicateTo(const Chunk& chunk) {
  const Slice flat = b_->Temporary(chunk.name, chunk.elements, Category::kParameters, type_);
  const OpIndex broadcast = Await(world_->Broadcast(*b_, kMain, flat, chunk.name, Now()));
  b_->Carries(broadcast, chunk.parameters);
  Unflatten(chunk, flat, values_);
}

// The chunk's tensors in one buffer. A single tensor is flat already.
Slice DeviceRole::Flattened(const Chunk& chunk, const std::vector<Slice>& tensors) {
  if (chunk.parameters.size() == 1) return tensors[chunk.parameters[0]];
  const Slice flat = b_->Temporary(chunk.name + " (flat)", chunk.elements, Category::kCommunication, type_);
  std::vector<Slice> reads;
  for (int parameter : chunk.parameters) reads.push_back(tensors[parameter]);
  b_->Add(PackShards{1, chunk.sizes, type_, type_}, chunk.name, reads, {flat});
  return flat;
}

// Main: gathers the outputs and computes the loss of all. Returns the gradient of the outputs.
Slice DeviceRole::Loss(int micro_batch, Slice output) {
  const int devices = world_->ranks();
  b_->SetPhase(Phase::kLoss);
  const Slice whole = b_->Temporary("outputs", devices * output.elements, Category::kActivations,
                                    role_.buffers[output.buffer].dtype);
  Await(world_->Gather(*b_, kMain, output, whole, "outputs", Now()));
  const double scale = 1.0 / static_cast<double>(scenario_.batch.accumulate);
  return model_->Loss(*b_, devices, whole, main_->targets, role_.losses[micro_batch], scale);
}

// Main: computes the loss, and gives each device its rows of the gradient. Main's own stay in place.
Slice DeviceRole::LossGradient(int micro_batch, Slice output) {
  const Slice gradient = Loss(micro_batch, output);
  const Slice own{gradient.buffer, 0, output.elements};
  Await(world_->Scatter(*b_, kMain, gradient, own, "output gradients", Now()));
  return own;
}

// A replica: the gradient takes the place of the output, which nobody needs once it is gathered.
Slice DeviceRole::ExchangeForGradient(Slice output) {
  b_->SetPhase(Phase::kLoss);
  const OpIndex gather = Await(world_->Gather(*b_, kMain, output, kNoSlice, "outputs", Now()));
  Await(world_->Scatter(*b_, kMain, kNoSlice, output, "output gradients", {gather}));
  return output;
}

// All gradients of the replica live until the last of them is reduced: autograd hands them to one function.
void DeviceRole::ReduceGradients(int micro_batch) {
  std::vector<Slice> own;
  for (size_t i = 0; i < role_.parameters.size(); ++i) own.push_back(gradients_->Place(static_cast<int>(i)));
  std::vector<Slice> sums;
  for (size_t c = 0; c < reductions_.size(); ++c) {
    const Chunk& chunk = reductions_[c];
    const Slice flat = Flattened(chunk, own);
    Slice sum = kNoSlice;
    if (is_main() && micro_batch == 0) b_->Alloc((sum = main_->sums[c]).buffer);
    else if (is_main()) sum = b_->Temporary(chunk.name, chunk.elements, Category::kGradients, type_);
    b_->Carries(Await(world_->Reduce(*b_, kMain, flat, sum, chunk.name, Now())), chunk.parameters);
    sums.push_back(sum);
  }
  b_->Add(HostWait{}, "gradients", {}, {}, {b_->LastOn(world_->stream())}, host_);
  for (const Slice& gradient : own) b_->Free(gradient.buffer);
  for (size_t c = 0; c < sums.size() && is_main() && micro_batch > 0; ++c) AddToGradients(c, sums[c]);
}

void DeviceRole::AddToGradients(size_t chunk, Slice sum) {
  std::vector<Slice> parts(role_.parameters.size());
  Unflatten(reductions_[chunk], sum, parts);
  for (int parameter : reductions_[chunk].parameters) {
    const Copy add{.elements = parts[parameter].elements, .from = type_, .to = type_, .accumulate = true};
    b_->Add(add, role_.parameters[parameter].name, {parts[parameter]}, {main_->gradients[parameter]});
  }
}

void DeviceRole::CloseWithBarrier() {
  b_->SetPhase(Phase::kEnd);
  world_->Barrier(*b_, {b_->LastCompute(), b_->LastOn(world_->stream())});
}

}  // namespace

void CompileDeviceReplicas(Plan& plan, const CompileOptions& options) {
  plan.role_of_rank.assign(plan.world_size, 1);
  plan.role_of_rank[kMain] = 0;
  for (bool is_main : {true, false}) {
    DeviceRole role(plan, is_main);
    plan.roles.push_back(role.Compile(options));
  }
}

}  // namespace windtunnel
