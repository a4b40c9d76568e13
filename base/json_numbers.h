// Whole numbers from JSON (or CBOR) that a file or a peer made. nlohmann's own get<int64_t>() also accepts
// fractions, and converts numbers beyond the type's range, which is undefined behaviour in C++.
//
//   const int64_t step = WholeNumber<int64_t>(json.at("step"));
//   const std::vector<int64_t> shape = WholeNumbers<int64_t>(json.at("shape"));
//
// Throws nlohmann's type_error, as get does, if there is no whole number, or one that does not fit. For .cc
// files that catch those.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace windtunnel {

template <typename Int, typename Json>
Int WholeNumber(const Json& json) {
  if (json.is_number_unsigned() && std::in_range<Int>(json.template get<uint64_t>()))
    return static_cast<Int>(json.template get<uint64_t>());
  if (json.is_number_integer() && !json.is_number_unsigned() &&
      std::in_range<Int>(json.template get<int64_t>()))
    return static_cast<Int>(json.template get<int64_t>());
  throw Json::type_error::create(302, "type must be a whole number that fits", &json);
}

template <typename Int, typename Json>
std::vector<Int> WholeNumbers(const Json& json) {
  if (!json.is_array()) throw Json::type_error::create(302, "type must be a list of whole numbers", &json);
  std::vector<Int> numbers;
  for (const Json& number : json) numbers.push_back(WholeNumber<Int>(number));
  return numbers;
}

}  // namespace windtunnel
