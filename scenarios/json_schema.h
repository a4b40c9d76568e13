// The scenario file's format as a JSON Schema (draft 2020-12), for editors' completion. scenario.schema.json
// is its output; a test holds the two together.
#pragma once

#include <string>

namespace windtunnel {

// The whole schema as indented JSON with a final newline.
std::string ScenarioJsonSchema();

}  // namespace windtunnel
