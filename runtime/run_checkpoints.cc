#include "runtime/run_checkpoints.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/hugging_face_weights.h"
#include "scenarios/load.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

std::string OptimizerOf(const Plan& plan) { return std::string(WordOf(plan.scenario.optimizer.kind)); }

LossScaleState LossScaleOf(const Executor& executor) {
  return executor.LossScale().value_or(LossScaleState{.skipped_steps = executor.SkippedSteps()});
}

Status Load(const TensorSource& source, RankSession& session, bool with_optimizer) {
  Status set = Ok();
  WT_RETURN_IF_ERROR(LoadPieces(source, session.plan(), session.rank(), with_optimizer,
                                [&](const Slice& slice, std::span<const float> values) {
                                  if (set) set = session.executor().SetValues(slice, values);
                                }));
  return set;
}

using Keys = std::vector<std::pair<std::string, std::string>>;

// The model of a resolved scenario: {"model.heads", "4"}, {"model.experts.count", "8"}.
Keys ModelOf(std::string_view resolved) {
  Keys keys;
  std::string section;
  bool is_model = false;
  for (size_t begin = 0; begin < resolved.size();) {
    const size_t end = std::min(resolved.find('\n', begin), resolved.size());
    const std::string_view line = resolved.substr(begin, end - begin);
    begin = end + 1;
    const size_t indent = line.find_first_not_of(' '), colon = line.find(": ");
    if (indent == std::string_view::npos) continue;
    if (indent == 0) is_model = line == "model:";
    if (!is_model || indent == 0) continue;
    if (indent == 2) section.clear();
    if (colon == std::string_view::npos) section = std::string(line.substr(2, line.size() - 3)) + ".";
    else
      keys.emplace_back(fmt::format("model.{}{}", section, line.substr(indent, colon - indent)),
                        line.substr(colon + 2));
  }
  return keys;
}

// What a run may go on with another value of: the same parameters mean the same.
bool MayChange(const std::string& key) {
  for (const char* free : {"model.seq_len", "model.attention", "model.dropout",
                           "model.experts.capacity_factor", "model.experts.imbalance"})
    if (key == free) return true;
  return false;
}

Status CheckModel(const Plan& plan, const Checkpoint& checkpoint) {
  const Keys saved = ModelOf(checkpoint.info().scenario);
  for (const auto& [key, value] : ModelOf(ResolvedYaml(plan.scenario))) {
    const auto same_key = [&key = key](const auto& other) { return other.first == key; };
    const auto before = std::find_if(saved.begin(), saved.end(), same_key);
    if (before == saved.end() || before->second == value || MayChange(key)) continue;
    return InvalidInput("{} is {}, but {} was saved with {}: a run goes on with the model that it began with",
                        key, value, checkpoint.path(), before->second);
  }
  return Ok();
}

}  // namespace

Result<int64_t> RunCheckpoints::Begin() {
  if (!options_.resume_from.empty()) {
    WT_RETURN_IF_ERROR(Resume());
  } else if (!options_.import_weights.empty()) {
    WT_RETURN_IF_ERROR(Import());
  }
  return session_.steps_done();
}

Status RunCheckpoints::Resume() {
  WT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options_.resume_from));
  const CheckpointInfo& info = checkpoint.info();
  const Plan& plan = session_.plan();
  if (info.seed != plan.scenario.run.seed) {
    return InvalidInput("run.seed is {}, but {} was saved with {}: data and random numbers go on from there",
                        plan.scenario.run.seed, checkpoint.path(), info.seed);
  }
  if (info.optimizer != OptimizerOf(plan)) {
    return InvalidInput("optimizer.kind is {}, but {} was saved with {}; --import takes weights alone",
                        OptimizerOf(plan), checkpoint.path(), info.optimizer);
  }
  WT_RETURN_IF_ERROR(CheckModel(plan, checkpoint));
  if (info.step > steps_) {
    return InvalidInput("run.warmup + run.steps are {}, but {} has {} steps already", steps_,
                        checkpoint.path(), info.step);
  }
  return session_.GoOn(info.step, info.samples, [&]() -> Status {
    WT_RETURN_IF_ERROR(session_.executor().SetLossScale(info.loss_scale));
    return Load(checkpoint, session_, /*with_optimizer=*/info.step > 0);
  });
}

Status RunCheckpoints::Import() {
  WT_ASSIGN_OR_RETURN(const auto weights,
                      OpenHuggingFaceWeights(options_.import_weights, session_.plan().scenario.model));
  return session_.GoOn(0, 0, [&] { return Load(*weights, session_, /*with_optimizer=*/false); });
}

Status RunCheckpoints::AfterStep() {
  const int64_t step = session_.steps_done();
  const bool is_due = options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0;
  if (options_.checkpoints.empty() || (!is_due && step != steps_)) return Ok();
  const auto start = std::chrono::steady_clock::now();
  const Plan& plan = session_.plan();
  SaveOptions save;
  save.info = {step,
               session_.loader().SamplesSeen(step),
               plan.scenario.run.seed,
               plan.world_size,
               OptimizerOf(plan),
               ResolvedYaml(plan.scenario),
               LossScaleOf(session_.executor())};
  save.keep = options_.keep;
  save.barrier = [&] { return session_.Barrier(); };
  save.values = [&](const Slice& slice) -> Result<std::vector<float>> {
    const std::span<const float> values = session_.executor().Values(slice);
    return std::vector<float>(values.begin(), values.end());
  };
  WT_ASSIGN_OR_RETURN(const int64_t bytes,
                      SaveCheckpoint(CheckpointDirectory(options_.checkpoints), plan, session_.rank(), save));
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  saves_.push_back({step, Picoseconds(took.count() * 1000), Bytes(bytes)});
  return Ok();
}

}  // namespace windtunnel
