// SPDX-License-Identifier: Apache-2.0
// The C ABI with arguments that are wrong: each is answered with a status and a sentence, nothing is written, and the
// next right call is served.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "plan/engine_file.h"
#include "runtime/test_engine.h"
#include "testing/library_calls.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 3, kCols = 5;
constexpr size_t kCount = kRows * kCols;

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class LibraryHostile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.write(remembering_engine(Arch::cpu, kRows, kCols), "e.tess");
    engine_ = open_file(path_);
    context_ = make_context(engine_, "main");
    ASSERT_NE(context_, nullptr);
  }
  // Runs with what `spoil` leaves of right tensors; `message` is the sentence.
  int run_spoiled(const std::function<void(tess_tensor& x, tess_tensor& y)>& spoil, std::string& message) {
    std::vector<float> x(4 * kCount, 7), y(4 * kCount, kPoison), before(4 * kCount, kPoison);
    HostTensor in(x, {kRows, kCols}), out(y, {kRows, kCols}), last(before, {kRows, kCols});
    spoil(in.tensor, out.tensor);
    const tess_tensor* ins[] = {&in.tensor};
    tess_tensor* outs[] = {&out.tensor, &last.tensor};
    const int code = code_of(tess_run(context_.get(), ins, 1, outs, 2), &message);
    if (code != TESS_OK) {
      EXPECT_EQ(y, std::vector<float>(4 * kCount, kPoison)) << "something was written";
      EXPECT_EQ(before, std::vector<float>(4 * kCount, kPoison)) << "something was written";
    }
    return code;
  }

  static constexpr float kPoison = -12345;
  EngineFolder folder_;
  std::string path_;
  Held<tess_engine> engine_;
  Held<tess_context> context_;
};

