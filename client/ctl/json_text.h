// SPDX-License-Identifier: Apache-2.0
//
// What the writers of JSON share. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

// One line with -1. Bytes that are no UTF-8 are replaced: names of processes may be anything.
inline std::string Dump(const nlohmann::ordered_json& value, int indent = 2) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}
inline std::string Document(const nlohmann::ordered_json& value) { return Dump(value) + "\n"; }

nlohmann::ordered_json TensorToJson(const v1::TensorInfo& tensor);

}  // namespace hmm::ctl
