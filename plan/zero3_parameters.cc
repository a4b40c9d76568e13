// ZeRO-3's parameters: when modules are fetched, what is fetched ahead, and when they are dropped.
#include <algorithm>

#include "plan/zero3.h"

namespace windtunnel {

namespace {

// Fetches that the host may be ahead of (__max_ongoing_fetch_events).
constexpr size_t kFetchesAhead = 2;

}  // namespace

// A micro-batch begins (reset_step).
void Zero3::BeginForward() {
  place_ = 0;
  queue_ = 0;
  live_ = 0;
  for (ParameterState& parameter : parameters_) parameter.seen_until = kNone;
  trace_ = evaluates_ ? Trace::kNone : has_order_ ? Trace::kFollows : Trace::kRecords;
}

Slice Zero3::Values(int index) {
  Use(index);
  const ParameterState& parameter = parameters_[index];
  return Slice{parameter.whole.buffer, parameter.whole.offset, parameter.elements};
}

// The next operator uses the parameter. In DeepSpeed a module's hooks say so, before its forward and its
// backward.
void Zero3::Use(int index) {
  const int module = parameters_[index].module;
  const int64_t scope = scopes_.empty() ? 0 : scopes_.back();
  if (module == module_ && modules_[module].used_in == scope) return;
  Leave();
  Enter(module);
  modules_[module].used_in = scope;
}

// As fetch_sub_module.
void Zero3::Enter(int module) {
  module_ = module;
  std::vector<int> missing;
  for (const int index : modules_[module].parameters)
    if (IsAway(index)) missing.push_back(index);
  if (!missing.empty()) Gather(std::move(missing));
  for (const int index : modules_[module].parameters) Await(index);
  if (trace_ == Trace::kRecords) order_.push_back(module);
  // The rest of a micro-batch that goes another way than the first one fetches what it needs.
  if (trace_ == Trace::kFollows &&
      (place_ >= static_cast<int64_t>(order_.size()) || order_[place_] != module))
    trace_ = Trace::kNone;
  if (trace_ == Trace::kFollows) {
    TakeFromQueue(module);
    Prefetch();
  }
  ++place_;
}

// Takes the module's uses of its parameters off the queue, unless prefetching has done so.
void Zero3::TakeFromQueue(int module) {
  const std::vector<int>& own = modules_[module].parameters;
  auto left =
      std::count_if(own.begin(), own.end(), [&](int p) { return parameters_[p].seen_until < place_; });
  for (; left > 0 && queue_ < queued_.size(); --left, ++queue_)
    parameters_[queued_[queue_].parameter].seen_until = queued_[queue_].place;
}

void Zero3::Prefetch() {
  const int64_t most = std::min(spec_.max_live_parameters - live_, spec_.prefetch_bucket_size);
  std::vector<int> ahead;
  for (int64_t elements = 0; queue_ < queued_.size() && elements < most; ++queue_) {
    const auto [index, place] = queued_[queue_];
    ParameterState& parameter = parameters_[index];
    parameter.seen_until = std::max(parameter.seen_until, place);
    if (!IsAway(index) || std::find(ahead.begin(), ahead.end(), index) != ahead.end()) continue;
    ahead.push_back(index);
    elements += parameter.elements;
  }
  if (!ahead.empty()) Gather(std::move(ahead));
}

// As release_sub_module.
void Zero3::Leave() {
  if (module_ == kNone) return;
  const bool is_needed_soon = trace_ == Trace::kFollows && IsNeededSoon();
  for (const int index : modules_[module_].parameters) {
    const bool is_counted_on = trace_ == Trace::kFollows && parameters_[index].seen_until > place_;
    if (!is_needed_soon && !is_counted_on) Release(index);
  }
  module_ = kNone;
}

// Whether the module that was entered last is used again within max_reuse_distance.
bool Zero3::IsNeededSoon() const {
  const int64_t next = next_use_[place_ - 1];
  return next >= 0 && elements_before_[next] - elements_before_[place_] < spec_.max_reuse_distance;
}

void Zero3::Release(int index) {
  ParameterState& parameter = parameters_[index];
  if (parameter.is_whole || parameter.fetch == kNone) return;
  parameter.whole = {};
  parameter.fetch = kNone;
  parameter.is_awaited = false;
  live_ -= parameter.elements;
}

// The first micro-batch is over: its order is that of all others.
void Zero3::FollowOrder() {
  has_order_ = true;
  const size_t places = order_.size();
  elements_before_.assign(places + 1, 0);
  next_use_.assign(places, -1);
  for (size_t place = 0; place < places; ++place) {
    const ModuleState& module = modules_[order_[place]];
    elements_before_[place + 1] = elements_before_[place] + module.elements;
    for (const int index : module.parameters) queued_.push_back({index, static_cast<int64_t>(place)});
  }
  std::vector<int64_t> next(modules_.size(), -1);
  for (size_t place = places; place-- > 0;) {
    next_use_[place] = next[order_[place]];
    next[order_[place]] = static_cast<int64_t>(place);
  }
}

// The rank's parts of several parameters, one behind the other, at their place in a buffer for those of all
// ranks.
Zero3::Packed Zero3::Pack(const std::vector<int>& parameters, OpIndex after) {
  Packed packed;
  int64_t part = 0;
  for (const int index : parameters) {
    packed.shards.push_back(parameters_[index].shard);
    part += parameters_[index].shard;
  }
  const std::string name = fmt::format("{} parameters (gathered)", parameters.size());
  packed.whole = b_->Temporary(name, part * ranks(), Category::kCommunication, type_);
  packed.own = OwnShard(shard_axis_, packed.whole, part);
  std::vector<Slice> parts;
  for (const int index : parameters) parts.push_back(parameters_[index].values);
  if (offload_ != Offload::kParam) {
    packed.ready = AddOn(copies_, PackShards{1, packed.shards, type_, type_}, name, std::move(parts),
                         {packed.own}, {after});
    return packed;
  }
  Slice to = packed.own;
  for (const Slice& values : parts) {
    to.elements = values.elements;
    packed.ready = AddBeside(*b_, copies_, ToDevice(values.elements), name, values, to, {after});
    to.offset += values.elements;
  }
  return packed;
}

Copy Zero3::ToDevice(int64_t elements) const {
  return {.elements = elements, .from = type_, .to = type_, .crosses = Copy::Crosses::kToDevice};
}

// The rank's part of a parameter, behind operator `ready`, which becomes the copy from the host if there is
// one.
Slice Zero3::PartOnDevice(int index, OpIndex& ready) {
  const ParameterState& parameter = parameters_[index];
  if (offload_ != Offload::kParam) return parameter.values;
  const Slice part = b_->Temporary(NameOf(index) + " (part)", parameter.shard, Category::kParameters, type_);
  ready = AddBeside(*b_, copies_, ToDevice(parameter.shard), NameOf(index), parameter.values, part, {ready});
  return part;
}

// As all_gather_coalesced. The parameters are there when Await says so.
void Zero3::Gather(std::vector<int> parameters) {
  std::sort(parameters.begin(), parameters.end());
  // Without overlap all-gathers are on the stream that computes.
  const OpIndex after = overlaps_ ? -1 : b_->LastCompute();
  Fetch fetch;
  if (ranks() == 1 || parameters.size() == 1) {
    for (const int index : parameters) GatherAlone(index, after, fetch);
  } else {
    const Packed packed = Pack(parameters, last_fetch_);
    fetch.packed = packed.whole;
    const std::string name = NameOf(NameOf(parameters.front()), parameters.size());
    fetch.gather =
        shard_axis_.AllGather(*b_, packed.own, packed.whole, name, {packed.ready, last_fetch_, after});
    b_->Carries(fetch.gather, parameters);
  }
  if (!overlaps_) b_->WaitBeforeNextCompute(fetch.gather);
  if (fetch.gather >= 0) last_fetch_ = fetch.gather;
  for (const int index : parameters) {
    parameters_[index].fetch = static_cast<int>(fetches_.size());
    live_ += parameters_[index].elements;
  }
  fetch.parameters = std::move(parameters);
  fetches_.push_back(std::move(fetch));
}

// One parameter, which needs not be put in order.
void Zero3::GatherAlone(int index, OpIndex after, Fetch& fetch) {
  ParameterState& parameter = parameters_[index];
  OpIndex ready = last_fetch_;
  const Slice part = PartOnDevice(index, ready);
  if (ranks() == 1) {
    parameter.whole = part;
    fetch.gather = ready;
    return;
  }
  parameter.whole = b_->Temporary(NameOf(index), parameter.shard * ranks(), Category::kParameters, type_);
  fetch.gather = shard_axis_.AllGather(*b_, part, parameter.whole, NameOf(index), {ready, after});
  b_->Carries(fetch.gather, {index});
}

// The next operators of the compute stream may use the parameter.
void Zero3::Await(int index) {
  ParameterState& parameter = parameters_[index];
  if (parameter.fetch == kNone || parameter.is_awaited) return;
  parameter.is_awaited = true;
  if (host_ >= 0 && fetched_.size() > kFetchesAhead) {
    b_->Add(HostWait{}, "fetches", {}, {}, {fetched_.front()}, host_);
    fetched_.pop_front();
  }
  Fetch& fetch = fetches_[parameter.fetch];
  if (fetch.available < 0) {
    fetch.available = fetch.gather;
    if (fetch.packed.buffer >= 0) PutInOrder(fetch);
  }
  if (fetch.available >= 0) fetched_.push_back(fetch.available);
  b_->WaitBeforeNextCompute(fetch.available);
}

// Copies what was gathered together into whole tensors.
void Zero3::PutInOrder(Fetch& fetch) {
  std::vector<Slice> tensors;
  std::vector<int64_t> shards;
  for (const int index : fetch.parameters) {
    ParameterState& parameter = parameters_[index];
    parameter.whole = b_->Temporary(NameOf(index), parameter.elements, Category::kParameters, type_);
    tensors.push_back(parameter.whole);
    shards.push_back(parameter.shard);
  }
  fetch.available =
      AddOn(copies_, UnpackShards{ranks(), std::move(shards), type_}, NameOf(fetch.parameters.front()),
            {fetch.packed}, std::move(tensors), {fetch.gather});
  last_fetch_ = fetch.available;
}

}  // namespace windtunnel
