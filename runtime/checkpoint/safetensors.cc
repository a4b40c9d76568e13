#include "runtime/checkpoint/safetensors.h"

#include <string.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json_numbers.h"
#include "base/parsing_notes.h"
#include "runtime/checkpoint/files.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format's byte order");

constexpr int64_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";

// Bytes of an element; 0 for a type that cannot be read.
int64_t BytesOf(const std::string& dtype) {
  if (dtype == "F32") return 4;
  return dtype == "BF16" || dtype == "F16" ? 2 : 0;
}

// The number of elements of a shape from a file, which may be anything; -1 if it is negative or overflows.
int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return -1;
  }
  return elements;
}

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// IEEE 754 binary16; a float represents each of its values exactly.
float FromFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1Fu, fraction = bits & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1.0p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

template <typename Convert>
std::vector<float> Widen(const std::string& bytes, Convert convert) {
  std::vector<float> values(bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    memcpy(&bits, bytes.data() + 2 * i, 2);
    values[i] = convert(bits);
  }
  return values;
}

SafetensorsTensor ReadTensor(const Json& json) {
  SafetensorsTensor tensor;
  tensor.dtype = json.at("dtype").get<std::string>();
  tensor.shape = WholeNumbers<int64_t>(json.at("shape"));
  const auto offsets = WholeNumbers<int64_t>(json.at("data_offsets"));
  tensor.begin = offsets.at(0);
  tensor.end = offsets.at(1);
  return tensor;
}

Status CheckPlace(const std::string& path, const std::string& name, const SafetensorsTensor& tensor,
                  int64_t data_bytes) {
  if (tensor.begin < 0 || tensor.begin > tensor.end || tensor.end > data_bytes) {
    return InvalidInput(
        "{}: tensor '{}' is at bytes {} to {} behind the header, but the file has {} there: it is cut off or "
        "damaged",
        path, name, tensor.begin, tensor.end, data_bytes);
  }
  const int64_t elements = ElementsOf(tensor.shape), width = BytesOf(tensor.dtype);
  const bool fits = elements >= 0 && (width == 0 || (tensor.end - tensor.begin) % width == 0) &&
                    (width == 0 || (tensor.end - tensor.begin) / width == elements);
  if (!fits) {
    return InvalidInput("{}: tensor '{}' has {} bytes, which do not fit its shape and type {}", path, name,
                        tensor.end - tensor.begin, tensor.dtype);
  }
  return Ok();
}

// InvalidInput if two tensors share bytes.
Status CheckOverlaps(const std::string& path, const std::map<std::string, SafetensorsTensor>& tensors) {
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.begin < tensor.end) places.emplace_back(tensor.begin, tensor.end);
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].first < places[i - 1].second)
      return InvalidInput("{}: two tensors share the byte {} behind the header", path, places[i].first);
  }
  return Ok();
}

}  // namespace

int64_t SafetensorsTensor::elements() const { return ElementsOf(shape); }

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile result;
  result.path_ = path;
  std::error_code error;
  // A pipe of that name would be waited for until somebody writes to it.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    return InvalidInput("{}: is not a regular file, expected a safetensors file", path);
  const int64_t bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return InvalidInput("{}: cannot be read, expected a safetensors file", path);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), kLengthBytes);
  if (!file)
    return InvalidInput("{}: is not a safetensors file: it has {} bytes, expected at least {}", path, bytes,
                        kLengthBytes);
  if (length > kSafetensorsMaxHeader || static_cast<int64_t>(length) + kLengthBytes > bytes) {
    return InvalidInput("{}: is not a safetensors file: its header would have {} bytes, the file has {}",
                        path, length, bytes);
  }
  std::string header(length, '\0');
  file.read(header.data(), static_cast<std::streamsize>(length));
  result.data_ = kLengthBytes + static_cast<int64_t>(length);
  try {
    const Json json = ParseOrDiscard(header);
    if (!json.is_object()) return InvalidInput("{}: the header is damaged: no JSON object", path);
    for (const auto& [name, tensor] : json.items()) {
      if (name != kMetadata) result.tensors_[name] = ReadTensor(tensor);
    }
  } catch (const std::exception& exception) {  // of nlohmann, and of vector::at
    return InvalidInput("{}: the header is damaged: {}", path, exception.what());
  }
  for (const auto& [name, tensor] : result.tensors_)
    WT_RETURN_IF_ERROR(CheckPlace(path, name, tensor, bytes - result.data_));
  WT_RETURN_IF_ERROR(CheckOverlaps(path, result.tensors_));
  return result;
}

const SafetensorsTensor* SafetensorsFile::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<std::vector<float>> SafetensorsFile::Read(const std::string& name) const {
  const SafetensorsTensor* tensor = Find(name);
  if (tensor == nullptr) return InvalidInput("{}: has no tensor '{}'", path_, name);
  if (BytesOf(tensor->dtype) == 0) {
    return InvalidInput("{}: tensor '{}' is of type {}, expected F32, BF16 or F16", path_, name,
                        tensor->dtype);
  }
  std::ifstream file(path_, std::ios::binary);
  file.seekg(data_ + tensor->begin);
  std::string bytes(static_cast<size_t>(tensor->end - tensor->begin), '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file) return InvalidInput("{}: tensor '{}' cannot be read", path_, name);
  if (tensor->dtype == "BF16") return Widen(bytes, FromBfloat16);
  if (tensor->dtype == "F16") return Widen(bytes, FromFloat16);
  std::vector<float> values(bytes.size() / sizeof(float));
  memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Result<int64_t> WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const int64_t end = offset + ElementsOf(tensor.shape) * static_cast<int64_t>(sizeof(float));
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = tensors.empty() && metadata.empty() ? "{}" : header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');  // so that values are aligned
  const uint64_t length = text.size();
  WT_ASSIGN_OR_RETURN(NewFile file, NewFile::Make(path));
  WT_RETURN_IF_ERROR(file.Write(&length, kLengthBytes));
  WT_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  for (const TensorToWrite& tensor : tensors) {
    WT_ASSIGN_OR_RETURN(const std::vector<float> values, tensor.values());
    if (static_cast<int64_t>(values.size()) != ElementsOf(tensor.shape)) {
      return Failed("{}: tensor '{}' has {} elements, expected {}", path, tensor.name, values.size(),
                    ElementsOf(tensor.shape));
    }
    WT_RETURN_IF_ERROR(file.Write(values.data(), values.size() * sizeof(float)));
    if (tensor.written) tensor.written(values);
  }
  WT_RETURN_IF_ERROR(file.Sync());
  return file.bytes();
}

}  // namespace windtunnel
