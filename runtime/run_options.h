// What a live run does beside its steps: where it goes on from, what it saves, whether it evaluates and what it reports.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/step_reporting.h"

namespace windtunnel {

struct RunOptions {
  std::string checkpoints = {};     // the directory; empty: nothing is saved
  int64_t checkpoint_every = 0;     // steps; the last step's checkpoint is saved in any case
  int64_t keep = 2;                 // of the newest checkpoints; 0: all
  bool resumes = false;             // asked to go on from a checkpoint, if there is one
  std::string resume_from = {};  // which, as this process sees it, or a directory of them; empty: from step 0
  std::string import_weights = {};  // first values: a safetensors file, or a directory with model.safetensors
  bool evaluates = false;           // on held-out data, after the last step
  // How long ranks wait for one that writes nothing of its part of a checkpoint; a file system may take its time over gigabytes.
  std::chrono::milliseconds save_patience = std::chrono::minutes(10);
  pid_t launcher = 0;               // a process that ends the run by its own end; 0: none does
  StepReporting reporting = {};     // of rank 0, while steps run; ranks of another launcher need the same
};

}  // namespace windtunnel
