#include "base/text.h"

#include <cctype>

namespace windtunnel {

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string Slug(std::string_view text) {
  std::string slug;
  for (const char c : LowerCase(text)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) slug += c;
    else if (!slug.empty() && slug.back() != '-') slug += '-';
  }
  if (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug;
}

}  // namespace windtunnel
