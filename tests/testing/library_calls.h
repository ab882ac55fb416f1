// SPDX-License-Identifier: Apache-2.0
// What tests of the C ABI share: engine files, and calls with plain vectors.
#pragma once

#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "plan/engine.h"

namespace tessera {

// A folder of the test's own, removed with it.
class EngineFolder {
 public:
  EngineFolder();
  ~EngineFolder();
  std::string write(const Engine& engine, const std::string& name) const;  // its path
  // The bundled model for this machine's CPU, as the program builds it, in this precision and these batch sizes
  // ("1,8").
  std::string digits(const std::string& precision, const std::string& batches) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Images of the bundled test set, 64 numbers each.
std::vector<float> digits_images(size_t count);

// Code of a status, which is freed. `message`, where given, gets its sentence.
int code_of(tess_status* status, std::string* message = nullptr);
#define EXPECT_OK(call)                                                  \
  do {                                                                   \
    std::string ts_said;                                                 \
    EXPECT_EQ(::tessera::code_of((call), &ts_said), TESS_OK) << ts_said; \
  } while (0)
#define ASSERT_OK(call)                                                  \
  do {                                                                   \
    std::string ts_said;                                                 \
    ASSERT_EQ(::tessera::code_of((call), &ts_said), TESS_OK) << ts_said; \
  } while (0)

struct FreeHandle {
  void operator()(tess_engine* p) const { tess_engine_free(p); }
  void operator()(tess_state* p) const { tess_state_free(p); }
  void operator()(tess_context* p) const { tess_context_free(p); }
  void operator()(tess_session* p) const { tess_session_free(p); }
};
template <class T>
using Held = std::unique_ptr<T, FreeHandle>;

// Null where that fails, which fails the test.
Held<tess_engine> open_file(const std::string& path);
Held<tess_context> make_context(const Held<tess_engine>& engine, const char* plan, int threads = 0,
                                tess_state* state = nullptr);

// f32 in host memory.
struct HostTensor {
  HostTensor(std::vector<float>& numbers, std::vector<int64_t> with_shape);
  HostTensor(const HostTensor&) = delete;
  HostTensor& operator=(const HostTensor&) = delete;
  std::vector<int64_t> shape;
  tess_tensor tensor;
};

// One input, one output. Outputs are poisoned first.
int run_one(tess_context* context, std::vector<float>& x, const std::vector<int64_t>& x_shape, std::vector<float>& y,
            const std::vector<int64_t>& y_shape, std::string* message = nullptr);

}  // namespace tessera
