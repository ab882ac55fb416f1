// SPDX-License-Identifier: Apache-2.0
// tessera.hpp and tessera_build.hpp beside no other header of ours, as a program has them: refusals as data, the log,
// runs that are watched, sessions and states, builds and reports.
#include <gtest/gtest.h>
#include <unistd.h>
#include <tessera/tessera_build.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "testing/session_engine.h"

namespace {

tess_status* refused_build() {
  tess_build_options options{};
  options.size = sizeof(options), options.precision = "mxfp8", options.target = "sm90";
  const std::string model = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx";
  return tess_build(model.c_str(), "no_such_folder/out.tess", &options);
}

void check(const std::string& sentence, const std::vector<tessera::RefusedLayer>& layers) {
  ASSERT_GT(layers.size(), 1u) << sentence;
  int matmuls = 0;
  for (const tessera::RefusedLayer& layer : layers) {
    EXPECT_NE(sentence.find(layer.layer), std::string::npos) << layer.layer;
    matmuls += layer.op == "matmul" && layer.asked == "mxfp8" ? 1 : 0;
    ASSERT_FALSE(layer.refusals.empty()) << layer.layer;
    for (const tessera::Refusal& r : layer.refusals)
      EXPECT_NE(sentence.find(r.kernel + ": " + r.reason), std::string::npos) << r.kernel;
  }
  EXPECT_GT(matmuls, 0);
}

TEST(LibraryCpp, AStatusHasItsRefusedLayers) {
  const tessera::Status status(refused_build());
  ASSERT_EQ(status.code(), TESS_REFUSED);
  check(status.message(), status.layers());
  const tessera::Status copy = status;
  check(copy.message(), copy.layers());
  EXPECT_TRUE(tessera::Status(TESS_USAGE, "x").layers().empty());
}

TEST(LibraryCpp, AnErrorHasThem) {
  tessera::Result<int> none{tessera::Status(refused_build())};
  try {
    none.value();
    FAIL() << "nothing was thrown";
  } catch (const tessera::Error& e) {
    EXPECT_EQ(e.code(), TESS_REFUSED);
    check(e.what(), e.layers());
  }
}

class LibraryCppSession : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  tessera::Engine open() const { return tessera::Engine::open(tessera::session_engine(folder_)).value(); }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tessera_cpp_" + std::to_string(getpid()));
};

constexpr size_t kCols = 5;
float weight(size_t i) { return static_cast<float>(1 + i % 7); }

// A run of so many rows that begin with `first`; y = x + 10 w.
struct Call {
  explicit Call(int64_t rows, float first) : x(static_cast<size_t>(rows) * kCols), shape({1, rows, kCols}) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = first + static_cast<float>(i);
    y.assign(x.size(), -1), echo.assign(x.size(), -1);
  }
  tessera::Status run(tessera::Session& session, bool enqueued = false) {
    tessera::View in = tessera::view(x.data(), shape, tessera::f32), out = tessera::view(y.data(), shape, tessera::f32),
                  echoed = tessera::view(echo.data(), shape, tessera::f32);
    return enqueued ? session.enqueue({&in}, {&echoed, &out}, nullptr) : session.run({&in}, {&echoed, &out});
  }
  void check() const {
    EXPECT_EQ(echo, x);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] + 10 * weight(i)) << i;
  }
  std::vector<float> x, y, echo;
  std::vector<int64_t> shape;
};

TEST_F(LibraryCppSession, RunsAndEnqueues) {
  const tessera::Engine engine = open();
  tessera::Session session = engine.session().value();
  const auto inputs = session.inputs(), outputs = session.outputs();
  ASSERT_EQ(inputs.value().size(), 1u);
  ASSERT_EQ(outputs.value().size(), 2u);
  EXPECT_EQ(inputs.value()[0].name, "x");
  EXPECT_EQ(outputs.value()[1].name, "y");
  EXPECT_EQ(inputs.value()[0].shape, (std::vector<int64_t>{1, tessera::kMostRows, kCols}));
  for (const bool enqueued : {false, true, false}) {
    Call call(tessera::kMostRows, 3);
    const tessera::Status ran = call.run(session, enqueued);
    ASSERT_TRUE(ran.ok()) << ran.message();
    call.check();
  }
  Call other(tessera::kFewRows, 1);
  EXPECT_EQ(other.run(session).code(), TESS_BAD_INPUT);
}

