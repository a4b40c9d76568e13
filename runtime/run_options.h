// What a live run does beside its steps: what it resumes from, what it saves, whether it
// evaluates and what it reports.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/step_reporting.h"

namespace windtunnel {

struct RunOptions {
  std::string checkpoints = {};  // the directory; empty: nothing is saved
  int64_t checkpoint_every = 0;  // steps; the last step's checkpoint is saved in any case
  int64_t keep = 2;              // of the newest checkpoints; 0: all
  bool resumes = false;          // resume from a checkpoint, if there is one
  // The checkpoint as this process sees it, or a directory of them; empty: from step 0.
  std::string resume_from = {};
  std::string import_weights = {};  // first values: a safetensors file, or a directory with model.safetensors
  bool evaluates = false;           // on held-out data, after the last step
  // How long ranks wait while another one writes nothing of its part of a checkpoint. A file system may
  // take its time over gigabytes.
  std::chrono::milliseconds save_patience = std::chrono::minutes(10);
  pid_t launcher = 0;  // the run ends when this process has ended; 0: no such process
  // Of rank 0, while steps run; ranks that another launcher started need the same.
  StepReporting reporting = {};
};

}  // namespace windtunnel
