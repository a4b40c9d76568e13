#include "runtime/gloo_connect.h"

#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <stdexcept>
#include <vector>

#include "runtime/socket.h"

namespace windtunnel {
namespace {

// Windtunnel's store as a store of Gloo's, under a prefix. Errors travel through Gloo as
// exceptions and are caught below.
class RendezvousStore : public gloo::rendezvous::Store {
 public:
  RendezvousStore(windtunnel::Store& store, std::string prefix, std::chrono::milliseconds timeout)
      : store_(store), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    Status done = store_.Set(prefix_ + key, std::string(data.begin(), data.end()));
    if (!done) throw std::runtime_error(done.error().message);
  }
  std::vector<char> get(const std::string& key) override {
    std::string value = Fetch(key, timeout_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) Fetch(key, timeout);
  }

 private:
  std::string Fetch(const std::string& key, std::chrono::milliseconds timeout) {
    Result<std::string> value = store_.Get(prefix_ + key, timeout);
    if (!value) throw std::runtime_error(value.error().message);
    return *std::move(value);
  }

  windtunnel::Store& store_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
};

std::shared_ptr<gloo::Context> ConnectMesh(Store& store, const GlooOptions& options, const std::string& mesh,
                                           std::shared_ptr<gloo::transport::Device>& device) {
  auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
  context->setTimeout(options.timeout);
  RendezvousStore rendezvous(store, "gloo/" + options.name + "/" + mesh + "/", options.timeout);
  context->connectFullMesh(rendezvous, device);
  return context;
}

}  // namespace

Result<GlooConnections> ConnectGloo(Store& store, const GlooOptions& options) {
  IgnoreBrokenPipes();
  try {
    GlooConnections connections;
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.hostname;
    connections.device = gloo::transport::tcp::CreateDevice(attributes);
    WT_ASSIGN_OR_RETURN(connections.ticker, GlooTicker::Make(connections.device));
    connections.direct = ConnectMesh(store, options, "direct", connections.device);
    connections.bulk = ConnectMesh(store, options, "bulk", connections.device);
    return connections;
  } catch (const std::exception& error) {
    return Failed("rank {} of group '{}' ({} ranks) could not connect to its peers over '{}': {}",
                  options.rank, options.name, options.size, options.hostname, GlooMessage(error));
  }
}

std::string GlooMessage(const std::exception& error) {
  std::string text = error.what();
  // "[./gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:37011"
  size_t end = text.find("] ");
  if (text.starts_with("[") && end != std::string::npos) text.erase(0, end + 2);
  return text;
}

std::string GlooVersion() {
  return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

}  // namespace windtunnel
