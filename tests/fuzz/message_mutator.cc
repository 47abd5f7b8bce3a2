// SPDX-License-Identifier: Apache-2.0
#include "fuzz/message_mutator.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

namespace hmm::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::size_t kNodesMax = 20'000;  // messages looked at in one input

class Mutator {
 public:
  explicit Mutator(unsigned seed) : rng_(seed) {}

  void Run(Message& root) {
    nodes_.clear();
    Collect(root);
    Message& node = *nodes_[Pick(nodes_.size())];
    const Descriptor& type = *node.GetDescriptor();
    if (type.field_count() == 0) return;
    // Fields that are set are likelier than those that are not.
    std::vector<const FieldDescriptor*> set;
    node.GetReflection()->ListFields(node, &set);
    const bool known = !set.empty() && Pick(3) > 0;
    const FieldDescriptor& field =
        known ? *set[Pick(set.size())]
              : *type.field(static_cast<int>(Pick(static_cast<std::size_t>(type.field_count()))));
    if (field.is_repeated()) {
      ChangeList(node, field);
    } else if (node.GetReflection()->HasField(node, &field) && Pick(6) == 0) {
      node.GetReflection()->ClearField(&node, &field);
    } else {
      ChangeOne(node, field);
    }
  }
  std::size_t Pick(std::size_t n) { return n == 0 ? 0 : rng_() % n; }  // [0, n)

