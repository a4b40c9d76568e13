// Whether a schedule is one: each stage runs each micro-batch forward once and backward once (as one action or as input then
// weight gradient), on the rank that holds it, and no rank waits for ever.
//
// Sends and receives are taken as blocking (rendezvous), the strictest semantics: a schedule without a fault runs under every
// weaker one, too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/schedule.h"

namespace windtunnel {

// The first thing that is wrong, and at which action; index -1 where no action is to blame (one that is missing).
struct ScheduleFault {
  int rank = -1;
  int64_t index = -1;
  std::string what;  // names the stage, the action and the reason
};

std::optional<ScheduleFault> FindScheduleFault(const Schedule& schedule);

// InvalidInput with FindScheduleFault's words.
Status CheckSchedule(const Schedule& schedule);

// By rank, the most pairs of a stage and a micro-batch whose activations it holds at once: from the forward until the end of
// the backward, or of the weight gradient, which still reads them. With v virtual stages v of them are one micro-batch of a
// rank's whole set of layers. REQUIRES: no fault.
std::vector<int64_t> ActivationsInFlight(const Schedule& schedule);

}  // namespace windtunnel
