// SPDX-License-Identifier: Apache-2.0
// Status as C sees it, and the wall of the C ABI: what is thrown behind it becomes a status.
#pragma once

#include <tessera/tessera.h>

#include <exception>
#include <new>

#include "base/progress_sink.h"
#include "base/status.h"

namespace tessera {

// Codes of the C ABI are those of base/status.h, kCancelled, and more.
inline constexpr Code kBusy = static_cast<Code>(TESS_BUSY);
inline constexpr Code kInternal = static_cast<Code>(TESS_INTERNAL);

tess_status* to_c(const Status& status) noexcept;
tess_status* to_c(Code code, const char* message) noexcept;
tess_status* no_memory() noexcept;  // takes none

// A report of this text; it throws where there is no memory.
tess_report* make_report(const std::string& json);

template <class F>
tess_status* guarded(const F& body) noexcept {
  try {
    return to_c(body());
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const std::exception& e) {
    return to_c(kInternal, e.what());
  } catch (...) {
    return to_c(kInternal, "something was thrown that is no exception");
  }
}

// The error of an argument that may not be NULL; OK where it is not.
Status check_argument(const void* argument, const char* name);

}  // namespace tessera
