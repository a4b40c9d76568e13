#include "runtime/flight_record.h"

#include <nlohmann/json.hpp>

#include "base/write_file.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;
using State = FlightRecorder::State;

double ToSeconds(int64_t time_ns) { return static_cast<double>(time_ns) * 1e-9; }

// Adds what the ranks of a group must agree on.
void AddMessage(const OpKind& kind, Json& json) {
  const auto add = [&](DType dtype, int64_t elements) {
    json["dtype"] = std::string(Name(dtype));
    json["elements"] = elements;
    json["bytes"] = MessageBytes(kind).count();
  };
  if (const auto* collective = std::get_if<Collective>(&kind)) add(collective->dtype, collective->elements);
  if (const auto* send = std::get_if<Send>(&kind)) add(send->dtype, send->elements);
  if (const auto* receive = std::get_if<Receive>(&kind)) add(receive->dtype, receive->elements);
}

Json Describe(const Plan& plan, int rank, const FlightRecorder::Event& event) {
  const Role& role = plan.RoleOf(rank);
  const Program& program = ProgramAt(role, event.position.step);
  Json json{{"program", program.name}, {"step", event.position.step}, {"op", event.position.op}};
  if (event.position.op < static_cast<int32_t>(program.ops.size())) {
    const Op& op = program.ops[event.position.op];
    const Stream& stream = role.streams[op.stream];
    json["name"] = op.name;
    json["kind"] = std::string(OperatorName(op.kind));
    json["phase"] = std::string(Name(op.phase));
    if (op.micro_batch >= 0) json["micro_batch"] = op.micro_batch;
    json["stream"] = stream.name;
    if (IsCommunication(op.kind)) {
      json["group"] = plan.GroupOf(rank, stream).name;
      json["number"] = event.number;
      AddMessage(op.kind, json);
    }
  }
  json["began_s"] = ToSeconds(event.time_ns);
  return json;
}

// Notes the wait with the operator that is waited for.
void NoteWait(const FlightRecorder::Event& event, std::vector<Json>& operators) {
  for (auto entry = operators.rbegin(); entry != operators.rend(); ++entry) {
    if ((*entry)["step"] != event.position.step || (*entry)["op"] != event.position.op) continue;
    (*entry)["awaited_s"] = ToSeconds(event.time_ns);
    return;
  }
}

Json OfRank(const Plan& plan, const FlightRecorder& recorder, int slot, int rank) {
  std::vector<Json> operators;
  for (const FlightRecorder::Event& event : recorder.Events(slot)) {
    if (event.position.state == State::kWaiting) NoteWait(event, operators);
    if (event.position.state == State::kRunning) {
      // A communication is noted when its turn comes and when it is submitted.
      const bool again = !operators.empty() && operators.back()["step"] == event.position.step &&
                         operators.back()["op"] == event.position.op;
      if (again) operators.pop_back();
      operators.push_back(Describe(plan, rank, event));
    }
  }
  if (operators.size() > kRecordedOperators)
    operators.erase(operators.begin(), operators.end() - kRecordedOperators);
  static constexpr const char* kStates[] = {"starting", "running", "waiting", "step done"};
  const FlightRecorder::Position last = recorder.Last(slot);
  return Json{{"rank", rank},
              {"state", kStates[static_cast<int>(last.state)]},
              {"last_operator", OperatorAt(plan, rank, last)},
              {"operators", operators}};
}

}  // namespace

const Program& ProgramAt(const Role& role, int64_t step) {
  if (step == FlightRecorder::kInitialization) return role.initialize;
  if (step == FlightRecorder::kRestore) return role.restore;
  if (step == FlightRecorder::kEvaluation) return role.evaluate;
  return role.StepProgram(step);
}

std::string OperatorAt(const Plan& plan, int rank, const FlightRecorder::Position& position) {
  if (position.op < 0) return "none yet";
  if (position.state == FlightRecorder::State::kDone)
    return fmt::format("none: {} was done", DescribeStep(position.step));
  const Program& program = ProgramAt(plan.RoleOf(rank), position.step);
  if (position.op >= static_cast<int32_t>(program.ops.size())) return "unknown";
  const Op& op = program.ops[position.op];
  return fmt::format("'{}' ({}, {}) of {}", op.name, OperatorName(op.kind), Name(op.phase),
                     DescribeStep(position.step));
}

Status WriteFlightRecord(const Plan& plan, const FlightRecorder& recorder, const std::vector<int>& ranks,
                         const std::string& reason, const std::string& path) {
  Json json{{"schema", "windtunnel/flight_record/1"},
            {"scenario", plan.scenario.name},
            {"world_size", plan.world_size},
            {"reason", reason},
            {"ranks", Json::array()}};
  for (size_t slot = 0; slot < ranks.size(); ++slot)
    json["ranks"].push_back(OfRank(plan, recorder, static_cast<int>(slot), ranks[slot]));
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (const std::error_code error = WriteOutput(path, text))
    return Failed("{}: the flight record cannot be written: {}", path, error.message());
  return Ok();
}

}  // namespace windtunnel
