// The state file of a search, from which the search resumes.
#include "sim/search/state_file.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const windtunnel::InputFile file(data, size);
  (void)windtunnel::StateFile::Read(file.path(), "key");
  return 0;
}
