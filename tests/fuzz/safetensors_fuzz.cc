// A safetensors file: of a checkpoint, or weights of another program. What its header promises must be there.
#include "runtime/checkpoint/safetensors.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const windtunnel::InputFile input(data, size);
  const auto file = windtunnel::SafetensorsFile::Open(input.path());
  if (!file) return 0;
  for (const auto& [name, tensor] : file->tensors()) {
    const auto values = file->Read(name);
    if (values) WT_CHECK(static_cast<int64_t>(values->size()) == tensor.elements());
  }
  return 0;
}
