// SPDX-License-Identifier: Apache-2.0
// Plans without golden values: weights that no load has looked at must be whole before the plan serves.
#include <gtest/gtest.h>

#include "base/checksum.h"
#include "golden/load_check.h"
#include "runtime/test_engine.h"

namespace tessera {
namespace {

// Plan "main" reads constant 0, "other" constant 1; a file has checksums of both.
Engine two_plans() {
  Engine e = remembering_engine(Arch::cpu, 3, 5);
  e.constants.push_back({"other", e.constants[0].data});
  e.plans.push_back(e.plans[0]);
  e.plans[1].name = "other";
  for (PlanTensor& t : e.plans[1].tensors) {
    if (t.storage == Storage::kConstant) t.index = 1;
  }
  for (EngineConstant& c : e.constants) c.checksum = checksum64(c.data.span());
  return e;
}

TEST(LoadCheck, DamagedWeightsOfAPlanWithoutGoldenValuesAreRefused) {
  Engine e = two_plans();
  e.constants[1].checksum = *e.constants[1].checksum ^ 1;
  CheckedConstants checked;
  EXPECT_TRUE(require_golden(e, e.plans[0], checked).ok()) << "it does not read what is damaged";
  const Status refused = require_golden(e, e.plans[1], checked);
  EXPECT_EQ(refused.code(), Code::kBadInput);
  EXPECT_EQ(refused.message(), "constant 'other' (60 bytes) does not match its checksum: the file is damaged");
  EXPECT_FALSE(require_golden(e, e.plans[1], checked).ok()) << "and again";
}

TEST(LoadCheck, EachConstantIsReadOnce) {
  Engine e = two_plans();
  CheckedConstants checked;
  ASSERT_TRUE(require_golden(e, e.plans[0], checked).ok());
  e.constants[0].checksum = 0;  // would be refused, were it read again
  EXPECT_TRUE(require_golden(e, e.plans[0], checked, {.threads = 2}).ok());
  CheckedConstants anew;
  EXPECT_FALSE(require_golden(e, e.plans[0], anew, {.threads = 2}).ok());
}

// Of a smaller bucket's golden inputs, which were cut from arrays for a larger one: kernels have clamped the number.
TEST(LoadCheck, GoldenLengthsAreThoseThatKernelsRead) {
  Engine e = remembering_engine(Arch::cpu, 1, 2);
  Plan& p = e.plans[0];
  p.tensors = {test_tensor("cache", {1, 4, 2}, Storage::kInput, 0), test_tensor("x", {1, 1, 2}, Storage::kInput, 1),
               test_tensor("at", {1}, Storage::kInput, 2), test_tensor("after", {1, 4, 2}, Storage::kOutput, 0)};
  p.tensors[2].desc = dense_operand({1}, Element::i32);
  p.inputs = {{"cache", 0}, {"x", 1}, {"at", 2}}, p.outputs = {{"after", 3}};
  p.steps = {{.layer = "write", .op = "write", .variant = "write/cpu", .in = {0, 1, 2}, .out = {3}}};
  p.steps[0].attrs.set("axis", int64_t{1});
  const auto tensor = [&](size_t i, auto number) {
    const Operand& desc = p.tensors[i].desc;
    const std::vector<decltype(number)> numbers(static_cast<size_t>(elements(desc.shape)), number);
    Buffer data(numbers.size() * sizeof(number));
    std::memcpy(data.data(), numbers.data(), data.size());
    return GoldenTensor{p.tensors[i].name, desc.shape, desc.type, Bytes::own(std::move(data))};
  };
  for (const auto& [given, read] : {std::pair{9, 3}, {-1, 0}, {2, 2}}) {
    e.golden.inputs = {tensor(0, 1.0f), tensor(1, 5.0f), tensor(2, int32_t{given})};
    const Samples samples = golden_samples(e, p);
    int32_t at = 0;
    std::memcpy(&at, samples.data[2].data(), sizeof(at));
    EXPECT_EQ(at, read);
    EXPECT_EQ(std::memcmp(samples.data[1].data(), e.golden.inputs[1].data.data(), 8), 0);
  }
}

}  // namespace
}  // namespace tessera
