// SPDX-License-Identifier: Apache-2.0
#include "testing/library_calls.h"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "io/npz.h"
#include "plan/engine_file.h"
#include "types/precisions/precision.h"

namespace tessera {
namespace {

const std::string kDigits = std::string(TS_SOURCE_DIR) + "/assets/digits";

}  // namespace

EngineFolder::EngineFolder() {
  static std::atomic<int> made{0};
  path_ = std::filesystem::temp_directory_path() / cat("tessera_library_", getpid(), "_", made++);
  std::filesystem::create_directories(path_);
}

EngineFolder::~EngineFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string EngineFolder::write(const Engine& engine, const std::string& name) const {
  const std::string path = (path_ / name).string();
  const Status written = write_engine(engine, path);
  EXPECT_TRUE(written.ok()) << written.message();
  return path;
}

std::string EngineFolder::digits(const std::string& precision, const std::string& batches) const {
  const std::string out = (path_ / cat("digits_", precision, "_", batches, ".tess")).string();
  const bool scales = find_precision(precision)->needs_ranges();
  const std::string command =
      cat("'", TS_PROGRAM, "' build '", kDigits, "/vit.onnx' --quiet -o '", out, "' --precision ", precision,
          " --batch ", batches, scales ? cat(" --calib '", kDigits, "/calib.npz'") : "", " > /dev/null");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return out;
}

std::vector<float> digits_images(size_t count) {
  constexpr size_t kNumbers = 64;
  const auto arrays = read_npz(kDigits + "/test.npz");
  EXPECT_TRUE(arrays.ok());
  std::vector<float> images;
  for (const Array& a : *arrays) {
    if (a.name != "image") continue;
    const std::vector<double> all = numbers_of(a);
    images.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), count * kNumbers)));
  }
  EXPECT_EQ(images.size(), count * kNumbers);
  return images;
}

int code_of(tess_status* status, std::string* message) {
  const int code = tess_status_code(status);
  if (message != nullptr) *message = tess_status_message(status);
  if (code != TESS_OK) {
    EXPECT_STRNE(tess_status_message(status), "") << "a status without a sentence";
  }
  tess_status_free(status);
  return code;
}

Held<tess_engine> open_file(const std::string& path) {
  tess_engine* engine = nullptr;
  EXPECT_OK(tess_engine_open(path.c_str(), nullptr, &engine));
  return Held<tess_engine>(engine);
}

Held<tess_context> make_context(const Held<tess_engine>& engine, const char* plan, int threads, tess_state* state) {
  tess_context_options options{};
  options.size = sizeof(options), options.plan = plan, options.threads = threads, options.state = state;
  tess_context* context = nullptr;
  EXPECT_OK(tess_context_make(engine.get(), &options, &context));
  return Held<tess_context>(context);
}

HostTensor::HostTensor(std::vector<float>& numbers, std::vector<int64_t> with_shape) : shape(std::move(with_shape)) {
  tensor = {
      numbers.data(), {TESS_CPU, 0}, static_cast<int32_t>(shape.size()), {TESS_FLOAT, 32, 1}, shape.data(), nullptr, 0};
}

int run_one(tess_context* context, std::vector<float>& x, const std::vector<int64_t>& x_shape, std::vector<float>& y,
            const std::vector<int64_t>& y_shape, std::string* message) {
  std::fill(y.begin(), y.end(), NAN);
  HostTensor in(x, x_shape), out(y, y_shape);
  const tess_tensor* ins[] = {&in.tensor};
  tess_tensor* outs[] = {&out.tensor};
  return code_of(tess_run(context, ins, 1, outs, 1), message);
}

}  // namespace tessera