TEST_F(LibraryCppSession, UsesOtherPlans) {
  const tessera::Engine engine = open();
  tessera::Session session = engine.session({.cases = {{"begin", "begin.rows2"}, {"step", "step.rows2"}}}).value();
  for (const int64_t rows : {tessera::kFewRows, tessera::kMostRows, tessera::kFewRows}) {
    const std::string end = ".rows" + std::to_string(rows), begin = "begin" + end, step = "step" + end;
    const tessera::Status used = session.use({{"begin", begin.c_str()}, {"step", step.c_str()}});
    ASSERT_TRUE(used.ok()) << used.message();
    EXPECT_EQ(session.inputs().value()[0].shape[1], rows);
    Call call(rows, 5);
    ASSERT_TRUE(call.run(session).ok());
    call.check();
  }
  EXPECT_EQ(session.use({{"begin", "begin.rows9"}}).code(), TESS_BAD_INPUT);
  Call call(tessera::kFewRows, 5);
  ASSERT_TRUE(call.run(session).ok()) << "it goes on as before";
  call.check();
}

// A context of `step` over the state of a session goes on from there; clear() begins anew.
TEST_F(LibraryCppSession, SharesAState) {
  const tessera::Engine engine = open();
  tessera::State state = engine.state().value();
  tessera::Session session = engine.session({.state = &state}).value(), alone = engine.session().value();
  tessera::Context step = engine.context({.plan = "step.rows4", .state = &state}).value();
  Call call(tessera::kMostRows, 3), other(tessera::kMostRows, 9);
  ASSERT_TRUE(call.run(session).ok());
  ASSERT_TRUE(other.run(alone).ok());
  std::vector<float> y(call.x.size());
  tessera::View out = tessera::view(y.data(), call.shape, tessera::f32);
  ASSERT_TRUE(step.run({nullptr}, {nullptr, &out}).ok());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], call.x[i] + 11 * weight(i));
  ASSERT_TRUE(state.clear().ok());
  ASSERT_TRUE(step.run({nullptr}, {nullptr, &out}).ok());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], weight(i));
  ASSERT_TRUE(session.clear().ok());
  ASSERT_TRUE(step.run({nullptr}, {nullptr, &out}).ok());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], weight(i));
}

TEST_F(LibraryCppSession, IsBusyOrEnded) {
  const tessera::Engine engine = open();
  tessera::Session session = engine.session().value();
  int busy = 0, stop_after = 100;
  const auto go_on = [&] {
    std::thread([&] {
      Call call(tessera::kMostRows, 1);
      busy += call.run(session).busy() ? 1 : 0;
      if (busy == stop_after) {
        EXPECT_TRUE(session.cancel().ok());
      }
    }).join();
    return true;
  };
  ASSERT_TRUE(session.watch(go_on).ok());
  Call call(tessera::kMostRows, 3);
  ASSERT_TRUE(call.run(session).ok());
  call.check();
  EXPECT_EQ(busy, 2 + 10 * 3);
  busy = 0, stop_after = 4;
  EXPECT_EQ(call.run(session).code(), TESS_CANCELLED);
}

TEST(LibraryCpp, AConstResultHasItsValue) {
  const tessera::Result<std::string> some(std::string("text")), none(tessera::Status(TESS_USAGE, "no"));
  static_assert(std::is_same_v<decltype(some.value()), const std::string&>);
  EXPECT_EQ(some.value(), "text");
  EXPECT_THROW(none.value(), tessera::Error);
}

const std::string kModel = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx";

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("library_cpp_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return path_ / name; }

 private:
  const std::filesystem::path path_;
};

// With the options of a build that is made here.
std::string built(const Folder& folder, const tessera::BuildOptions& options) {
  std::string path = folder / "built.tess";
  const tessera::Status s = tessera::build(kModel, path, options);
  EXPECT_TRUE(s.ok()) << s.message();
  return path;
}

