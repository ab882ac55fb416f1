// SPDX-License-Identifier: Apache-2.0
#include "ir/derived_constants.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ir/graph.h"

namespace tessera {
namespace {

Buffer filled(size_t bytes, uint8_t with) {
  Buffer b(bytes);
  std::memset(b.data(), with, bytes);
  return b;
}

class Counted {
 public:
  explicit Counted(size_t bytes) : bytes_(bytes) {}
  DerivedConstants::Make make() {
    return [this]() -> Result<std::vector<Buffer>> {
      std::vector<Buffer> one;
      one.push_back(filled(bytes_, static_cast<uint8_t>(++calls)));
      return one;
    };
  }
  int calls = 0;

 private:
  size_t bytes_;
};

TEST(DerivedConstants, OnceForEachRecipeAndInput) {
  DerivedConstants derived;
  Counted counted(size_t{3} << 20);
  const Bytes a = Bytes::own(filled(1 << 20, 1)), b = Bytes::own(filled(1 << 20, 1));
  const auto first = derived.once("x", {&a, 1}, counted.make());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(derived.once("x", {&a, 1}, counted.make()).value()[0].data(), (*first)[0].data());
  EXPECT_EQ(counted.calls, 1);
  ASSERT_TRUE(derived.once("y", {&a, 1}, counted.make()).ok());  // another recipe
  ASSERT_TRUE(derived.once("x", {&b, 1}, counted.make()).ok());  // other bytes, though equal ones
  EXPECT_EQ(counted.calls, 3);
  EXPECT_EQ(derived.made(), 3);
  EXPECT_EQ(derived.found(), 1);
  for (const uint8_t byte : (*first)[0].span()) ASSERT_EQ(byte, 1);
}

TEST(DerivedConstants, SmallInputsAreToldByWhatTheyHold) {
  DerivedConstants derived;
  Counted counted(16);
  const Bytes large = Bytes::own(filled(1 << 20, 1));
  for (const uint8_t number : {uint8_t{7}, uint8_t{7}, uint8_t{8}}) {
    const Bytes from[] = {large, Bytes::own(filled(4, number))};
    ASSERT_TRUE(derived.once("times", from, counted.make()).ok());
  }
  EXPECT_EQ(counted.calls, 2);
}

TEST(DerivedConstants, AFailureIsNotKept) {
  DerivedConstants derived;
  const Bytes a = Bytes::own(filled(1 << 20, 1));
  const DerivedConstants::Make fails = []() -> Result<std::vector<Buffer>> { return bad_input("no"); };
  EXPECT_FALSE(derived.once("x", {&a, 1}, fails).ok());
  Counted counted(1);
  EXPECT_TRUE(derived.once("x", {&a, 1}, counted.make()).ok());
}

TEST(DerivedConstants, BytesOutliveTheObject) {
  Bytes kept;
  {
    DerivedConstants derived;
    kept = derived.keep(filled(size_t{2} << 20, 9));
  }
  for (const uint8_t byte : kept.span()) ASSERT_EQ(byte, 9);
}

}  // namespace
}  // namespace tessera
