// A safetensors file, and the tensors read from it.
#include "base/check.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/fuzz/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const windtunnel::InputFile file(data, size);
  const auto tensors = windtunnel::SafetensorsFile::Open(file.path());
  if (!tensors) return 0;
  for (const auto& [name, tensor] : tensors->tensors()) {
    const auto values = tensors->Read(name);
    if (values) WT_CHECK_EQ(static_cast<int64_t>(values->size()), tensor.elements());
  }
  return 0;
}
