// SPDX-License-Identifier: Apache-2.0
//
// hmm-llm as a server of one client, over its standard input and output: a line in, a line of JSON
// out. What client/examples/fleet drives.
//
//   generate ID COUNT TOKEN ...   COUNT tokens behind these; the text stays open until the next
//     {"id": ID, "ttft_ms": ..., "ms": ..., "prompt": n, "skipped": n, "recomputed": n,
//      "exposed_wait_ms": ..., "tokens": [..]}
//   continue COUNT                so many more tokens of the open text
//     {"done": "continue", "ms": ..., "tokens": [..]}
//   suspend | resume              the open text leaves HBM (to --suspend-to), and comes back
//     {"done": "suspend", "ms": ..., "length": tokens whose KV it has}
//
// The first line out is {"ready": true, "start_ms": ..., "loaded_bytes": ...}. A request that fails
// answers {"id": ..., "error": "REASON: message"}. One thread.
#pragma once

#include "absl/status/status.h"
#include "args.h"
#include "checkpoint.h"
#include "engine.h"

namespace llm {

// Until the end of standard input.
absl::Status Serve(const Args& args, const ModelShape& shape, Engine& engine, double start_ms);

}  // namespace llm
