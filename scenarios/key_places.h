// Places of mistakes that show only after loading. Whoever finds one (compiling a plan, the costs of a
// device) knows the key and begins the message with it, but does not know the file.
#pragma once

#include <string>
#include <vector>

#include "scenarios/overrides.h"

namespace windtunnel {

// The key that `message` begins with: "parallel.data.wrap" of "parallel.data.wrap: no module …". A top-level
// key must be followed by a colon or "is", since other sentences may begin with such a word. Empty: the
// message begins with no key.
std::string KeyOfMessage(const std::string& message);

// The place of the key that `message` begins with: "FILE:LINE:COLUMN", or "--set KEY=VALUE" if an override
// gives the key. If neither gives it, the place of the block that it would be in. Empty: the message begins
// with no key, or the file cannot be read.
std::string PlaceOfMessage(const std::string& message, const std::string& path,
                           const std::vector<Override>& overrides);

}  // namespace windtunnel
