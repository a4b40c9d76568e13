// A file of validation rows, each with a scenario as the `validate` command reads it.
#include <string>

#include "cli/validation_rows.h"
#include "scenarios/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto rows =
      windtunnel::ParseValidationRows(std::string(reinterpret_cast<const char*>(data), size), "fuzz.jsonl");
  if (!rows) return 0;
  for (const windtunnel::ValidationRow& row : *rows)
    (void)windtunnel::ParseScenario(row.scenario, row.place, "/nonexistent", {});
  return 0;
}
