// Reads a scenario and prints it resolved, for schema_test.py: exit 0, or 2 and the message.
#include <cstdio>

#include "scenarios/load.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto scenario = windtunnel::LoadScenario(argv[1], {});
  std::puts(scenario ? windtunnel::ResolvedYaml(*scenario).c_str() : scenario.error().message.c_str());
  return scenario ? 0 : 2;
}
