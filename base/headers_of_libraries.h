// What most sources include, precompiled (base/prelude in base/BUILD; .bazelrc puts it before each). Sources include what they use all the same:
// --config=plain compiles them without.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
