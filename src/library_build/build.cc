// SPDX-License-Identifier: Apache-2.0
// tess_build: all of `tessera build` behind the C ABI.
#include <tessera/tessera_build.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "assemble/build_engine.h"
#include "base/log.h"
#include "base/log_sink.h"
#include "base/progress_sink.h"
#include "io/npz.h"
#include "library/structs.h"
#include "plan/engine_file.h"
#include "precision/read_recipe.h"

namespace tessera {
namespace {

// Nothing is printed: a program has its own log.
const bool silent = [] {
  set_quiet(true);
  return true;
}();

std::string word(const char* text) { return text == nullptr ? "" : text; }

// While a build goes on: its caller's functions are those that the process calls.
class Watched {
 public:
  explicit Watched(const tess_build_options& o) {
    if (o.log != nullptr) {
      set_log_sink([log = o.log, user = o.user](LogLevel level, const std::string& line) {
        log(static_cast<int32_t>(level), line.c_str(), user);
      });
    }
    set_progress_sink([progress = o.progress, user = o.user](const std::string& what, int64_t done, int64_t total) {
      return progress == nullptr || progress(what.c_str(), done, total, user) == 0;
    });
  }
  ~Watched() {
    set_progress_sink(nullptr);
    set_log_sink(nullptr);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

// numpy's word for a DLPack type; empty where calibration takes none.
const char* dtype_of(const tess_dtype& t) {
  struct Known {
    tess_dtype type;
    const char* word;
  };
  static constexpr Known kKnown[] = {{{TESS_FLOAT, 32, 1}, "<f4"}, {{TESS_FLOAT, 64, 1}, "<f8"},
                                     {{TESS_FLOAT, 16, 1}, "<f2"}, {{TESS_INT, 64, 1}, "<i8"},
                                     {{TESS_INT, 32, 1}, "<i4"},   {{TESS_INT, 8, 1}, "|i1"},
                                     {{TESS_UINT, 8, 1}, "|u1"}};
  for (const Known& k : kKnown) {
    if (k.type.code == t.code && k.type.bits == t.bits && k.type.lanes == t.lanes) return k.word;
  }
  return "";
}

Result<Array> array_of(const tess_array& given, size_t index) {
  if (given.name == nullptr || given.tensor == nullptr)
    return usage_error(cat("calib_arrays[", index, "] lacks its name or its tensor (NULL)"));
  const tess_tensor& t = *given.tensor;
  const std::string where = cat("calib_arrays '", given.name, "' ");
  Array a{.name = given.name, .shape = {}, .dtype = dtype_of(t.dtype), .data = {}};
  if (a.dtype.empty())
    return bad_input(cat(where, "has DLPack's type (", int{t.dtype.code}, ", ", int{t.dtype.bits},
                         " bits); f16, f32, f64, i8, i32, i64 or u8 is wanted"));
  if (t.device.type != TESS_CPU && t.device.type != TESS_CUDA_HOST && t.device.type != TESS_CUDA_MANAGED)
    return bad_input(cat(where, "does not lie in host memory"));
  constexpr int32_t kMostDimensions = 16;
  if (t.ndim < 1 || t.ndim > kMostDimensions || t.shape == nullptr || t.data == nullptr)
    return bad_input(cat(where, "has no data, no shape, or not 1 to 16 dimensions"));
  int64_t bytes = dtype_bytes(a.dtype), dense = 1;
  for (int32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] <= 0 || bytes > kNpzLimitBytes / t.shape[i])
      return bad_input(cat(where, "is empty, or larger than ", kNpzLimitBytes, " bytes"));
    bytes *= t.shape[i];
    a.shape.push_back(t.shape[i]);
  }
  for (int32_t i = t.ndim; i-- > 0; dense *= t.shape[i]) {
    if (t.strides != nullptr && t.shape[i] != 1 && t.strides[i] != dense)
      return bad_input(cat(where, "is not in dense rows; copy it into dense rows first"));
  }
  // Not a copy: it is read before the build returns.
  a.data = Bytes(nullptr, static_cast<const uint8_t*>(t.data) + t.byte_offset, static_cast<size_t>(bytes));
  return a;
}

// The samples as a file, which is what calibration reads, for the length of a build.
class ArraysFile {
 public:
  ~ArraysFile() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  Status write(const tess_build_options& o) {
    TS_TRY(check_argument(o.calib_arrays, "calib_arrays"));
    std::vector<Array> arrays;
    for (size_t i = 0; i < o.calib_array_count; ++i) {
      TS_ASSIGN(Array a, array_of(o.calib_arrays[i], i));
      arrays.push_back(std::move(a));
    }
    std::error_code none;
    std::string folder = (std::filesystem::temp_directory_path(none) / "tessera_calib_XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return machine_error(cat(folder, ": no folder can be made there"));
    folder_ = folder;
    return write_npz(path(), arrays);
  }
  // The engine's record has the name of the file: the same in every build.
  std::string path() const { return folder_ + "/arrays.npz"; }

 private:
  std::string folder_;
};

Result<BuildOptions> options_of(const tess_build_options& o, const std::string& model) {
  BuildOptions b;
  b.model_path = model;
  b.precision = word(o.precision), b.attention = word(o.attention);
  b.calib_path = word(o.calib), b.calib_method = word(o.calib_method);
  b.calib_samples = o.calib_samples, b.golden = o.no_verify == 0;
  if (o.recipe != nullptr) {
    TS_ASSIGN(b.recipe, read_recipe(o.recipe));
  }
  if (o.target != nullptr) {
    const auto target = find_arch(o.target);
    if (!target) return usage_error(cat("target '", o.target, "' is unknown; cpu, cuda, sm90 or ref"));
    b.target = *target;
  }
  if (o.batch_count > 0) TS_TRY(check_argument(o.batches, "batches"));
  for (size_t i = 0; i < o.batch_count; ++i) {
    constexpr int64_t kMost = 1 << 20;
    if (o.batches[i] < 1 || o.batches[i] > kMost)
      return usage_error(cat("batches: ", o.batches[i], "; sizes from 1 to ", kMost));
    if (std::find(b.batches.begin(), b.batches.end(), o.batches[i]) != b.batches.end())
      return usage_error(cat("batches: ", o.batches[i], " stands there twice"));
    b.batches.push_back(o.batches[i]);
  }
  if (o.allow_count > 0) TS_TRY(check_argument(o.allow, "allow"));
  for (size_t i = 0; i < o.allow_count; ++i) {
    if (o.allow[i] == nullptr) return usage_error(cat("allow[", i, "] is NULL"));
    b.allow.push_back(o.allow[i]);
  }
  if (o.calib_samples < 0) return usage_error(cat("calib_samples is ", o.calib_samples, ": 0 or more"));
  return b;
}

Status build(const char* model, const char* output, const tess_build_options* options) {
  TS_TRY(check_argument(model, "model"));
  TS_TRY(check_argument(output, "output"));
  tess_build_options asked;
  TS_TRY(read_struct(options, TS_UP_TO(tess_build_options, user), "tess_build_options", asked));
  static std::mutex one;
  const std::unique_lock mine(one, std::try_to_lock);
  if (!mine.owns_lock()) return Status(kBusy, "another build is going on in this process; one at a time");
  (void)silent;
  TS_ASSIGN(BuildOptions b, options_of(asked, model));
  std::error_code none;
  if (std::filesystem::equivalent(model, output, none))
    return usage_error(cat("the engine would overwrite the model ", model, ": give another output"));
  ArraysFile arrays;
  if (asked.calib_array_count > 0) {
    if (asked.calib != nullptr) return usage_error("calib and calib_arrays are both given: give one of the two");
    TS_TRY(arrays.write(asked));
    b.calib_path = arrays.path();
  }
  const Watched watched(asked);
  TS_ASSIGN(const Built built, build_engine(b));
  TS_TRY(check_cancelled());
  return write_engine(built.engine, output);
}

}  // namespace
}  // namespace tessera

extern "C" tess_status* tess_build(const char* model, const char* output, const tess_build_options* options) {
  return tessera::guarded([&] { return tessera::build(model, output, options); });
}
