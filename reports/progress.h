// One line of progress on standard error, rewritten in place; only on a terminal. Log lines go above it.
//
//   Progress progress(IsTerminal(stderr) && !quiet);
//   progress.Show("measuring gemm fp32 …", 0.25);
//   progress.Log("step 10: loss 3.21");
//   progress.Clear();   // also on destruction
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace windtunnel {

bool IsTerminal(std::FILE* file);

class Progress {
 public:
  explicit Progress(bool enabled, std::FILE* out = stderr) : enabled_(enabled), out_(out) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `share` in [0, 1] is the share that is done. The line is drawn at most ten times a second.
  void Show(const std::string& what, double share);
  // A line that stays; printed whether or not progress is shown.
  void Log(const std::string& line);
  void Clear();

 private:
  bool enabled_;
  bool drawn_ = false;
  std::FILE* out_;
  std::chrono::steady_clock::time_point last_{};
};

// "[#######.........] 43 %  what", at most `columns` wide.
std::string ProgressLine(const std::string& what, double share, int columns);

}  // namespace windtunnel
