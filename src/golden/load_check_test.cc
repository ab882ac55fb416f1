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

}  // namespace
}  // namespace tessera
