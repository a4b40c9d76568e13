// Checks that a schedule is valid: each stage runs each micro-batch forward once and backward once (as B, or
// as I and later W), on the rank that holds it, and no rank waits for ever.
//
// Sends and receives are taken as blocking (rendezvous), the strictest semantics: a schedule without a fault
// runs under every weaker one, too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace windtunnel {

// The first fault, and the action at which it is; index -1 if an action is missing.
struct ScheduleFault {
  int rank = -1;
  int64_t index = -1;
  std::string what;  // names the stage, the action and the reason
};

std::optional<ScheduleFault> FindScheduleFault(const Schedule& schedule);

// By rank, the maximum number of activations it holds at once, each of one stage and one micro-batch: from
// the forward until the end of the backward, or of the weight gradient, which still reads them. With v
// virtual stages, v of them are one micro-batch's activations of all of the rank's layers.
// REQUIRES: no fault.
std::vector<int64_t> ActivationsInFlight(const Schedule& schedule);

}  // namespace windtunnel
