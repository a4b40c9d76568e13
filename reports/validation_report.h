// A validation as a table, and as JSON (schema "windtunnel/validation/1", docs/contract.md).
#pragma once

#include <string>

#include "reports/ink.h"
#include "reports/validation.h"

namespace windtunnel {

inline constexpr char kValidationSchema[] = "windtunnel/validation/1";

// Every row by source, with both values and the error, and the refused rows with their reasons; then the
// statistics of each source and of all.
std::string ValidationTable(const Validation& validation, Ink ink);
// The statistics alone.
std::string ValidationSummary(const Validation& validation, Ink ink);

// Beyond the contract's keys: `refused` (rows with their reasons, and their number in each block of statistics),
// `within_tolerance` and `mean` (the signed mean error), and `counts` in rows.
std::string ValidationJson(const Validation& validation);

// A picture of predicted over measured step times: both axes logarithmic, one colour per source, the diagonal
// and 20 % on either side of it. A second panel shows the errors over the measured times.
std::string ValidationSvg(const Validation& validation);

}  // namespace windtunnel