TEST_F(LibraryHostile, NothingWhereSomethingIsNeeded) {
  tess_engine* engine = nullptr;
  tess_context* context = nullptr;
  tess_session* session = nullptr;
  tess_state* state = nullptr;
  tess_port_info port{};
  size_t count = 0;
  const char* json = nullptr;
  EXPECT_EQ(code_of(tess_engine_open(nullptr, nullptr, &engine)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_engine_open(path_.c_str(), nullptr, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_engine_open_bytes(nullptr, 5, nullptr, &engine)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_engine_manifest(nullptr, &json)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_engine_manifest(engine_.get(), nullptr)), TESS_USAGE);
  EXPECT_EQ(tess_plan_count(nullptr), 0u);
  EXPECT_EQ(code_of(tess_plan(nullptr, 0, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_plan(engine_.get(), 0, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_port(nullptr, 0, 0, 0, &port)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_state_make(nullptr, 0, &state)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_state_make(engine_.get(), 0, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_state_clear(nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_memory_needed(engine_.get(), nullptr, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_context_make(nullptr, nullptr, &context)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_context_make(engine_.get(), nullptr, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_context_port(nullptr, 0, 0, &port)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_output_shape(nullptr, nullptr, 0, 0, nullptr, 0)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_output_shape(context_.get(), nullptr, 0, 0, nullptr, 0)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_run(nullptr, nullptr, 0, nullptr, 0)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_run(context_.get(), nullptr, 1, nullptr, 2)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_enqueue(nullptr, nullptr, 0, nullptr, 0, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_cancel(nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_session_make(nullptr, nullptr, &session)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_session_use(nullptr, nullptr, 0)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_session_port_count(nullptr, 0, &count)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_session_port(nullptr, 0, 0, &port)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_session_run(nullptr, nullptr, 0, nullptr, 0)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_session_enqueue(nullptr, nullptr, 0, nullptr, 0, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_session_clear(nullptr)), TESS_USAGE);
  tess_engine_free(nullptr), tess_context_free(nullptr), tess_session_free(nullptr), tess_state_free(nullptr);
  tess_status_free(nullptr);
  EXPECT_EQ(tess_status_code(nullptr), TESS_OK);
  EXPECT_STREQ(tess_status_message(nullptr), "");
}

TEST_F(LibraryHostile, NumbersBeyondTheirRange) {
  tess_plan_info plan{};
  plan.size = sizeof(plan);
  tess_port_info port{};
  port.size = sizeof(port);
  EXPECT_EQ(code_of(tess_plan(engine_.get(), 1, &plan)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_plan(engine_.get(), SIZE_MAX, &plan)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_port(engine_.get(), 0, 0, 1, &port)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_port(engine_.get(), 7, 0, 0, &port)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_context_port(context_.get(), 1, 2, &port)), TESS_USAGE);
  tess_context* context = nullptr;
  tess_context_options options{};
  options.size = sizeof(options), options.plan = "main";
  for (const int threads : {-1, 1 << 20}) {
    options.threads = threads;
    EXPECT_EQ(code_of(tess_context_make(engine_.get(), &options, &context)), TESS_USAGE);
  }
  tess_session* session = nullptr;
  tess_session_options wide{};
  wide.size = sizeof(wide), wide.threads = 1 << 20;
  EXPECT_EQ(code_of(tess_session_make(engine_.get(), &wide, &session)), TESS_USAGE);
  wide.threads = 0, wide.device = -1;
  EXPECT_EQ(code_of(tess_session_make(engine_.get(), &wide, &session)), TESS_USAGE);
  tess_state* state = nullptr;
  EXPECT_EQ(code_of(tess_state_make(engine_.get(), -1, &state)), TESS_USAGE);
  options.threads = 0, options.plan = "batch77";
  std::string said;
  EXPECT_EQ(code_of(tess_context_make(engine_.get(), &options, &context), &said), TESS_BAD_INPUT);
  EXPECT_EQ(said, "the engine has no plan 'batch77'; it has 'main'");
  options.plan = nullptr, options.graph = "other";
  EXPECT_EQ(code_of(tess_context_make(engine_.get(), &options, &context)), TESS_BAD_INPUT);
  EXPECT_EQ(context, nullptr);
}

TEST_F(LibraryHostile, StructsOfOtherSizes) {
  tess_context* context = nullptr;
  struct {
    tess_context_options options;
    uint64_t later;
  } newer{};
  newer.options.plan = "main";
  for (const size_t size : {size_t{0}, size_t{7}, sizeof(tess_context_options) - 8, SIZE_MAX}) {
    newer.options.size = size;
    std::string said;
    EXPECT_EQ(code_of(tess_context_make(engine_.get(), &newer.options, &context), &said), TESS_USAGE);
    EXPECT_NE(said.find("sizeof"), std::string::npos) << said;
  }
  newer.options.size = sizeof(newer), newer.later = 1;
  EXPECT_EQ(code_of(tess_context_make(engine_.get(), &newer.options, &context)), TESS_USAGE);
  newer.later = 0;
  EXPECT_OK(tess_context_make(engine_.get(), &newer.options, &context));
  tess_context_free(context);
  // Results: a larger struct gets zeros behind what this library knows.
  struct {
    tess_plan_info info;
    uint64_t later;
  } plan{};
  plan.info.size = sizeof(plan), plan.later = 99;
  EXPECT_OK(tess_plan(engine_.get(), 0, &plan.info));
  EXPECT_EQ(plan.later, 0u);
  EXPECT_EQ(plan.info.size, sizeof(plan));
  plan.info.size = 3;
  EXPECT_EQ(code_of(tess_plan(engine_.get(), 0, &plan.info)), TESS_USAGE);
}

struct Spoiled {
  const char* what;
  std::function<void(tess_tensor& x, tess_tensor& y)> spoil;
  const char* said;  // part of the sentence
};

TEST_F(LibraryHostile, TensorsThatDoNotFit) {
  static int64_t transposed[] = {1, kRows}, spread[] = {2 * kCols, 1}, negative[] = {-kCols, 1}, shape5[] = {5},
                 swapped[] = {kCols, kRows}, huge[] = {INT64_MAX, INT64_MAX}, below[] = {-3, kCols};
  const std::vector<Spoiled> cases = {
      {"no data", [](auto& x, auto&) { x.data = nullptr; }, "input 'x' has no data"},
      {"no output data", [](auto&, auto& y) { y.data = nullptr; }, "output 'y' has no data"},
      {"no shape", [](auto& x, auto&) { x.shape = nullptr; }, "no shape"},
      {"one dimension", [](auto& x, auto&) { x.ndim = 1, x.shape = shape5; }, "1 dimensions; it takes f32 [3,5]"},
      {"many dimensions", [](auto& x, auto&) { x.ndim = INT32_MAX; }, "dimensions"},
      {"negative dimensions", [](auto& x, auto&) { x.ndim = -1; }, "dimensions"},
      {"swapped", [](auto& x, auto&) { x.shape = swapped; }, "the shape [5,3]; it takes f32 [3,5]"},
      {"huge", [](auto& x, auto&) { x.shape = huge; }, "it takes"},
      {"negative", [](auto&, auto& y) { y.shape = below; }, "[-3,5]"},
      {"f16", [](auto& x, auto&) { x.dtype.bits = 16; },
       "holds f16 (DLPack's type 2, 16 bits); f32 (DLPack's type 2, 32 bits) is wanted"},
      {"i32", [](auto& x, auto&) { x.dtype.code = TESS_INT; }, "holds i32 (DLPack's type 0, 32 bits)"},
      {"two lanes", [](auto&, auto& y) { y.dtype.lanes = 2; }, "2 lanes"},
      {"no lanes", [](auto&, auto& y) { y.dtype.lanes = 0; }, "0 lanes"},
      {"columns first", [](auto& x, auto&) { x.strides = transposed; }, "not in dense rows"},
      {"every second row", [](auto& x, auto&) { x.strides = spread; }, "dimension 0 has a stride of 10"},
      {"upside down", [](auto&, auto& y) { y.strides = negative; }, "not in dense rows"},
      {"on a GPU", [](auto& x, auto&) { x.device.type = TESS_CUDA; }, "tess_enqueue takes device memory"},
      {"on Vulkan", [](auto& x, auto&) { x.device.type = 7; }, "type 7; host memory"},
      {"at an odd address", [](auto& x, auto&) { x.byte_offset = 1; }, "multiple of its elements' 4 bytes"},
  };
  for (const Spoiled& c : cases) {
    SCOPED_TRACE(c.what);
    std::string said;
    EXPECT_EQ(run_spoiled(c.spoil, said), TESS_BAD_INPUT);
    EXPECT_NE(said.find(c.said), std::string::npos) << said;
    ASSERT_EQ(run_spoiled([](auto&, auto&) {}, said), TESS_OK) << said;
  }
  static int64_t dense[] = {kCols, 1};
  std::string said;
  EXPECT_EQ(run_spoiled([](auto& x, auto&) { x.strides = dense; }, said), TESS_OK) << said;
  EXPECT_EQ(run_spoiled([](auto& x, auto&) { x.byte_offset = 8; }, said), TESS_OK) << said;
}

// A plan may write an output before it has read all of an input.
TEST_F(LibraryHostile, OutputsThatLieInOtherTensors) {
  for (const char* plan : {"main", static_cast<const char*>(nullptr)}) {
    const Held<tess_context> context = make_context(engine_, plan);
    for (const size_t first : {size_t{0}, size_t{1}, kCount - 1, kCount}) {
      std::vector<float> both(2 * kCount, 2), before(kCount, kPoison);
      HostTensor x(both, {kRows, kCols}), y(both, {kRows, kCols}), last(before, {kRows, kCols});
      y.tensor.byte_offset = first * sizeof(float);
      const tess_tensor* ins[] = {&x.tensor};
      tess_tensor* outs[] = {&y.tensor, &last.tensor};
      std::string said;
      const int code = code_of(tess_run(context.get(), ins, 1, outs, 2), &said);
      EXPECT_EQ(code, first < kCount ? TESS_BAD_INPUT : TESS_OK) << first << " " << said;
      if (first < kCount) {
        EXPECT_NE(said.find("output 'y' overlaps input 'x'"), std::string::npos) << said;
      }
    }
  }
}

TEST_F(LibraryHostile, CountsAndMissingTensors) {
  std::vector<float> x(kCount, 1), y(kCount), before(kCount);
  HostTensor in(x, {kRows, kCols}), out(y, {kRows, kCols}), last(before, {kRows, kCols});
  const tess_tensor *ins[] = {&in.tensor, &in.tensor}, *none[] = {nullptr};
  tess_tensor *outs[] = {&out.tensor, &last.tensor}, *missing[] = {&out.tensor, nullptr};
  EXPECT_EQ(code_of(tess_run(context_.get(), ins, 2, outs, 2)), TESS_BAD_INPUT);
  EXPECT_EQ(code_of(tess_run(context_.get(), ins, 0, outs, 2)), TESS_BAD_INPUT);
  EXPECT_EQ(code_of(tess_run(context_.get(), ins, SIZE_MAX, outs, 2)), TESS_BAD_INPUT);
  EXPECT_EQ(code_of(tess_run(context_.get(), ins, 1, outs, 1)), TESS_BAD_INPUT);
  EXPECT_EQ(code_of(tess_run(context_.get(), none, 1, outs, 2)), TESS_BAD_INPUT);
  EXPECT_EQ(code_of(tess_run(context_.get(), ins, 1, missing, 2)), TESS_BAD_INPUT);
  EXPECT_EQ(code_of(tess_run(context_.get(), ins, 1, outs, 2)), TESS_OK);
  const Held<tess_context> any = make_context(engine_, nullptr);
  EXPECT_EQ(code_of(tess_enqueue(any.get(), ins, 1, outs, 2, nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_enqueue(context_.get(), ins, 1, outs, 2, nullptr)), TESS_OK) << "on the CPU it is a run";
}

TEST_F(LibraryHostile, AStateOfAnotherEngine) {
  const Held<tess_engine> other = open_file(folder_.write(remembering_engine(Arch::cpu, 2, 2), "other.tess"));
  tess_state* made = nullptr;
  ASSERT_OK(tess_state_make(other.get(), 0, &made));
  const Held<tess_state> state(made);
  tess_context_options options{};
  options.size = sizeof(options), options.plan = "main", options.state = state.get();
  tess_context* context = nullptr;
  std::string said;
  EXPECT_EQ(code_of(tess_context_make(engine_.get(), &options, &context), &said), TESS_BAD_INPUT);
  EXPECT_NE(said.find("another engine"), std::string::npos) << said;
}

TEST_F(LibraryHostile, SessionsWithoutASchedule) {
  Engine two = counting_engine();
  two.schedule.clear();
  const Held<tess_engine> engine = open_file(folder_.write(two, "two.tess"));
  tess_session* session = nullptr;
  EXPECT_EQ(code_of(tess_session_make(engine.get(), nullptr, &session)), TESS_BAD_INPUT);
  tess_context* context = nullptr;
  EXPECT_EQ(code_of(tess_context_make(engine.get(), nullptr, &context)), TESS_BAD_INPUT) << "which graph?";
}

TEST_F(LibraryHostile, BytesThatAreCutOrChanged) {
  std::vector<char> file = bytes_of(path_);
  ASSERT_GT(file.size(), 4096u);
  tess_engine* engine = nullptr;
  for (size_t count = 0; count < file.size(); count += count < 256 ? 1 : 61) {
    ASSERT_NE(code_of(tess_engine_open_bytes(file.data(), count, nullptr, &engine)), TESS_OK) << count << " bytes";
    ASSERT_EQ(engine, nullptr);
  }
  ASSERT_OK(tess_engine_open_bytes(file.data(), file.size(), nullptr, &engine));
  tess_engine_free(engine);
  // A changed byte is an error, or lies where nothing is read (the space between header and data).
  std::mt19937 generator(std::random_device{}());
  for (int i = 0; i < 300; ++i) {
    const size_t at = generator() % file.size();
    const char was = file[at];
    file[at] = static_cast<char>(was ^ static_cast<char>(1 << (generator() % 8)));
    std::vector<float> x(kCount, 2), y(kCount, NAN), before(kCount, NAN);
    tess_engine_options options{};
    options.size = sizeof(options), options.check_constants = 1;
    if (code_of(tess_engine_open_bytes(file.data(), file.size(), &options, &engine)) == TESS_OK) {
      const Held<tess_engine> held(engine);
      const Held<tess_context> context = make_context(held, "main");
      HostTensor in(x, {kRows, kCols}), out(y, {kRows, kCols}), last(before, {kRows, kCols});
      const tess_tensor* ins[] = {&in.tensor};
      tess_tensor* outs[] = {&out.tensor, &last.tensor};
      ASSERT_OK(tess_run(context.get(), ins, 1, outs, 2));
      ASSERT_TRUE(is_product(y, x)) << "byte " << at << " was changed, and nobody noticed";
    }
    file[at] = was;
  }
  tess_engine* none = nullptr;
  EXPECT_EQ(code_of(tess_engine_open((folder_.path() / "no.tess").c_str(), nullptr, &none)), TESS_BAD_INPUT);
}

// Nobody else reads the weights of an engine without golden values: a load looks at small ones only.
TEST_F(LibraryHostile, DamagedWeightsWithoutGoldenValues) {
  constexpr int64_t kManyRows = 64, kManyCols = 512;
  const std::string path = folder_.write(remembering_engine(Arch::cpu, kManyRows, kManyCols), "large.tess");
  std::vector<char> file = bytes_of(path);
  const float seven[] = {1, 2, 3, 4, 5, 6, 7};  // as its weight begins
  const char* const bytes = reinterpret_cast<const char*>(seven);
  const auto at = std::search(file.begin(), file.end(), bytes, bytes + sizeof(seven));
  ASSERT_NE(at, file.end());
  at[100000] = static_cast<char>(at[100000] ^ 4);
  std::ofstream(path, std::ios::binary).write(file.data(), static_cast<std::streamsize>(file.size()));

  const Held<tess_engine> engine = open_file(path);
  ASSERT_NE(engine, nullptr) << "large constants are not read at load";
  tess_context_options options{};
  options.size = sizeof(options), options.plan = "main";
  tess_context* context = nullptr;
  std::string said;
  EXPECT_EQ(code_of(tess_context_make(engine.get(), &options, &context), &said), TESS_BAD_INPUT);
  EXPECT_EQ(said, "constant 'w' (131072 bytes) does not match its checksum: the file is damaged");
  tess_session* session = nullptr;
  EXPECT_EQ(code_of(tess_session_make(engine.get(), nullptr, &session)), TESS_BAD_INPUT);
  options.no_verify = 1;
  ASSERT_OK(tess_context_make(engine.get(), &options, &context));
  tess_context_free(context);
}

// An engine whose golden values this machine does not reproduce.
TEST_F(LibraryHostile, GoldenValuesThatAreNotReproduced) {
  auto read = read_engine(folder_.digits("fp32", "2"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  Engine digits = std::move(read).value();
  for (GoldenForm& form : digits.golden.forms) {
    for (size_t o = 0; o < form.outputs.size(); ++o) form.bounds[o] = 1e-12;
    for (GoldenValue& v : form.values) v.bound = 1e-12;  // narrower than any arithmetic
  }
  const Held<tess_engine> engine = open_file(folder_.write(digits, "narrow.tess"));
  tess_context_options options{};
  options.size = sizeof(options), options.plan = "batch2";
  tess_context* context = nullptr;
  std::string said;
  EXPECT_EQ(code_of(tess_context_make(engine.get(), &options, &context), &said), TESS_VERIFY_FAILED);
  EXPECT_NE(said.find("batch2"), std::string::npos) << said;
  options.plan = nullptr;  // the check comes with the run
  ASSERT_OK(tess_context_make(engine.get(), &options, &context));
  std::vector<float> x = digits_images(2), y(20);
  EXPECT_EQ(run_one(context, x, {2, 1, 8, 8}, y, {2, 10}), TESS_VERIFY_FAILED);
  tess_context_free(context);
  options.plan = "batch2", options.no_verify = 1;
  ASSERT_OK(tess_context_make(engine.get(), &options, &context));
  EXPECT_EQ(run_one(context, x, {2, 1, 8, 8}, y, {2, 10}), TESS_OK);
  tess_context_free(context);
}

}  // namespace
}  // namespace tessera
