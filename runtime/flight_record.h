// The flight record: the last operators of every rank as a JSON file, written when a job fails
// (docs/contract.md, "Flight record").
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/flight_recorder.h"

namespace windtunnel {

// The number of operators of each rank in the file.
inline constexpr size_t kRecordedOperators = 1000;

// The program that a note of this step is about (FlightRecorder::Position::step).
const Program& ProgramAt(const Role& role, int64_t step);
// "'blocks.2.mlp.up' (gemm, backward) of step 12"
std::string OperatorAt(const Plan& plan, int rank, const FlightRecorder::Position& position);

// `ranks[i]` is the rank whose notes the recorder has at index i. Errors: Failed (names the file).
Status WriteFlightRecord(const Plan& plan, const FlightRecorder& recorder, const std::vector<int>& ranks,
                         const std::string& reason, const std::string& path);

}  // namespace windtunnel
