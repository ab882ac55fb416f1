// SPDX-License-Identifier: Apache-2.0
#include "library/status.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/refused_layers.h"
#include "library/structs.h"

// One block of malloc's: whichever library of ours made it, tess_status_free can free it. Behind the message of a
// refusal, at the next multiple of 8: a PackedRefusal, its layers, their refusals, and the strings that they point to.
struct tess_status {
  int32_t code;
  uint8_t kind;
  char message[48];
};

struct tess_report {  // one block of malloc's, too
  char json[8];
};

namespace tessera {
namespace {

enum Kind : uint8_t { kPlain = 0, kLasting = 1 /* not to be freed */, kWithLayers = 2 };

struct PackedLayer {
  const char *layer, *op, *asked;
  size_t first, refusals;
};
struct PackedReason {
  const char *kernel, *reason;
};
struct PackedRefusal {
  size_t layers;
  const PackedLayer* layer;
  const PackedReason* reason;
};

size_t rounded(size_t bytes) { return (bytes + 7) / 8 * 8; }

const PackedRefusal* packed(const tess_status* status) {
  if (status == nullptr || status->kind != kWithLayers) return nullptr;
  const size_t begin = offsetof(tess_status, message) + std::strlen(static_cast<const char*>(status->message)) + 1;
  return reinterpret_cast<const PackedRefusal*>(reinterpret_cast<const char*>(status) + rounded(begin));
}

// Takes pieces of a block in order, or, without one, counts what they would need.
class Pieces {
 public:
  explicit Pieces(char* block) : block_(block) {}
  template <class T>
  T* take(size_t count) {
    T* const here = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + used_);
    used_ += rounded(sizeof(T) * count);
    return here;
  }
  const char* text(const std::string& s) {
    char* const here = take<char>(s.size() + 1);
    if (here != nullptr) std::memcpy(here, s.c_str(), s.size() + 1);
    return here;
  }
  size_t used() const { return used_; }

 private:
  char* const block_;
  size_t used_ = 0;
};

// Returns the bytes that the layers take.
size_t pack(const std::vector<RefusedLayer>& layers, char* block) {
  size_t reasons = 0, first = 0;
  for (const RefusedLayer& l : layers) reasons += l.refusals.size();
  Pieces pieces(block);
  auto* const whole = pieces.take<PackedRefusal>(1);
  auto* const layer = pieces.take<PackedLayer>(layers.size());
  auto* const reason = pieces.take<PackedReason>(reasons);
  if (whole != nullptr) *whole = {layers.size(), layer, reason};
  for (size_t l = 0; l < layers.size(); ++l) {
    const RefusedLayer& from = layers[l];
    const PackedLayer named = {pieces.text(from.layer), pieces.text(from.op), pieces.text(from.asked), first,
                               from.refusals.size()};
    if (whole != nullptr) layer[l] = named;
    for (const Refusal& r : from.refusals) {
      const PackedReason given = {pieces.text(r.variant), pieces.text(r.reason)};
      if (whole != nullptr) reason[first] = given;
      ++first;
    }
  }
  return pieces.used();
}

tess_status* make(Code code, const char* message, const std::vector<RefusedLayer>* layers) noexcept {
  const size_t length = std::strlen(message), begin = rounded(offsetof(tess_status, message) + length + 1);
  const size_t behind = layers == nullptr ? 0 : pack(*layers, nullptr);
  auto* block = static_cast<char*>(std::malloc(std::max(sizeof(tess_status), begin) + behind));
  if (block == nullptr) return no_memory();
  auto* status = reinterpret_cast<tess_status*>(block);
  status->code = static_cast<int32_t>(code);
  status->kind = layers == nullptr ? kPlain : kWithLayers;
  std::memcpy(block + offsetof(tess_status, message), message, length + 1);
  if (layers != nullptr) pack(*layers, block + begin);
  return status;
}

}  // namespace

static_assert(TESS_VERIFY_FAILED == static_cast<int>(Code::kVerifyFailed) &&
              TESS_USAGE == static_cast<int>(Code::kUsage) && TESS_BAD_INPUT == static_cast<int>(Code::kBadInput) &&
              TESS_CANCELLED == static_cast<int>(kCancelled) && TESS_REFUSED == static_cast<int>(Code::kRefused) &&
              TESS_MACHINE == static_cast<int>(Code::kMachine));

tess_status* no_memory() noexcept {
  static tess_status status = {TESS_MACHINE, kLasting, "there is not enough memory"};
  return &status;
}

tess_status* to_c(Code code, const char* message) noexcept { return make(code, message, nullptr); }

tess_status* to_c(const Status& status) noexcept {
  const bool meant = status.code() != kBusy && status.code() != kCancelled;
  if (!status.ok() && meant) log_error(status);
  return status.ok() ? nullptr : make(status.code(), status.message().c_str(), status.layers().get());
}

tess_report* make_report(const std::string& json) {
  auto* report = static_cast<tess_report*>(std::malloc(std::max(sizeof(tess_report), json.size() + 1)));
  if (report == nullptr) throw std::bad_alloc();
  std::memcpy(static_cast<char*>(report->json), json.c_str(), json.size() + 1);
  return report;
}

Status check_argument(const void* argument, const char* name) {
  return argument != nullptr ? Status() : usage_error(cat(name, " is NULL"));
}

}  // namespace tessera

using namespace tessera;

extern "C" {

int32_t tess_status_code(const tess_status* status) { return status == nullptr ? TESS_OK : status->code; }

const char* tess_status_message(const tess_status* status) {
  return status == nullptr ? "" : static_cast<const char*>(status->message);
}

void tess_status_free(tess_status* status) {
  if (status != nullptr && status->kind != kLasting) std::free(status);
}

const char* tess_report_json(const tess_report* report) {
  return report == nullptr ? "" : static_cast<const char*>(report->json);
}
void tess_report_free(tess_report* report) { std::free(report); }

size_t tess_refused_count(const tess_status* status) {
  const PackedRefusal* p = packed(status);
  return p == nullptr ? 0 : p->layers;
}

tess_status* tess_refused(const tess_status* status, size_t layer, tess_refused_info* out) {
  return guarded([&]() -> Status {
    if (layer >= tess_refused_count(status))
      return usage_error(cat("layer ", layer, ": the status has ", tess_refused_count(status), " refused layers"));
    const PackedLayer& l = packed(status)->layer[layer];
    const tess_refused_info info = {sizeof(info), l.layer, l.op, l.asked, l.refusals};
    return write_struct(info, TS_UP_TO(tess_refused_info, refusals), "tess_refused_info", out);
  });
}

tess_status* tess_refusal(const tess_status* status, size_t layer, size_t refusal, tess_refusal_info* out) {
  return guarded([&]() -> Status {
    if (layer >= tess_refused_count(status))
      return usage_error(cat("layer ", layer, ": the status has ", tess_refused_count(status), " refused layers"));
    const PackedLayer& l = packed(status)->layer[layer];
    if (refusal >= l.refusals)
      return usage_error(cat("refusal ", refusal, ": layer '", l.layer, "' has ", l.refusals, " of them"));
    const PackedReason& r = packed(status)->reason[l.first + refusal];
    const tess_refusal_info info = {sizeof(info), r.kernel, r.reason};
    return write_struct(info, TS_UP_TO(tess_refusal_info, reason), "tess_refusal_info", out);
  });
}
}
