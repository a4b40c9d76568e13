#include "reports/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace windtunnel {

bool IsTerminal(std::FILE* file) { return isatty(fileno(file)) == 1; }

void Progress::Show(const std::string& what, double share) {
  if (!enabled_) return;
  auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  fmt::print(out_, "\r\033[K{}", ProgressLine(what, share, 79));
  std::fflush(out_);
}

void Progress::Log(const std::string& line) {
  Clear();
  fmt::print(out_, "{}\n", line);
  std::fflush(out_);
}

void Progress::Clear() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(out_, "\r\033[K");
  std::fflush(out_);
}

std::string ProgressLine(const std::string& what, double share, int columns) {
  constexpr int kCells = 20;
  share = share >= 0 ? std::min(share, 1.0) : 0;  // 0 of 0 is NaN
  int full = static_cast<int>(share * kCells);
  std::string line = fmt::format("[{}{}] {:>3.0f} %  ", std::string(full, '#'),
                                 std::string(kCells - full, '.'), 100 * share);
  size_t room = std::max<int>(columns - static_cast<int>(line.size()), 0);
  return line + (what.size() <= room ? what : what.substr(0, room));
}

}  // namespace windtunnel
