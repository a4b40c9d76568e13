// Values of command-line options: which of them are accepted, and what they mean.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "cli/options.h"

namespace windtunnel {

// Excludes "nan", which passes every range check.
CLI::Validator IsFinite();

// Numbers from `lowest` to `highest`. The help does not mention the range: most bounds are there only to
// catch typing errors.
template <typename T>
CLI::Validator In(T lowest, T highest) {
  CLI::Validator range = CLI::Range(lowest, highest);
  range.description("");
  return range;
}

// A whole number from 1 to 100,000. The complaint names it ("a number of nodes") and says `why` other values
// that torchrun takes are none.
CLI::Validator TorchrunsCount(std::string name, std::string why);

// Turns 15T, 300B, 2.5M and 10K into numbers.
CLI::Validator TokenCount();

// The complaint about a value that run.seed may not have; empty if it may. CLI11 would read -1 as the largest
// 64-bit number.
std::string WrongSeed(const std::string& text);

// The complaint about torchrun's "host", "host:port" or "[address]:port"; empty if it is one. An address of
// IPv6 without brackets has no port.
std::string WrongEndpoint(const std::string& endpoint);
// REQUIRES: not a WrongEndpoint.
void SetEndpoint(const std::string& endpoint, Options& options);

}  // namespace windtunnel
