// Gloo's rendezvous over windtunnel's store: the connections of one group.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/communicator.h"
#include "runtime/gloo_ticker.h"

namespace gloo {
class Context;
namespace transport {
class Device;
}
}  // namespace gloo

namespace windtunnel {

// Two full meshes of connections over one event loop: direct messages and large ones must not queue behind
// each other.
struct GlooConnections {
  std::unique_ptr<GlooTicker> ticker;  // running; declared first, since it must outlive the rest
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::Context> direct, bulk;
};

// Every rank of the group calls it. Errors: Failed (a rank did not come within the timeout, an interface that
// is not there). Ignores SIGPIPE for the process from then on, unless it has a handler: Gloo writes to
// sockets whose peer may have died.
Result<GlooConnections> ConnectGloo(Store& store, const GlooOptions& options);

// The text of a Gloo exception, without its place in Gloo's sources.
std::string GlooMessage(const std::exception& error);

}  // namespace windtunnel
