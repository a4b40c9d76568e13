// Where a mistake stands that only shows after loading: whoever finds it (compiling a plan, the costs of a device) knows the key, and
// begins the message with it, but no file.
#pragma once

#include <string>
#include <vector>

#include "scenarios/overrides.h"

namespace windtunnel {

// The key that `message` begins with: "parallel.data.wrap" of "parallel.data.wrap: no module …". A key of the top level must be followed
// by a colon or "is", as other sentences may begin with such a word. Empty: none.
std::string KeyOfMessage(const std::string& message);

// "FILE:LINE:COLUMN" of the key that `message` begins with, or "--set KEY=VALUE" where an override gives it; where neither does, of the
// block that it would be in. Empty: it begins with no key, or the file cannot be read.
std::string PlaceOfMessage(const std::string& message, const std::string& path,
                           const std::vector<Override>& overrides);

}  // namespace windtunnel
