#include "cost_models/key_work.h"

#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <vector>

namespace windtunnel {
namespace {

std::optional<DType> TypeNamed(const std::string& word) {
  for (DType type : {DType::kFloat32, DType::kTf32, DType::kBFloat16, DType::kFloat16, DType::kFloat8,
                     DType::kMxFloat8, DType::kFloat4x2})
    if (word == Name(type)) return type;
  return std::nullopt;
}

std::optional<std::pair<std::string, int64_t>> SizeIn(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return std::nullopt;
  int64_t number = 0;
  const char* end = word.data() + word.size();
  const auto [parsed, error] = std::from_chars(word.data() + equals + 1, end, number);
  if (error != std::errc() || parsed != end || number < 0) return std::nullopt;
  return std::pair(word.substr(0, equals), number);
}

// In doubles, since sizes from a file may be anything.
double Product(const std::map<std::string, int64_t>& sizes, std::initializer_list<const char*> names) {
  double product = 1;
  for (const char* name : names) {
    const auto size = sizes.find(name);
    product *= size == sizes.end() ? 0 : static_cast<double>(size->second);
  }
  return product;
}

Bytes ToBytes(double bytes) { return Bytes(bytes < 9e18 ? static_cast<int64_t>(bytes) : 0); }

}  // namespace

KeyWork::KeyWork(const std::string& key) {
  std::istringstream words(key);
  std::string word, operation;
  std::vector<DType> types;
  for (bool first = true; words >> word; first = false) {
    if (first) operation = word;
    if (const auto size = SizeIn(word)) {
      sizes.insert(*size);
      continue;
    }
    if (const auto type = TypeNamed(word)) types.push_back(*type);
    kind += (kind.empty() ? "" : " ") + word;
  }
  if (!types.empty()) dtype = types.front();
  const auto width = static_cast<double>(SizeOf(dtype).count());
  const bool grouped = operation == "grouped_gemm";
  if (operation == "gemm" || grouped) {
    const double groups = grouped ? Product(sizes, {"groups"}) : 1;
    flops = Flops(2 * groups * Product(sizes, {"m", "n", "k"}));
    if (flops > Flops())
      traffic =
          ToBytes(groups * width *
                  (Product(sizes, {"m", "k"}) + Product(sizes, {"k", "n"}) + Product(sizes, {"m", "n"})));
  } else if (operation == "copy" && types.size() == 2) {
    traffic = ToBytes(Product(sizes, {"n"}) * (width + static_cast<double>(SizeOf(types[1]).count())));
  } else if (sizes.contains("rows") && sizes.contains("columns") && operation != "load_batch") {
    traffic = ToBytes(width * Product(sizes, {"rows", "columns"}));  // at least this is read
  }
}

bool KeyWork::IsSmallerThan(const KeyWork& other, double factor) const {
  if (kind != other.kind || sizes.size() != other.sizes.size()) return false;
  bool is_smaller = false;
  for (auto own = sizes.begin(), its = other.sizes.begin(); own != sizes.end(); ++own, ++its) {
    if (own->first != its->first || own->second > its->second) return false;
    const bool is_larger = own->second < its->second;
    is_smaller = is_smaller ||
                 (is_larger && static_cast<double>(its->second) >= factor * static_cast<double>(own->second));
  }
  return is_smaller;
}

}  // namespace windtunnel
