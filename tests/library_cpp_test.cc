// SPDX-License-Identifier: Apache-2.0
// tessera.hpp beside no other header of ours, as a program has it: refusals as data, sessions and states.
#include <gtest/gtest.h>
#include <tessera/tessera_build.h>
#include <tessera/tessera.hpp>

#include <unistd.h>

#include <filesystem>
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
  struct Watched {
    tessera::Session& session;
    int busy, stop_after;
  } w{session, 0, 100};
  const auto go_on = [](void* user) -> int32_t {
    auto& watched = *static_cast<Watched*>(user);
    std::thread([&] {
      Call call(tessera::kMostRows, 1);
      watched.busy += call.run(watched.session).busy() ? 1 : 0;
      if (watched.busy != watched.stop_after) return;
      EXPECT_TRUE(watched.session.cancel().ok());
    }).join();
    return 1;
  };
  ASSERT_TRUE(session.watch(go_on, &w).ok());
  Call call(tessera::kMostRows, 3);
  ASSERT_TRUE(call.run(session).ok());
  call.check();
  EXPECT_EQ(w.busy, 2 + 10 * 3);
  w.busy = 0, w.stop_after = 4;
  EXPECT_EQ(call.run(session).code(), TESS_CANCELLED);
}

TEST(LibraryCpp, AConstResultHasItsValue) {
  const tessera::Result<std::string> some(std::string("text")), none(tessera::Status(TESS_USAGE, "no"));
  static_assert(std::is_same_v<decltype(some.value()), const std::string&>);
  EXPECT_EQ(some.value(), "text");
  EXPECT_THROW(none.value(), tessera::Error);
}

}  // namespace
