// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/raw_fields.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tessera {
namespace {

std::string varint(uint64_t n) {
  std::string out;
  for (; n >= 0x80; n >>= 7) out += static_cast<char>(n | 0x80);
  return out + static_cast<char>(n);
}

std::string field(uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

Bytes as_file(const std::string& text) {
  Buffer b(text.size());
  std::memcpy(b.data(), text.data(), text.size());
  return Bytes::own(std::move(b));
}

std::string number_of(uint64_t n) { return {reinterpret_cast<const char*>(&n), sizeof(n)}; }

TEST(RawFields, EachTensorThatIsReadGetsANumber) {
  const std::string large(100000, 'w'), small = "abc";
  const auto tensor = [](const std::string& raw) {
    return field(8, "name") + field(9, raw) + varint(2 << 3) + varint(1);
  };
  const auto model = [&](const std::string& a, const std::string& b, const std::string& c) {
    return varint(1 << 3) + varint(8) +                                               // ir_version
           field(7, field(5, tensor(a)) + field(1, field(5, field(5, tensor(b))))) +  // initializer, node.attribute.t
           field(25, field(7, field(5, field(5, tensor(c)))));                        // function.node.attribute.t
  };
  const Bytes file = as_file(model(large, small, ""));
  const auto split = split_raw_fields(file);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->message, model(number_of(0), number_of(1), number_of(2)));
  ASSERT_EQ(split->data.size(), 3u);
  const auto first = raw_field(*split, number_of(0));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->size(), large.size());
  EXPECT_GE(first->data(), file.data());  // no copy
  EXPECT_LE(first->data() + first->size(), file.data() + file.size());
  EXPECT_EQ(raw_field(*split, number_of(1)).value().size(), 3u);
  EXPECT_EQ(raw_field(*split, number_of(2)).value().size(), 0u);
  EXPECT_FALSE(raw_field(*split, number_of(3)).ok());
  EXPECT_FALSE(raw_field(*split, "abc").ok());
}

// Field 9 of anything else is not raw data.
TEST(RawFields, OtherFieldsStayAsTheyAre) {
  const std::string model = field(9, "x") + field(7, field(9, "y") + field(2, "graph") + field(1, field(9, "z")));
  const auto split = split_raw_fields(as_file(model));
  ASSERT_TRUE(split);
  EXPECT_EQ(split->message, model);
  EXPECT_TRUE(split->data.empty());
}

TEST(RawFields, WhatIsNoMessageIsLeftToTheParser) {
  const std::string tensor = field(7, field(5, field(9, "data")));
  for (size_t cut = 1; cut < tensor.size(); ++cut)
    EXPECT_FALSE(split_raw_fields(as_file(tensor.substr(0, cut)))) << cut;
  EXPECT_FALSE(split_raw_fields(as_file(varint(3 << 3 | 3))));                  // a group
  EXPECT_FALSE(split_raw_fields(as_file(varint(1 << 3 | 1) + "1234567")));      // eight bytes, seven are there
  EXPECT_FALSE(split_raw_fields(as_file(std::string(12, '\xff'))));             // a varint without end
  EXPECT_FALSE(split_raw_fields(as_file(varint(7 << 3 | 2) + varint(~0ull))));  // longer than the file
}

}  // namespace
}  // namespace tessera