 private:
  void Collect(Message& message) {
    if (nodes_.size() >= kNodesMax) return;
    nodes_.push_back(&message);
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (!field->is_repeated()) {
        Collect(*reflection.MutableMessage(&message, field));
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        Collect(*reflection.MutableRepeatedMessage(&message, field, i));
      }
    }
  }

  void ChangeList(Message& node, const FieldDescriptor& field) {
    const Reflection& reflection = *node.GetReflection();
    const int size = reflection.FieldSize(node, &field);
    const auto at = static_cast<int>(Pick(static_cast<std::size_t>(size)));
    switch (size == 0 ? 0 : Pick(5)) {
      case 0:
        Add(node, field);
        break;
      case 1:  // take one away
        reflection.SwapElements(&node, &field, at, size - 1);
        reflection.RemoveLast(&node, &field);
        break;
      case 2:
        reflection.SwapElements(&node, &field, at,
                                static_cast<int>(Pick(static_cast<std::size_t>(size))));
        break;
      default:
        ChangeAt(node, field, at);
    }
  }

  void Add(Message& node, const FieldDescriptor& field) {
    const Reflection& reflection = *node.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        const std::unique_ptr<Message> copy = CopyOfLike(*field.message_type());
        Message* added = reflection.AddMessage(&node, &field);
        if (copy != nullptr) added->CopyFrom(*copy);
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING:
        reflection.AddString(&node, &field, Text(""));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.AddInt32(&node, &field, static_cast<std::int32_t>(Whole(0)));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection.AddInt64(&node, &field, static_cast<std::int64_t>(Whole(0)));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        reflection.AddUInt32(&node, &field, static_cast<std::uint32_t>(Whole(0)));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection.AddUInt64(&node, &field, Whole(0));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        reflection.AddFloat(&node, &field, static_cast<float>(Pick(10)));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection.AddDouble(&node, &field, Real(1));
        break;
      default:  // no list of these in what we read
        break;
    }
  }

  void ChangeAt(Message& node, const FieldDescriptor& field, int at) {
    const Reflection& r = *node.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        const std::unique_ptr<Message> copy = CopyOfLike(*field.message_type());
        if (copy != nullptr) r.MutableRepeatedMessage(&node, &field, at)->CopyFrom(*copy);
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING:
        r.SetRepeatedString(&node, &field, at, Text(r.GetRepeatedString(node, &field, at)));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        r.SetRepeatedInt32(&node, &field, at,
                           static_cast<std::int32_t>(Whole(
                               static_cast<std::uint64_t>(r.GetRepeatedInt32(node, &field, at)))));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        r.SetRepeatedInt64(&node, &field, at,
                           static_cast<std::int64_t>(Whole(
                               static_cast<std::uint64_t>(r.GetRepeatedInt64(node, &field, at)))));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        r.SetRepeatedUInt32(
            &node, &field, at,
            static_cast<std::uint32_t>(Whole(r.GetRepeatedUInt32(node, &field, at))));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        r.SetRepeatedUInt64(&node, &field, at, Whole(r.GetRepeatedUInt64(node, &field, at)));
        break;
      default:
        Add(node, field);
    }
  }

  void ChangeOne(Message& node, const FieldDescriptor& field) {
    const Reflection& r = *node.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        const std::unique_ptr<Message> copy = CopyOfLike(*field.message_type());
        Message* changed = r.MutableMessage(&node, &field);
        if (copy != nullptr) changed->CopyFrom(*copy);
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING:
        r.SetString(&node, &field, Text(r.GetString(node, &field)));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        r.SetInt32(
            &node, &field,
            static_cast<std::int32_t>(Whole(static_cast<std::uint64_t>(r.GetInt32(node, &field)))));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        r.SetInt64(
            &node, &field,
            static_cast<std::int64_t>(Whole(static_cast<std::uint64_t>(r.GetInt64(node, &field)))));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        r.SetUInt32(&node, &field, static_cast<std::uint32_t>(Whole(r.GetUInt32(node, &field))));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        r.SetUInt64(&node, &field, Whole(r.GetUInt64(node, &field)));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        r.SetFloat(&node, &field, r.GetFloat(node, &field) * 2 - 1);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        r.SetDouble(&node, &field, Real(r.GetDouble(node, &field)));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        r.SetBool(&node, &field, !r.GetBool(node, &field));
        break;
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto count = static_cast<std::size_t>(field.enum_type()->value_count());
        r.SetEnum(&node, &field, field.enum_type()->value(static_cast<int>(Pick(count))));
        break;
      }
    }
  }

  // nullptr: there is no other, or the new one shall be empty.
  std::unique_ptr<Message> CopyOfLike(const Descriptor& type) {
    if (Pick(6) == 0) return nullptr;
    std::vector<const Message*> like;
    for (const Message* node : nodes_) {
      if (node->GetDescriptor() == &type) like.push_back(node);
    }
    if (like.empty()) return nullptr;
    const Message& chosen = *like[Pick(like.size())];
    std::unique_ptr<Message> copy(chosen.New());
    copy->CopyFrom(chosen);
    return copy;
  }

  std::uint64_t Whole(std::uint64_t old) {
    constexpr std::array<int, 9> kEdges = {31, 32, 47, 48, 56, 60, 61, 62, 63};
    switch (Pick(8)) {
      case 0:
        return old + 1;
      case 1:
        return old - 1;
      case 2:
        return old ^ (std::uint64_t{1} << Pick(64));
      case 3:
        return (std::uint64_t{1} << kEdges[Pick(kEdges.size())]) - Pick(2);
      case 4:
        return std::uint64_t{0} - Pick(3);
      case 5:
        return old * 2;
      default:  // indices and the like are small
        return Pick(16);
    }
  }

  double Real(double old) {
    using Limits = std::numeric_limits<double>;
    constexpr std::array<double, 10> kEdges = {0,
                                               -1,
                                               1e-300,
                                               1e15,
                                               1e300,
                                               Limits::max(),
                                               Limits::min(),
                                               Limits::infinity(),
                                               Limits::quiet_NaN(),
                                               -0.0};
    if (Pick(3) == 0) return kEdges[Pick(kEdges.size())];
    return Pick(2) == 0 ? old * 2 : old + static_cast<double>(Pick(100));
  }

  // Names refer to each other: often one that stands elsewhere.
  std::string Text(const std::string& old) {
    if (Pick(3) > 0) {
      std::vector<std::string> others;
      for (std::size_t i = 0; i < 8; ++i) AddTexts(*nodes_[Pick(nodes_.size())], others);
      if (!others.empty()) return others[Pick(others.size())];
    }
    std::string text = old;
    text.resize(old.size() + 16);
    const std::size_t size =
        LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), old.size(), text.size());
    text.resize(size);
    return text;
  }
  static void AddTexts(const Message& node, std::vector<std::string>& texts) {
    const Reflection& r = *node.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    r.ListFields(node, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) continue;
      if (!field->is_repeated()) {
        texts.push_back(r.GetString(node, field));
        continue;
      }
      for (int i = 0; i < r.FieldSize(node, field); ++i) {
        texts.push_back(r.GetRepeatedString(node, field, i));
      }
    }
  }

  std::mt19937 rng_;
  std::vector<Message*> nodes_;
};

class Silent final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int /*line*/, int /*column*/, const std::string& /*message*/) override {}
};

bool ParseText(const std::string& text, Message& message) {
  Silent silent;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silent);
  return parser.ParseFromString(text, &message);
}

// As the writers do: the same message gives the same bytes.
std::string Binary(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializePartialToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

}  // namespace

std::size_t MutateAsMessage(google::protobuf::Message& message, bool text_too, std::uint8_t* data,
                            std::size_t size, std::size_t size_max, unsigned seed) {
  Mutator mutator(seed);
  if (mutator.Pick(5) == 0) return LLVMFuzzerMutate(data, size, size_max);
  bool text = false;
  if (!message.ParsePartialFromArray(data, static_cast<int>(size))) {
    text = text_too && ParseText(std::string(reinterpret_cast<const char*>(data), size), message);
    if (!text) return LLVMFuzzerMutate(data, size, size_max);
  }
  for (std::size_t n = 1 + mutator.Pick(3); n > 0; --n) mutator.Run(message);
  std::string out;
  if (text) {
    google::protobuf::TextFormat::PrintToString(message, &out);
  } else {
    out = Binary(message);
  }
  if (out.empty() || out.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}

}  // namespace hmm::fuzz
