// A Hugging Face config.json, which model.config names.
#include "scenarios/hugging_face.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const windtunnel::InputFile file(data, size);
  (void)windtunnel::ReadHuggingFaceConfig(file.path());
  return 0;
}
