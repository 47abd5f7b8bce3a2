// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/daemon_link.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/rpc/errors.pb.h"
#include "hmm/v1/admin.grpc.pb.h"
#include "hmm/v1/inspection.grpc.pb.h"

namespace hmm::ctl {
namespace {

constexpr std::chrono::milliseconds kTimeout{10000};
constexpr std::uint32_t kPageSize = 5000;

// gRPC's codes equal absl's by number; the reason comes in the details.
absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      google::rpc::ErrorInfo info;
      if (!detail.UnpackTo(&info)) continue;
      if (const std::optional<Reason> reason = ReasonFromName(info.reason())) {
        return Error(code, *reason, status.error_message());
      }
    }
  }
  return absl::Status(code, status.error_message());
}

std::string SocketPath(const std::string& dir) { return absl::StrCat(dir, "/admin.sock"); }

// A plain connect tells what gRPC does not: why nobody answers.
absl::Status ProbeSocket(const std::string& dir, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat(path, ": too long for a socket (at most ",
                              sizeof address.sun_path - 1, " bytes)"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return PosixError("socket", errno);
  const int error =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  close(fd);
  if (error == 0 || error == EAGAIN || error == EINPROGRESS) return absl::OkStatus();
  if (error == EACCES || error == EPERM) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kRefused,
                 absl::StrCat(path, ": ", std::strerror(error),
                              "; only root and the user the daemon runs as may use it"));
  }
  if (error == ENOENT && access(absl::StrCat(dir, "/session.sock").c_str(), F_OK) == 0) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kRefused,
                 absl::StrCat(dir,
                              " is a tenant's directory, for its clients alone: hmmctl needs the "
                              "daemon's own, where admin.sock is; name that one with --dir or "
                              "$HMM_DIR (by default it is /run/hmm)"));
  }
  return Error(absl::StatusCode::kUnavailable, Reason::kNoDaemon,
               absl::StrCat("no daemon answers on ", path, " (", std::strerror(error),
                            "); start one with 'hmmd --dir ", dir,
                            "' or 'systemctl start hmmd', or name its directory with --dir or "
                            "$HMM_DIR"));
}

// gRPC's own words say neither what was asked nor what to do.
absl::Status Worded(const absl::Status& status, std::chrono::milliseconds timeout) {
  if (absl::IsDeadlineExceeded(status)) {
    return Error(status.code(), Reason::kDeadline,
                 absl::StrCat("the daemon did not answer within ", timeout.count(),
                              " ms: it is stopped or overloaded; see 'systemctl status hmmd'"));
  }
  if (absl::IsUnimplemented(status)) {
    return Error(status.code(), Reason::kProtocol,
                 "this daemon is older than hmmctl and does not know the call; update hmmd");
  }
  return Error(status.code(), Reason::kNoDaemon,
               absl::StrCat("the daemon's admin socket broke off: ", std::string(status.message()),
                            "; it is going down, or at its limit of admin connections"));
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Call(
    Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request, std::chrono::milliseconds timeout = kTimeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Response response;
  const absl::Status status = FromGrpc((stub.*method)(&context, request, &response));
  if (status.ok()) return response;
  if (ReasonOf(status).has_value()) return status;
  return Worded(status, timeout);
}

}  // namespace

std::string DefaultDir() {
  const char* dir = std::getenv("HMM_DIR");
  return dir != nullptr && *dir != '\0' ? dir : "/run/hmm";
}

absl::Status DaemonLink::Probe(const std::string& dir) { return ProbeSocket(dir, SocketPath(dir)); }

absl::StatusOr<std::unique_ptr<DaemonLink>> DaemonLink::Connect(const std::string& dir) {
  HMM_RETURN_IF_ERROR(Probe(dir));
  return std::unique_ptr<DaemonLink>(new DaemonLink(SocketPath(dir)));
}

struct DaemonLink::Stubs {
  std::unique_ptr<v1::Inspection::Stub> inspection;
  std::unique_ptr<v1::Admin::Stub> admin;
};

DaemonLink::~DaemonLink() = default;

DaemonLink::DaemonLink(const std::string& socket_path) : stubs_(std::make_unique<Stubs>()) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      "unix:" + socket_path, grpc::InsecureChannelCredentials(), arguments);
  stubs_->inspection = v1::Inspection::NewStub(channel);
  stubs_->admin = v1::Admin::NewStub(channel);
}

absl::StatusOr<v1::GetStatusResponse> DaemonLink::GetStatus() {
  return Call(*stubs_->inspection, &v1::Inspection::Stub::GetStatus, v1::GetStatusRequest());
}

absl::StatusOr<v1::ListTiersResponse> DaemonLink::ListTiers() { return ListTiers(kTimeout); }

absl::StatusOr<v1::ListTiersResponse> DaemonLink::ListTiers(std::chrono::milliseconds timeout) {
  return Call(*stubs_->inspection, &v1::Inspection::Stub::ListTiers, v1::ListTiersRequest(),
              timeout);
}

