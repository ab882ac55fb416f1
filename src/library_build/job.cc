// SPDX-License-Identifier: Apache-2.0
#include "library_build/job.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/forks.h"
#include "base/log.h"
#include "base/log_sink.h"
#include "base/progress_sink.h"
#include "io/npz.h"

namespace tessera {
namespace {

// Nothing is printed that TESSERA_LOG does not ask for: a program has its own log.
const bool silent = [] {
  be_library();
  return true;
}();

Turns& turns() {
  static Turns& one = *new Turns;  // never destroyed: a thread may be at work while static objects go
  return one;
}

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

Result<Array> array_of(const char* what, const tess_array& given, size_t index) {
  if (given.name == nullptr || given.tensor == nullptr)
    return usage_error(cat(what, "[", index, "] lacks its name or its tensor (NULL)"));
  const tess_tensor& t = *given.tensor;
  const std::string where = cat(what, " '", given.name, "' ");
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

}  // namespace

Job::Job(tess_progress_function progress, tess_log_function log, void* user) : mine_(turns().take_now()) {
  (void)silent;
  if (!mine_) return;
  if (log != nullptr) {
    set_log_sink([=, process = forks()](LogLevel level, const std::string& line) {
      if (process == forks()) log(static_cast<int32_t>(level), line.c_str(), user);
    });
  }
  // (A child has no part in what its parent was doing.)
  set_progress_sink([=, process = forks()](const std::string& what, int64_t done, int64_t total) {
    return process != forks() || progress == nullptr || progress(what.c_str(), done, total, user) == 0;
  });
}

Job::~Job() {
  if (!mine_) return;
  set_progress_sink(nullptr);
  set_log_sink(nullptr);
}

Status Job::status() const {
  if (mine_) return {};
  return Status(kBusy, "another build, comparison or ranking is going on in this process; one at a time");
}

ArraysFile::~ArraysFile() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Status ArraysFile::write(const char* what, const tess_array* arrays, size_t count) {
  if (count == 0) return {};
  TS_TRY(check_argument(arrays, what));
  std::vector<Array> all;
  for (size_t i = 0; i < count; ++i) {
    TS_ASSIGN(Array a, array_of(what, arrays[i], i));
    all.push_back(std::move(a));
  }
  std::error_code none;
  std::string folder = (std::filesystem::temp_directory_path(none) / "tessera_calib_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return machine_error(cat(folder, ": no folder can be made there"));
  folder_ = folder, what_ = what;
  return write_npz(path_or(nullptr), all);
}

Status ArraysFile::named(const Status& status) const {
  if (status.ok() || folder_.empty()) return status;
  std::string said = status.message();
  const std::string path = path_or(nullptr);
  for (size_t at = 0; (at = said.find(path, at)) != std::string::npos; at += what_.size())
    said.replace(at, path.size(), what_);
  return {status.code(), std::move(said), status.layers()};
}

std::string ArraysFile::path_or(const char* path) const {
  return folder_.empty() ? word(path) : folder_ + "/arrays.npz";
}

}  // namespace tessera
