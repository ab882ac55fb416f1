// SPDX-License-Identifier: Apache-2.0
#include "library/status.h"

#include <cstdlib>
#include <cstring>

// One block of malloc's: whichever library of ours made it, tess_status_free can free it.
struct tess_status {
  int32_t code;
  bool lasting;  // not to be freed
  char message[48];
};

namespace tessera {

static_assert(TESS_VERIFY_FAILED == static_cast<int>(Code::kVerifyFailed) &&
              TESS_USAGE == static_cast<int>(Code::kUsage) && TESS_BAD_INPUT == static_cast<int>(Code::kBadInput) &&
              TESS_CANCELLED == static_cast<int>(kCancelled) && TESS_REFUSED == static_cast<int>(Code::kRefused) &&
              TESS_MACHINE == static_cast<int>(Code::kMachine));

tess_status* no_memory() noexcept {
  static tess_status status = {TESS_MACHINE, true, "there is not enough memory"};
  return &status;
}

tess_status* to_c(Code code, const char* message) noexcept {
  const size_t length = std::strlen(message);
  auto* status = static_cast<tess_status*>(std::malloc(sizeof(tess_status) + length));
  if (status == nullptr) return no_memory();
  status->code = static_cast<int32_t>(code);
  status->lasting = false;
  std::memcpy(static_cast<char*>(status->message), message, length + 1);
  return status;
}

tess_status* to_c(const Status& status) noexcept {
  return status.ok() ? nullptr : to_c(status.code(), status.message().c_str());
}

Status check_argument(const void* argument, const char* name) {
  return argument != nullptr ? Status() : usage_error(cat(name, " is NULL"));
}

}  // namespace tessera

extern "C" {

int32_t tess_status_code(const tess_status* status) { return status == nullptr ? TESS_OK : status->code; }

const char* tess_status_message(const tess_status* status) {
  return status == nullptr ? "" : static_cast<const char*>(status->message);
}

void tess_status_free(tess_status* status) {
  if (status != nullptr && !status->lasting) std::free(status);
}
}
