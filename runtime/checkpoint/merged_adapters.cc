#include "runtime/checkpoint/merged_adapters.h"

#include <string_view>

namespace windtunnel {
namespace {

constexpr std::string_view kWeight = ".weight", kA = ".lora_a.weight", kB = ".lora_b.weight";

// weight[out,in] += scale b[out,rank] a[rank,in].
void AddProduct(double scale, const std::vector<float>& b, const std::vector<float>& a, int64_t rank,
                std::vector<float>& weight) {
  const int64_t in = static_cast<int64_t>(a.size()) / rank, out = static_cast<int64_t>(b.size()) / rank;
  for (int64_t row = 0; row < out; ++row) {
    float* to = weight.data() + row * in;
    for (int64_t k = 0; k < rank; ++k) {
      const float factor = static_cast<float>(scale * double{b[static_cast<size_t>(row * rank + k)]});
      const float* from = a.data() + k * in;
      for (int64_t column = 0; column < in; ++column) to[column] += factor * from[column];
    }
  }
}

}  // namespace

bool IsOfAdapter(const std::string& tensor) { return tensor.ends_with(kA) || tensor.ends_with(kB); }

Result<std::vector<float>> MergedAdapters::Read(const std::string& tensor) const {
  WT_ASSIGN_OR_RETURN(std::vector<float> weight, source_.Read(tensor));
  if (!lora_ || !tensor.ends_with(kWeight)) return weight;
  const std::string layer = tensor.substr(0, tensor.size() - kWeight.size());
  const std::string of_a = layer + std::string(kA), of_b = layer + std::string(kB);
  if (!source_.ShapeOf(of_a)) return weight;
  WT_ASSIGN_OR_RETURN(const std::vector<float> a, source_.Read(of_a));
  WT_ASSIGN_OR_RETURN(const std::vector<float> b, source_.Read(of_b));
  AddProduct(lora_->Scale(), b, a, lora_->rank, weight);
  return weight;
}

}  // namespace windtunnel
