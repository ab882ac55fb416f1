// SPDX-License-Identifier: Apache-2.0
// Errors that are somebody else's mistake travel as Status / Result<T>; our own mistakes abort through TS_CHECK.
// A Status says what is wrong, where, and what would be accepted, in one sentence; its code picks the exit code of the
// program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

enum class Code : uint8_t {
  kOk = 0,
  kVerifyFailed = 1,  // an engine ran and its numbers are outside their bound
  kUsage = 2,         // the command line is wrong
  kBadInput = 3,      // a file or an array cannot be used
  kRefused = 4,       // a layer cannot run in the precision asked for
  kMachine = 5,       // no memory, no device, a CUDA or I/O failure
};

// Concatenates anything that can be streamed: cat("row ", 3, " of ", name).
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

struct RefusedLayer;
using RefusedLayers = std::shared_ptr<const std::vector<RefusedLayer>>;

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, RefusedLayers layers = nullptr)
      : code_(code), message_(std::move(message)), layers_(std::move(layers)) {}
  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // Of a refusal: its layers as data (base/refused_layers.h); null: it is about no layer.
  const RefusedLayers& layers() const { return layers_; }
  // The same error, with the place it was met put in front: "model.onnx: node 'a': ...".
  Status at(const std::string& place) const { return ok() ? *this : Status(code_, place + ": " + message_, layers_); }
  // The same error, with more to say.
  Status extended(const std::string& more) const { return ok() ? *this : Status(code_, message_ + more, layers_); }

 private:
  Code code_ = Code::kOk;
  std::string message_;
  RefusedLayers layers_;
};

inline Status bad_input(std::string m) { return {Code::kBadInput, std::move(m)}; }
inline Status refused(std::string m) { return {Code::kRefused, std::move(m)}; }
inline Status machine_error(std::string m) { return {Code::kMachine, std::move(m)}; }
inline Status usage_error(std::string m) { return {Code::kUsage, std::move(m)}; }

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit, so that `return value;` works
  Result(Status status) : status_(std::move(status)) {  // NOLINT
    if (status_.ok()) (void)(status_ = Status(Code::kMachine, "internal: a Result was made from an OK status"));
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

[[noreturn]] void check_failed(const char* file, int line, const char* what, const std::string& detail);

}  // namespace tessera

#define TS_CHECK(condition, ...)                                                                            \
  do {                                                                                                      \
    if (!(condition)) ::tessera::check_failed(__FILE__, __LINE__, #condition, ::tessera::cat(__VA_ARGS__)); \
  } while (0)

#define TS_TRY(expression)                                                             \
  do {                                                                                 \
    if (::tessera::Status ts_status = (expression); !ts_status.ok()) return ts_status; \
  } while (0)

#define TS_CONCAT_INNER(a, b) a##b
#define TS_CONCAT(a, b) TS_CONCAT_INNER(a, b)
// TS_ASSIGN(auto x, f()): x = the value, or return the error.
#define TS_ASSIGN(target, expression) TS_ASSIGN_INNER(target, expression, TS_CONCAT(ts_result_, __LINE__))
#define TS_ASSIGN_INNER(target, expression, temporary) \
  auto temporary = (expression);                       \
  if (!temporary.ok()) return temporary.status();      \
  target = std::move(temporary).value()
