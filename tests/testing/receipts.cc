// SPDX-License-Identifier: Apache-2.0
#include "testing/receipts.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "ops/receipts.h"

namespace tessera {
namespace {

struct Tally {
  int tests = 0;
  double worst = 0;
};
std::map<std::string, std::map<std::string, Tally>>& tallies() {
  static std::map<std::string, std::map<std::string, Tally>> all;  // variant -> suite
  return all;
}

void merge_into(nlohmann::json& file) {
  for (const auto& [variant, suites] : tallies()) {
    nlohmann::json& entry = file[variant];
    const std::string hash(source_hash(variant)), compiler(device_compiler());
    if (!entry.is_object() || entry.value("hash", "") != hash || entry.value("compiler", "") != compiler)
      entry = {{"hash", hash}, {"compiler", compiler}, {"suites", nlohmann::json::object()}};
    bool failed = false;
    for (const auto& [suite, tally] : suites) {
      failed |= !(tally.worst <= 1);
      entry["suites"][suite] = {{"tests", tally.tests}, {"worst_error", tally.worst}};
    }
    if (failed) {
      file.erase(variant);
      continue;
    }
    int tests = 0;
    double worst = 0;
    for (const auto& [suite, tally] : entry["suites"].items()) {
      tests += tally.value("tests", 0);
      worst = std::max(worst, tally.value("worst_error", 0.0));
    }
    entry["tests"] = tests;
    entry["worst_error"] = worst;
  }
}

class WriteReceipts : public ::testing::Environment {
 public:
  void TearDown() override {
    const char* path = std::getenv("TESSERA_RECEIPTS");
    if (path == nullptr || tallies().empty()) return;
    nlohmann::json file = nlohmann::json::object();
    if (std::ifstream in(path); in) file = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    if (!file.is_object()) file = nlohmann::json::object();
    merge_into(file);
    const Status written = write_file(path, file.dump(2) + "\n");
    EXPECT_TRUE(written.ok()) << written.message();
  }
};
[[maybe_unused]] const auto* const kAtTheEnd = ::testing::AddGlobalTestEnvironment(new WriteReceipts);

}  // namespace

void record_receipt(const Variant& variant, double worst_error) {
  if (info(variant.arch).device != DeviceKind::kCuda) return;
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  Tally& t = tallies()[variant.name][test->test_suite_name() + std::string(".") + test->name()];
  ++t.tests;
  t.worst = std::max(t.worst, worst_error == worst_error ? worst_error : 2.0);
}

}  // namespace tessera
