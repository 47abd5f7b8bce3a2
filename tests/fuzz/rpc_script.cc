// SPDX-License-Identifier: Apache-2.0
#include "fuzz/rpc_script.h"

#include <algorithm>
#include <sstream>

#include "fuzz/require.h"

namespace hmm::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using google::protobuf::Reflection;

constexpr std::size_t kRecordsMax = 64;
constexpr std::size_t kHead = 4;
constexpr std::size_t kMessageMax = 0xffff;

// Something in every field: ids and handles that exist, names that are known.
std::string TextFor(const FieldDescriptor& field, unsigned n) {
  const std::string& name = field.name();
  if (name.find("tier") != std::string::npos) return n % 2 == 0 ? "hbm0" : "ddr0";
  if (name.find("token") != std::string::npos) return "t";
  if (name == "tenant") return "one";
  if (name == "level") return "info";
  if (name == "service") return "hmm.v1.Memory";
  return std::string("k") + static_cast<char>('0' + n % 4);
}

std::uint64_t NumberFor(const FieldDescriptor& field, unsigned n) {
  const std::string& name = field.name();
  if (name.find("bytes") != std::string::npos) return 256;
  if (name.find("_us") != std::string::npos || name.find("_ms") != std::string::npos) return 5000;
  return n == 0 ? 1 : n;
}

void Fill(Message& message, unsigned n, int depth);

void FillField(Message& message, const FieldDescriptor& field, unsigned n, int depth) {
  const Reflection& r = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (depth > 0)
        Fill(list ? *r.AddMessage(&message, &field) : *r.MutableMessage(&message, &field), n,
             depth - 1);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      list ? r.AddString(&message, &field, TextFor(field, n))
           : r.SetString(&message, &field, TextFor(field, n));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      list ? r.AddUInt64(&message, &field, n) : r.SetUInt64(&message, &field, NumberFor(field, n));
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      list ? r.AddUInt32(&message, &field, n)
           : r.SetUInt32(&message, &field, static_cast<std::uint32_t>(NumberFor(field, n)));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      list ? r.AddDouble(&message, &field, 0.5) : r.SetDouble(&message, &field, 0.5);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!list) r.SetBool(&message, &field, n % 2 == 1);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      if (!list) {
        r.SetEnum(&message, &field,
                  field.enum_type()->value(static_cast<int>(n) % field.enum_type()->value_count()));
      }
      break;
    default:
      break;
  }
}

void Fill(Message& message, unsigned n, int depth) {
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) FillField(message, *type.field(i), n, depth);
}

std::uint8_t IndexOf(std::string_view full_name) {
  const auto& methods = RpcMethods();
  const auto at = std::find_if(methods.begin(), methods.end(), [&](const MethodDescriptor* method) {
    return method->full_name() == full_name;
  });
  Require(at != methods.end(), std::string(full_name) + " is a method");
  return static_cast<std::uint8_t>(at - methods.begin());
}

RpcRecord Filled(std::uint8_t method, unsigned n, std::uint8_t flags) {
  RpcRecord record{.method = method, .flags = flags, .message = {}};
  const auto message = NewMessage(*MethodOf(record).input_type());
  Fill(*message, n, 4);
  record.message = message->SerializeAsString();
  return record;
}

}  // namespace

std::vector<RpcRecord> ParseRpcScript(std::string_view bytes) {
  std::vector<RpcRecord> records;
  while (bytes.size() >= kHead && records.size() < kRecordsMax) {
    RpcRecord record;
    record.method = static_cast<std::uint8_t>(bytes[0]);
    record.flags = static_cast<std::uint8_t>(bytes[1]);
    const std::size_t size = static_cast<std::size_t>(static_cast<std::uint8_t>(bytes[2])) |
                             static_cast<std::size_t>(static_cast<std::uint8_t>(bytes[3])) << 8;
    bytes.remove_prefix(kHead);
    record.message = bytes.substr(0, size);
    bytes.remove_prefix(record.message.size());
    records.push_back(std::move(record));
  }
  return records;
}

std::string FormatRpcScript(const std::vector<RpcRecord>& records) {
  std::string bytes;
  for (const RpcRecord& record : records) {
    const std::size_t size = std::min(record.message.size(), kMessageMax);
    bytes += static_cast<char>(record.method);
    bytes += static_cast<char>(record.flags);
    bytes += static_cast<char>(size & 0xff);
    bytes += static_cast<char>(size >> 8);
    bytes.append(record.message, 0, size);
  }
  return bytes;
}

const std::vector<const MethodDescriptor*>& RpcMethods() {
  static const auto* const methods = [] {
    auto* const all = new std::vector<const MethodDescriptor*>;
    std::istringstream files(HMM_SERVICE_FILES);  // of proto/CMakeLists.txt
    for (std::string name; files >> name;) {
      const FileDescriptor* const file = DescriptorPool::generated_pool()->FindFileByName(name);
      Require(file != nullptr && file->service_count() > 0, name + " declares services");
      for (int s = 0; s < file->service_count(); ++s) {
        for (int m = 0; m < file->service(s)->method_count(); ++m) {
          all->push_back(file->service(s)->method(m));
        }
      }
    }
    Require(!all->empty() && all->size() < 200, "methods can be numbered in a byte");
    return all;
  }();
  return *methods;
}

const MethodDescriptor& MethodOf(const RpcRecord& record) {
  return *RpcMethods()[record.method % RpcMethods().size()];
}

std::unique_ptr<Message> NewMessage(const Descriptor& type) {
  const Message* const prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
  Require(prototype != nullptr, type.full_name() + " is generated");
  return std::unique_ptr<Message>(prototype->New());
}

std::vector<std::string> RpcSeeds() {
  std::vector<std::string> seeds;
  const std::uint8_t allocate = IndexOf("hmm.v1.Memory.Allocate");
  const std::uint8_t seal = IndexOf("hmm.v1.Memory.Seal");
  const std::uint8_t lease = IndexOf("hmm.v1.Regions.LeaseRegion");
  for (std::size_t m = 0; m < RpcMethods().size(); ++m) {
    const auto method = static_cast<std::uint8_t>(m);
    // Over tensors and a region that are there: by its owner, by another tenant, by an operator, by
    // nobody; and as raw bytes.
    std::vector<RpcRecord> records = {Filled(allocate, 0, 0), Filled(allocate, 1, 0),
                                      Filled(seal, 1, 0), Filled(lease, 1, 0)};
    for (const unsigned n : {0u, 1u, 2u}) records.push_back(Filled(method, n, kFlagPass));
    records.push_back(Filled(method, 1, 2));
    records.push_back(Filled(method, 1, kFlagAdmin | 3));
    records.push_back({.method = method, .flags = kFlagRaw, .message = "\x0a\xff\xff\xff\x0f"});
    records.push_back(Filled(method, 1, kFlagGiveUp));
    records.push_back(Filled(method, 1, kFlagDie));
    seeds.push_back(FormatRpcScript(records));
  }
  return seeds;
}

}  // namespace hmm::fuzz
