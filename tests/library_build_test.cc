// SPDX-License-Identifier: Apache-2.0
// tess_build through the shared library: engines of paths and of arrays, progress, cancelling, refusals.
#include <gtest/gtest.h>
#include <tessera/tessera_build.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "testing/library_calls.h"

namespace tessera {
namespace {

const std::string kModel = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx";
const std::string kCalib = std::string(TS_SOURCE_DIR) + "/assets/digits/calib.npz";

struct Watch {
  std::atomic<int> calls{0}, stop_at{1 << 30};
  std::set<std::string> said;  // (one call at a time)
  std::string log;
};
int32_t watch(const char* what, int64_t done, int64_t total, void* user) {
  auto& w = *static_cast<Watch*>(user);
  EXPECT_LE(done, total) << what;
  w.said.insert(what);
  return ++w.calls >= w.stop_at ? 1 : 0;
}

tess_build_options fp8() {
  static const int64_t batches[] = {4};
  tess_build_options o{};
  o.size = sizeof(o), o.precision = "fp8", o.batches = batches, o.batch_count = 1;
  return o;
}

std::vector<float> answers(const std::string& path) {
  const Held<tess_engine> engine = open_file(path);
  const Held<tess_context> context = make_context(engine, "batch4");
  std::vector<float> x = digits_images(4), y(40);
  EXPECT_EQ(run_one(context.get(), x, {4, 1, 8, 8}, y, {4, 10}), TESS_OK);
  return y;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(LibraryBuild, FromAPathAndFromArrays) {
  const EngineFolder folder;
  const std::string a = folder.path() / "a.tess", b = folder.path() / "b.tess", again = folder.path() / "c.tess",
                    ours = folder.digits("fp8", "4");
  tess_build_options options = fp8();
  options.calib = kCalib.c_str();
  Watch seen;
  options.progress = &watch, options.user = &seen;
  testing::internal::CaptureStderr();
  ASSERT_OK(tess_build(kModel.c_str(), a.c_str(), &options));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(seen.said.contains("calibrating")) << "nothing was said of the progress";
  EXPECT_EQ(bytes_of(a), bytes_of(ours)) << "what the rooms build is what the library builds";
  // Other samples, as arrays: 32 images of the test set.
  std::vector<float> images = digits_images(32);
  HostTensor tensor(images, {32, 1, 8, 8});
  const tess_array array = {"image", &tensor.tensor};
  options.calib = nullptr, options.calib_arrays = &array, options.calib_array_count = 1;
  ASSERT_OK(tess_build(kModel.c_str(), b.c_str(), &options));
  ASSERT_OK(tess_build(kModel.c_str(), again.c_str(), &options));
  EXPECT_EQ(bytes_of(b), bytes_of(again)) << "the same arrays give the same bytes";
  EXPECT_NE(answers(a), answers(b)) << "the arrays were not what the scales were made from";
}

TEST(LibraryBuild, IsCancelledAndLeavesNothing) {
  const EngineFolder folder;
  const std::string out = folder.path() / "out.tess";
  tess_build_options options = fp8();
  options.calib = kCalib.c_str();
  for (const int at : {1, 2, 6}) {
    Watch seen;
    seen.stop_at = at;
    options.progress = &watch, options.user = &seen;
    EXPECT_EQ(code_of(tess_build(kModel.c_str(), out.c_str(), &options)), TESS_CANCELLED) << "at call " << at;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
  options.progress = nullptr;
  EXPECT_OK(tess_build(kModel.c_str(), out.c_str(), &options));
}

TEST(LibraryBuild, OneAtATime) {
  const EngineFolder folder;
  const std::string out = folder.path() / "out.tess", other = folder.path() / "other.tess";
  struct Meeting {
    std::atomic<bool> inside{false}, met{false};
  } meeting;
  tess_build_options options = fp8();
  options.calib = kCalib.c_str(), options.user = &meeting;
  options.progress = [](const char*, int64_t, int64_t, void* user) {
    auto& m = *static_cast<Meeting*>(user);
    m.inside = true;
    while (!m.met) std::this_thread::yield();
    return 0;
  };
  int first = -1;
  std::thread building([&] { first = code_of(tess_build(kModel.c_str(), out.c_str(), &options)); });
  while (!meeting.inside) std::this_thread::yield();
  tess_build_options second = fp8();
  second.calib = kCalib.c_str();
  EXPECT_EQ(code_of(tess_build(kModel.c_str(), other.c_str(), &second)), TESS_BUSY);
  meeting.met = true;
  building.join();
  EXPECT_EQ(first, TESS_OK);
}

TEST(LibraryBuild, WhatIsWrongIsSaid) {
  const EngineFolder folder;
  const std::string out = folder.path() / "out.tess";
  const auto build = [&](const tess_build_options& o, std::string* said = nullptr) {
    return code_of(tess_build(kModel.c_str(), out.c_str(), &o), said);
  };
  std::string said;
  EXPECT_EQ(code_of(tess_build(nullptr, out.c_str(), nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_build(kModel.c_str(), nullptr, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_build("no.onnx", out.c_str(), nullptr)), TESS_BAD_INPUT);
  tess_build_options o = fp8();
  o.precision = "mxfp8", o.target = "sm90";
  EXPECT_EQ(build(o, &said), TESS_REFUSED) << said;
  o = fp8(), o.precision = "fp9";
  EXPECT_EQ(build(o), TESS_USAGE);
  o = fp8(), o.target = "sm99";
  EXPECT_EQ(build(o), TESS_USAGE);
  const int64_t zero[] = {0}, twice[] = {2, 2};
  o = fp8(), o.batches = zero;
  EXPECT_EQ(build(o), TESS_USAGE);
  o.batches = twice, o.batch_count = 2;
  EXPECT_EQ(build(o), TESS_USAGE);
  o.batches = nullptr;
  EXPECT_EQ(build(o), TESS_USAGE);
  o = fp8(), o.size = 8;
  EXPECT_EQ(build(o), TESS_USAGE);
  std::vector<float> images = digits_images(4);
  HostTensor tensor(images, {4, 1, 8, 8});
  tess_array array = {"image", &tensor.tensor};
  o = fp8(), o.calib_arrays = &array, o.calib_array_count = 1, o.calib = kCalib.c_str();
  EXPECT_EQ(build(o), TESS_USAGE);
  o.calib = nullptr;
  tensor.tensor.dtype.bits = 7;
  EXPECT_EQ(build(o), TESS_BAD_INPUT);
  tensor.tensor.dtype.bits = 32, tensor.shape[0] = INT64_MAX;
  EXPECT_EQ(build(o), TESS_BAD_INPUT);
  tensor.shape[0] = 4, tensor.tensor.device.type = TESS_CUDA;
  EXPECT_EQ(build(o), TESS_BAD_INPUT);
  tensor.tensor.device.type = TESS_CPU, array.name = "picture";
  EXPECT_NE(build(o), TESS_OK) << "the model has no such input";
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace tessera
