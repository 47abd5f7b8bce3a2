// SPDX-License-Identifier: Apache-2.0
//
// One printer a format behind one interface, so that every verb speaks every format. Each method
// returns the text to write to standard output. JSON keys are a contract: they are only ever added
// to. Pure; one thread a printer (lists that come in pages keep their place in it).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/ctl/lru_forecast.h"
#include "client/ctl/replay_report.h"
#include "client/ctl/stat.h"
#include "client/ctl/table.h"
#include "hmm/v1/admin.pb.h"
#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

enum class Format { kTable, kJson };

class Printer {
 public:
  virtual ~Printer() = default;
  virtual std::string Status(const v1::GetStatusResponse& status) = 0;
  virtual std::string Tiers(const v1::ListTiersResponse& tiers) = 0;
  // One page of a list; `first` and `last` of its pages (both for a single page).
  virtual std::string Tensors(const v1::ListTensorsResponse& page, bool first, bool last) = 0;
  virtual std::string Tensor(std::uint64_t epoch, const v1::TensorInfo& tensor) = 0;
  virtual std::string Sessions(const v1::ListSessionsResponse& sessions) = 0;
  virtual std::string Stat(const StatReport& report) = 0;
  virtual std::string Evict(const std::string& tier, const v1::EvictResponse& done) = 0;
  virtual std::string Watermarks(const v1::SetWatermarksRequest& set,
                                 const v1::SetWatermarksResponse& done) = 0;
  virtual std::string Drain(bool off, const v1::DrainResponse& done) = 0;
  virtual std::string Replay(const ReplayReport& report) = 0;
  virtual std::string Forecast(const LruForecast& forecast) = 0;
};

std::unique_ptr<Printer> MakePrinter(Format format, const TableStyle& style = {});
std::unique_ptr<Printer> MakeTablePrinter(const TableStyle& style = {});
std::unique_ptr<Printer> MakeJsonPrinter();

// "hbm", "ddr", "flash"; "kv_cache", ...; "resident", ...: the words of the wire in lower case.
std::string KindWord(v1::TierKind kind);
std::string KindWord(v1::TensorKind kind);
std::string StateWord(v1::TensorState state);

}  // namespace hmm::ctl
