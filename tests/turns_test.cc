// SPDX-License-Identifier: Apache-2.0
#include "testing/turns.h"

#include <gtest/gtest-spi.h>

#include <string>

namespace tessera {
namespace {

// Puts the variable back as it was.
class Asked {
 public:
  explicit Asked(const char* value) {
    const char* const now = std::getenv(kName);
    given_ = now != nullptr;
    if (given_) before_ = now;
    value == nullptr ? unsetenv(kName) : setenv(kName, value, 1);
  }
  ~Asked() { given_ ? setenv(kName, before_.c_str(), 1) : unsetenv(kName); }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

 private:
  static constexpr const char* kName = "TESSERA_TURNS";
  bool given_ = false;
  std::string before_;
};

int turns_asked(const char* value) {
  const Asked asked(value);
  return turns(400);
}

TEST(Turns, AreRaisedAndNeverLowered) {
  EXPECT_EQ(turns_asked(nullptr), 400);
  EXPECT_EQ(turns_asked("10000"), 10000);
  EXPECT_EQ(turns_asked("20"), 400);
}

TEST(Turns, WordsThatAreNoNumberFailTheTest) {
  for (const char* const word : {"", "many", "1e4", "-1", "0", "10000 ", "99999999999"}) {
    static const char* given;
    given = word;
    EXPECT_NONFATAL_FAILURE((void)turns_asked(given), "a number from 1 to 10000000 is wanted");
  }
}

}  // namespace
}  // namespace tessera
