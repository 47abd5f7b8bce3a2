// SPDX-License-Identifier: Apache-2.0
//
// Calls of a session's verbs, on the tenant server: the queue's thread is the manager's, all runs
// inline.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "base/ids.h"
#include "daemon/authenticate.h"
#include "daemon/call.h"
#include "hmm/manager.h"

namespace hmm::daemon {

// A call that answers at once: with what `verb` of `service` says for the session of its token, or
// with Authenticate's errors.
template <typename Service, typename Request, typename Response>
void AnswerCall(core::Manager& manager, Call<Request, Response>* call, Service& service,
                absl::Status (Service::*verb)(const Request&, SessionId, Response&)) {
  const auto session = Authenticate(manager, call->Metadata(kTokenKey));
  if (!session.ok()) return call->Finish(session.status());
  call->response().set_epoch(manager.boot_epoch());
  call->Finish((service.*verb)(call->request(), *session, call->response()));
}

// A call that waits for `op`, which dies with the client. 0: it has answered, and is gone.
template <typename Request, typename Response>
void AwaitOp(core::Manager& manager, Call<Request, Response>* call, core::Manager::OpId op) {
  if (op != 0) call->OnCancel([&manager, op] { manager.Cancel(op); });
}

}  // namespace hmm::daemon
