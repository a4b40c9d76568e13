#include "cli/commands.h"

int main(int argc, char** argv) { return windtunnel::RunCommandLine(argc, argv); }
