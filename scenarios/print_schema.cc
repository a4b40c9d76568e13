// Prints the JSON Schema of scenario files. To refresh the copy in the source tree:
//   ./bazelw run //scenarios:print_schema > scenarios/scenario.schema.json
#include <cstdio>

#include "scenarios/json_schema.h"

int main() { std::fputs(windtunnel::ScenarioJsonSchema().c_str(), stdout); }
