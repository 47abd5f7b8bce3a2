// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "onnx/checker.h"
#include "onnx/onnx_pb.h"

namespace hmm::testing {

// What ONNX's own checker finds amiss; empty: nothing.
inline std::string OnnxCheckerSays(const onnx::ModelProto& model) {
  try {
    onnx::checker::check_model(model);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace hmm::testing
