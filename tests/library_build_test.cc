// SPDX-License-Identifier: Apache-2.0
// tess_build through the shared library: engines of paths and of arrays, progress, cancelling, refusals.
#include <gtest/gtest.h>
#include <tessera/tessera_build.h>

#include <atomic>
#include <cstdio>
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

TEST(LibraryBuild, WordsAreThoseOfTheCommand) {
  const EngineFolder folder;
  const std::string out = folder.path() / "out.tess";
  const char* const io[] = {"image=u8,std=0.5", nullptr};
  tess_build_options o{};
  o.size = sizeof(o), o.precision = "fp16", o.io = io, o.io_count = 1;
  ASSERT_OK(tess_build(kModel.c_str(), out.c_str(), &o));
  const Held<tess_engine> engine = open_file(out);
  tess_port_info port{};
  port.size = sizeof(port);
  ASSERT_OK(tess_port(engine.get(), 0, 0, 0, &port));
  EXPECT_STREQ(port.element, "u8");
  std::string said;
  o.io_count = 2;
  EXPECT_EQ(code_of(tess_build(kModel.c_str(), out.c_str(), &o), &said), TESS_USAGE);
  EXPECT_NE(said.find("io[1] is NULL"), std::string::npos) << said;
  o.io = nullptr;
  EXPECT_EQ(code_of(tess_build(kModel.c_str(), out.c_str(), &o)), TESS_USAGE);
  // A program that knows nothing of these fields: what lies behind its struct is not read.
  o.size = offsetof(tess_build_options, family), o.io_count = 99;
  EXPECT_OK(tess_build(kModel.c_str(), out.c_str(), &o));
  const int64_t seed = -1;
  o.size = sizeof(o), o.io_count = 0, o.seed = &seed;
  EXPECT_EQ(code_of(tess_build(kModel.c_str(), out.c_str(), &o)), TESS_USAGE);
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

TEST(LibraryBuild, RefusedLayersAreData) {
  const EngineFolder folder;
  const std::string out = folder.path() / "out.tess";
  tess_build_options o = fp8();
  o.precision = "mxfp8", o.target = "sm90";
  tess_status* const status = tess_build(kModel.c_str(), out.c_str(), &o);
  ASSERT_EQ(tess_status_code(status), TESS_REFUSED);
  const std::string sentence = tess_status_message(status);
  const size_t count = tess_refused_count(status);
  ASSERT_GT(count, 1u) << sentence;
  int matmuls = 0;
  for (size_t l = 0; l < count; ++l) {
    tess_refused_info layer{};
    layer.size = sizeof(layer);
    ASSERT_OK(tess_refused(status, l, &layer));
    EXPECT_NE(sentence.find(layer.layer), std::string::npos) << layer.layer;
    const std::string op = layer.op;
    EXPECT_STREQ(layer.asked, op == "matmul" ? "mxfp8" : "") << layer.layer;
    matmuls += op == "matmul" ? 1 : 0;
    ASSERT_GT(layer.refusals, 0u) << layer.layer;
    for (size_t r = 0; r < layer.refusals; ++r) {
      tess_refusal_info refusal{};
      refusal.size = sizeof(refusal);
      ASSERT_OK(tess_refusal(status, l, r, &refusal));
      EXPECT_EQ(std::string(refusal.kernel).find(op + "/"), 0u) << refusal.kernel;
      EXPECT_NE(sentence.find(refusal.kernel + std::string(": ") + refusal.reason), std::string::npos)
          << refusal.kernel;
    }
    tess_refusal_info none{};
    none.size = sizeof(none);
    EXPECT_EQ(code_of(tess_refusal(status, l, layer.refusals, &none)), TESS_USAGE);
  }
  EXPECT_GT(matmuls, 0);
  tess_refused_info none{};
  none.size = sizeof(none);
  EXPECT_EQ(code_of(tess_refused(status, count, &none)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_refused(nullptr, 0, &none)), TESS_USAGE);
  none.size = 8;
  EXPECT_EQ(code_of(tess_refused(status, 0, &none)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_refused(status, 0, nullptr)), TESS_USAGE);
  EXPECT_EQ(tess_refused_count(nullptr), 0u);
  tess_status_free(status);
  tess_status* const other = tess_build("no.onnx", out.c_str(), nullptr);
  EXPECT_EQ(tess_refused_count(other), 0u);
  tess_status_free(other);
}

// What the program prints for the same words.
std::string printed(const std::string& words) {
  std::string text;
  FILE* const pipe = popen((std::string(TS_PROGRAM) + " " + words + " 2>/dev/null").c_str(), "r");
  char piece[4096];
  while (pipe != nullptr && std::fgets(piece, sizeof(piece), pipe) != nullptr) text += piece;
  if (pipe != nullptr) pclose(pipe);
  return text;
}

std::string text_of(tess_report* report) {
  std::string text = tess_report_json(report);
  tess_report_free(report);
  return text + "\n";
}

TEST(LibraryBuild, ReportsAreThoseOfTheCommands) {
  const EngineFolder folder;
  const std::string engine = folder.digits("fp8", "4");
  tess_report* report = nullptr;
  ASSERT_OK(tess_inspect(engine.c_str(), 1, &report));
  EXPECT_EQ(text_of(report), printed("inspect " + engine + " --json --scales"));
  ASSERT_OK(tess_inspect(engine.c_str(), 0, &report));
  EXPECT_EQ(text_of(report), printed("inspect " + engine + " --json"));

  tess_verify_options v{};
  v.size = sizeof(v), v.kinds = "normal,small", v.samples = 3, v.seed = 5, v.model = kModel.c_str();
  Watch seen;
  v.progress = &watch, v.user = &seen;
  ASSERT_OK(tess_verify(engine.c_str(), &v, &report));
  EXPECT_EQ(text_of(report),
            printed("verify " + engine + " --json --kinds normal,small --samples 3 --seed 5 --model " + kModel));
  EXPECT_TRUE(seen.said.contains("verifying")) << "nothing was said of the progress";

  tess_sensitivity_options s{};
  s.size = sizeof(s), s.precision = "nvfp4", s.calib = kCalib.c_str(), s.calib_samples = 8;
  ASSERT_OK(tess_sensitivity(kModel.c_str(), &s, &report));
  EXPECT_EQ(text_of(report),
            printed("sensitivity " + kModel + " --json --precision nvfp4 --samples 8 --calib " + kCalib));
}

// How the model is read goes by the same words as in a build.
TEST(LibraryBuild, SensitivityReadsTheModelAsABuildDoes) {
  tess_report* report = nullptr;
  std::string said;
  tess_sensitivity_options s{};
  s.size = sizeof(s), s.precision = "fp8", s.calib = kCalib.c_str(), s.calib_samples = 2;
  const char* io[] = {"logits=fp16"};
  s.io = io, s.io_count = 1;
  ASSERT_OK(tess_sensitivity(kModel.c_str(), &s, &report));
  EXPECT_EQ(text_of(report), printed("sensitivity " + kModel + " --json --precision fp8 --samples 2 --io " + io[0] +
                                     " --calib " + kCalib));
  const auto refused = [&](const char* naming) {
    EXPECT_EQ(code_of(tess_sensitivity(kModel.c_str(), &s, &report), &said), TESS_USAGE);
    EXPECT_NE(said.find(naming), std::string::npos) << said;
  };
  io[0] = "logits=u9";
  refused("--io");
  io[0] = nullptr;
  refused("io[0] is NULL");
  s.io_count = 0;
  const char* words[] = {"image"};
  s.shapes = words, s.shape_count = 1;
  refused("--shape");
  s.shape_count = 0, s.states = words, s.state_count = 1;
  refused("--state");
  s.state_count = 0, s.sizes = words, s.size_count = 1;
  refused("--size");
  s.size_count = 0, s.family = "nobody";
  refused("nobody");
  const int64_t seed = -1;
  s.family = nullptr, s.random = &seed;
  refused("random is -1");
  // Of a program that knows none of them.
  s.size = offsetof(tess_sensitivity_options, family);
  ASSERT_OK(tess_sensitivity(kModel.c_str(), &s, &report));
  tess_report_free(report);
}

TEST(LibraryBuild, AnEngineThatStraysHasAReport) {
  const EngineFolder folder;
  const std::string engine = folder.digits("fp8", "4");
  tess_verify_options v{};
  v.size = sizeof(v), v.min_cosine = 0.9999999;
  tess_report* report = nullptr;
  std::string said;
  EXPECT_EQ(code_of(tess_verify(engine.c_str(), &v, &report), &said), TESS_VERIFY_FAILED) << said;
  const std::string text = text_of(report);
  EXPECT_NE(text.find("\"ok\": false"), std::string::npos);
  EXPECT_EQ(text, printed("verify " + engine + " --json --min-cosine 0.9999999"));
  // Whatever else is wrong has none.
  const auto verify = [&](const char* path) {
    report = reinterpret_cast<tess_report*>(&said);
    const int code = code_of(tess_verify(path, &v, &report));
    EXPECT_EQ(report, nullptr);
    return code;
  };
  v.min_cosine = 0, v.kinds = "loud";
  EXPECT_EQ(verify(engine.c_str()), TESS_USAGE);
  v.kinds = "normal", v.inputs = kCalib.c_str();
  EXPECT_EQ(verify(engine.c_str()), TESS_USAGE);
  v.kinds = nullptr, v.samples = -1;
  EXPECT_EQ(verify(engine.c_str()), TESS_USAGE);
  v.samples = 0, v.min_cosine = 1.5;
  EXPECT_EQ(verify(engine.c_str()), TESS_USAGE);
  v.min_cosine = 0, v.inputs = nullptr;
  EXPECT_EQ(verify("no.tess"), TESS_BAD_INPUT);
  EXPECT_EQ(verify(nullptr), TESS_USAGE);
  Watch seen;
  seen.stop_at = 2;
  v.progress = &watch, v.user = &seen;
  EXPECT_EQ(verify(engine.c_str()), TESS_CANCELLED);
  tess_sensitivity_options s{};
  s.size = sizeof(s), s.precision = "nvfp4";
  EXPECT_EQ(code_of(tess_sensitivity(kModel.c_str(), &s, &report)), TESS_USAGE) << "no samples";
  s.calib = kCalib.c_str(), s.precision = nullptr;
  EXPECT_EQ(code_of(tess_sensitivity(kModel.c_str(), &s, &report)), TESS_USAGE) << "no precision";
  s.precision = "fp16";
  EXPECT_EQ(code_of(tess_sensitivity(kModel.c_str(), &s, &report)), TESS_USAGE) << "it has no scales";
  s.precision = "nvfp4", s.progress = &watch, s.user = &seen;
  EXPECT_EQ(code_of(tess_sensitivity(kModel.c_str(), &s, &report)), TESS_CANCELLED);
}

}  // namespace
}  // namespace tessera