absl::StatusOr<v1::ListTensorsResponse> DaemonLink::ListTensors(v1::ListTensorsRequest request) {
  request.set_page_size(kPageSize);
  return Call(*stubs_->inspection, &v1::Inspection::Stub::ListTensors, request);
}

absl::StatusOr<v1::ListSessionsResponse> DaemonLink::ListSessions() {
  return Call(*stubs_->inspection, &v1::Inspection::Stub::ListSessions, v1::ListSessionsRequest());
}

absl::StatusOr<v1::SetWatermarksResponse> DaemonLink::SetWatermarks(
    const v1::SetWatermarksRequest& request) {
  return Call(*stubs_->admin, &v1::Admin::Stub::SetWatermarks, request);
}

absl::StatusOr<v1::EvictResponse> DaemonLink::Evict(const v1::EvictRequest& request,
                                                    std::chrono::milliseconds timeout) {
  return Call(*stubs_->admin, &v1::Admin::Stub::Evict, request, timeout);
}

absl::StatusOr<v1::DrainResponse> DaemonLink::Drain(bool off) {
  v1::DrainRequest request;
  request.set_off(off);
  return Call(*stubs_->admin, &v1::Admin::Stub::Drain, request);
}

absl::StatusOr<v1::GetTopologyResponse> DaemonLink::GetTopology() {
  return Call(*stubs_->inspection, &v1::Inspection::Stub::GetTopology, v1::GetTopologyRequest());
}

absl::StatusOr<v1::CalibrateResponse> DaemonLink::Calibrate(std::chrono::milliseconds timeout) {
  return Call(*stubs_->admin, &v1::Admin::Stub::Calibrate, v1::CalibrateRequest(), timeout);
}

absl::StatusOr<v1::ExplainResponse> DaemonLink::Explain(const v1::ExplainRequest& request) {
  return Call(*stubs_->inspection, &v1::Inspection::Stub::Explain, request);
}

absl::StatusOr<v1::GetHealthResponse> DaemonLink::GetHealth(const std::string& tier) {
  v1::GetHealthRequest request;
  request.set_tier(tier);
  return Call(*stubs_->inspection, &v1::Inspection::Stub::GetHealth, request);
}

absl::StatusOr<v1::ResizeTierResponse> DaemonLink::ResizeTier(const v1::ResizeTierRequest& request,
                                                              std::chrono::milliseconds timeout) {
  return Call(*stubs_->admin, &v1::Admin::Stub::ResizeTier, request, timeout);
}

absl::StatusOr<v1::CompactResponse> DaemonLink::Compact(const std::string& tier,
                                                        std::chrono::milliseconds timeout) {
  v1::CompactRequest request;
  request.set_tier(tier);
  return Call(*stubs_->admin, &v1::Admin::Stub::Compact, request, timeout);
}

absl::StatusOr<v1::SetLogLevelResponse> DaemonLink::SetLogLevel(const std::string& level) {
  v1::SetLogLevelRequest request;
  request.set_level(level);
  return Call(*stubs_->admin, &v1::Admin::Stub::SetLogLevel, request);
}

absl::StatusOr<v1::AdminSwapResponse> DaemonLink::Swap(const v1::AdminSwapRequest& request,
                                                       std::chrono::milliseconds timeout) {
  return Call(*stubs_->admin, &v1::Admin::Stub::Swap, request, timeout);
}

absl::StatusOr<v1::AdminPrefetchResponse> DaemonLink::Prefetch(
    const v1::AdminPrefetchRequest& request) {
  return Call(*stubs_->admin, &v1::Admin::Stub::Prefetch, request);
}

absl::Status DaemonLink::Watch(
    const v1::WatchRequest& request, std::stop_token stop,
    const std::function<absl::StatusOr<bool>(const v1::WatchResponse&)>& each) {
  // A watch has no deadline, for nothing may happen for hours. That somebody answers is asked
  // apart.
  HMM_RETURN_IF_ERROR(ListTiers().status());
  grpc::ClientContext context;
  const auto reader = stubs_->inspection->Watch(&context, request);
  // Cancels at once if it is requested already.
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  absl::Status failed;
  bool enough = false;
  for (v1::WatchResponse response; !enough && failed.ok() && reader->Read(&response);) {
    const absl::StatusOr<bool> more = each(response);
    failed = more.status();
    enough = more.ok() && !*more;
  }
  if (enough || !failed.ok()) context.TryCancel();
  const absl::Status ended = FromGrpc(reader->Finish());
  if (!failed.ok() || enough || stop.stop_requested()) return failed;
  if (ended.ok()) {
    return Error(absl::StatusCode::kUnavailable, Reason::kNoDaemon, "the daemon ended the watch");
  }
  if (ReasonOf(ended).has_value()) return ended;
  if (absl::IsCancelled(ended)) {
    // Not by us. Who reads nothing does not take a status either, so the daemon breaks off.
    return Error(absl::StatusCode::kResourceExhausted, Reason::kSlowWatcher,
                 "the daemon cut this watcher off, for it read nothing while more events came than "
                 "are kept; watch again, with a narrower filter");
  }
  return Worded(ended, kTimeout);
}

}  // namespace hmm::ctl