TEST(LibraryCpp, TheLogIsHeard) {
  const Folder folder;
  tessera::BuildOptions options;
  options.precision = "fp16", options.verify = false;
  const std::string path = built(folder, options);
  std::vector<std::string> heard;
  auto alive = std::make_shared<int>(0);
  tessera::set_log([&heard, alive](int level, const std::string& line) {
    if (level == TESS_LOG_WARNING) heard.push_back(line);
  });
  EXPECT_TRUE(tessera::Engine::open(path).ok());
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_NE(heard[0].find("golden values"), std::string::npos) << heard[0];
  EXPECT_EQ(alive.use_count(), 2);
  tessera::set_log({});
  EXPECT_EQ(alive.use_count(), 1) << "the function is kept";
  EXPECT_TRUE(tessera::Engine::open(path).ok());
  EXPECT_EQ(heard.size(), 1u);
}

TEST(LibraryCpp, ARunIsWatched) {
  const Folder folder;
  tessera::BuildOptions options;
  options.precision = "fp16", options.batch = {8};
  auto engine = tessera::Engine::open(built(folder, options)).value();
  auto made = engine.context({"batch8"}).value();
  std::vector<float> x(512), y(80);
  auto in = tessera::view(x.data(), {8, 1, 8, 8}), out = tessera::view(y.data(), {8, 10});
  int asked = 0;
  auto alive = std::make_shared<int>(0);
  ASSERT_TRUE(made.watch([&asked, alive] { return ++asked < 3; }).ok());
  tessera::Context context = std::move(made);  // the function is found where the handle is
  EXPECT_EQ(context.run({&in}, {&out}).code(), TESS_CANCELLED);
  EXPECT_EQ(asked, 3);
  ASSERT_TRUE(context.watch({}).ok());
  EXPECT_EQ(alive.use_count(), 1) << "the function is kept";
  EXPECT_TRUE(context.run({&in}, {&out}).ok());
  EXPECT_EQ(asked, 3);
}

TEST(LibraryCpp, BuildsAndReports) {
  const Folder folder;
  std::vector<float> images(32 * 64);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i % 17) / 17;
  const tessera::Samples samples{"image", tessera::view(images.data(), {32, 1, 8, 8})};
  tessera::BuildOptions options;
  options.precision = "fp8", options.batch = {1, 4}, options.calib_arrays = {samples}, options.seed = 0;
  int told = 0;
  options.progress = [&](const std::string& what, int64_t done, int64_t total) {
    EXPECT_FALSE(what.empty());
    EXPECT_LE(done, total);
    return ++told > 0;
  };
  const std::string path = built(folder, options);
  EXPECT_GT(told, 0);
  auto json = tessera::inspect(path);
  ASSERT_TRUE(json.ok());
  EXPECT_NE(json.value().find("\"batch4\""), std::string::npos);
  EXPECT_EQ(tessera::inspect(path + ".none").status().code(), TESS_BAD_INPUT);
  const tessera::Report report = tessera::verify(path, {.inputs = "", .input_arrays = {samples}});
  EXPECT_TRUE(report.status.ok()) << report.status.message();
  EXPECT_NE(report.json.find("\"ok\""), std::string::npos);
  tessera::SensitivityOptions ranking;
  ranking.precision = "fp8", ranking.calib_arrays = {samples};
  const tessera::Report ranked = tessera::sensitivity(kModel, ranking);
  EXPECT_TRUE(ranked.status.ok()) << ranked.status.message();
  EXPECT_NE(ranked.json.find("layers"), std::string::npos);
  ranking.io = {"image=u9"};
  EXPECT_NE(tessera::sensitivity(kModel, ranking).status.message().find("u9"), std::string::npos);
  options.progress = [](const std::string&, int64_t, int64_t) { return false; };
  EXPECT_EQ(tessera::build(kModel, path, options).code(), TESS_CANCELLED);
  options.io = {"image=u9"};
  const tessera::Status wrong = tessera::build(kModel, path, options);
  EXPECT_EQ(wrong.code(), TESS_USAGE);
  EXPECT_NE(wrong.message().find("u9"), std::string::npos) << wrong.message();
}

}  // namespace
