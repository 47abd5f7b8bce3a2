// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/replay_report.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/status.h"

namespace hmm::ctl {
namespace {

using nlohmann::json;

// Only the buckets in use: [[bucket, count], ...].
json HistogramToJson(const Histogram& histogram) {
  json buckets = json::array();
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i) {
    if (histogram.bucket(i) != 0) buckets.push_back({i, histogram.bucket(i)});
  }
  return buckets;
}

Histogram HistogramFromJson(const json& buckets) {
  Histogram histogram;
  for (const json& bucket : buckets) {
    histogram.AddBucket(bucket.at(0).get<std::size_t>(), bucket.at(1).get<std::uint64_t>());
  }
  return histogram;
}

}  // namespace

void ReplayTally::AddError(std::string message) {
  ++errors;
  if (messages.size() < kMessagesMax) messages.push_back(std::move(message));
}

void ReplayTally::Merge(const ReplayTally& other) {
  requests += other.requests;
  accesses += other.accesses;
  for (std::size_t i = 0; i < hits.size(); ++i) hits[i] += other.hits[i];
  misses += other.misses;
  stored += other.stored;
  present += other.present;
  unstored += other.unstored;
  verified_bytes += other.verified_bytes;
  wrong_bytes += other.wrong_bytes;
  errors += other.errors;
  interrupted = interrupted || other.interrupted;
  hit_us.Merge(other.hit_us);
  miss_us.Merge(other.miss_us);
  for (const std::string& message : other.messages) {
    if (messages.size() < kMessagesMax) messages.push_back(message);
  }
}

std::string TallyToJson(const ReplayTally& tally) {
  json out;
  out["requests"] = tally.requests;
  out["accesses"] = tally.accesses;
  out["hits"] = tally.hits;
  out["misses"] = tally.misses;
  out["stored"] = tally.stored;
  out["present"] = tally.present;
  out["unstored"] = tally.unstored;
  out["verified_bytes"] = tally.verified_bytes;
  out["wrong_bytes"] = tally.wrong_bytes;
  out["errors"] = tally.errors;
  out["interrupted"] = tally.interrupted;
  out["hit_us"] = HistogramToJson(tally.hit_us);
  out["miss_us"] = HistogramToJson(tally.miss_us);
  out["messages"] = tally.messages;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<ReplayTally> TallyFromJson(std::string_view text) {
  try {
    const json in = json::parse(text);
    ReplayTally tally;
    in.at("requests").get_to(tally.requests);
    in.at("accesses").get_to(tally.accesses);
    in.at("hits").get_to(tally.hits);
    in.at("misses").get_to(tally.misses);
    in.at("stored").get_to(tally.stored);
    in.at("present").get_to(tally.present);
    in.at("unstored").get_to(tally.unstored);
    in.at("verified_bytes").get_to(tally.verified_bytes);
    in.at("wrong_bytes").get_to(tally.wrong_bytes);
    in.at("errors").get_to(tally.errors);
    in.at("interrupted").get_to(tally.interrupted);
    tally.hit_us = HistogramFromJson(in.at("hit_us"));
    tally.miss_us = HistogramFromJson(in.at("miss_us"));
    in.at("messages").get_to(tally.messages);
    return tally;
  } catch (const json::exception& e) {  // what the library throws ends here
    return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocol,
                 std::string("a worker's report is malformed: ") + e.what());
  }
}

}  // namespace hmm::ctl
