// A pipeline's schedule. The first two bytes give the numbers of ranks and micro-batches. An accepted
// schedule is printed and read again as the same.
#include <string>

#include "base/check.h"
#include "plan/schedule_csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace windtunnel;
  if (size < 2) return 0;
  const int ranks = 1 + data[0] % 8, micro_batches = 1 + data[1] % 8;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto schedule = ParseScheduleCsv("fuzz.csv", text, ranks, micro_batches);
  if (!schedule) return 0;
  const std::string printed = PrintScheduleCsv(*schedule);
  const auto again = ParseScheduleCsv("again.csv", printed, ranks, micro_batches);
  if (!again) internal::CheckFailed(__FILE__, __LINE__, again.error().message + "\n" + printed);
  WT_CHECK(PrintScheduleCsv(*again) == printed);
  return 0;
}
