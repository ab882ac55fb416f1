// SPDX-License-Identifier: Apache-2.0
#include "profile/cupti.h"

#ifdef TS_WITH_CUPTI
#include <cuda_runtime.h>
#include <cupti.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "archs/cuda/device_memory.h"
#include "base/shared_library.h"
#endif

namespace tessera {

#ifdef TS_WITH_CUPTI
namespace {

#define TS_CUPTI_FUNCTIONS(X)          \
  X(cuptiActivityRegisterCallbacks)    \
  X(cuptiActivityEnable)               \
  X(cuptiActivityDisable)              \
  X(cuptiActivityFlushAll)             \
  X(cuptiActivityGetNextRecord)        \
  X(cuptiActivityGetNumDroppedRecords) \
  X(cuptiGetResultString)

struct Cupti {
#define X(name) decltype(&::name) name = nullptr;
  TS_CUPTI_FUNCTIONS(X)
#undef X
  Status status(const char* what, CUptiResult result) const {
    if (result == CUPTI_SUCCESS) return {};
    const char* text = nullptr;
    (void)cuptiGetResultString(result, &text);
    return machine_error(cat("CUPTI: ", what, ": ", text == nullptr ? "unknown error" : text));
  }
};

// Records of later minor versions only grow at their end.
#if CUDART_VERSION >= 13000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

Result<const Cupti*> open() {
  const std::string folders[] = {TS_CUPTI_FOLDER, TS_CUPTI_FOLDER "/../extras/CUPTI/lib64"};
  Result<SharedLibrary> library =
      SharedLibrary::open({"CUPTI", cat("libcupti.so.", CUDART_VERSION / 1000), "TESSERA_CUPTI", folders});
  if (!library.ok()) return library.status();
  static Cupti cupti;
#define X(name) TS_TRY(library->find(cupti.name, #name));
  TS_CUPTI_FUNCTIONS(X)
#undef X
  return &cupti;
}

Result<const Cupti*> cupti() {
  static const Result<const Cupti*> kOpened = open();
  return kOpened;
}

// CUPTI hands buffers back from a thread of its own, to functions without a place for ours.
struct Collected {
  std::mutex mutex;
  CuptiTrace trace;
  // Nanoseconds since 1970 have more digits than a double: times count from the first record instead.
  uint64_t base = 0;
  const Cupti* library = nullptr;
};
Collected& collected() {
  static Collected c;
  return c;
}

constexpr size_t kBufferBytes = size_t{4} << 20, kBufferAlign = 8;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlign, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

template <class Record>
void take(const CUpti_Activity* activity, Collected& c) {
  const auto* r = reinterpret_cast<const Record*>(activity);
  if (r->graphNodeId == 0) return;  // launched outside a graph
  if (r->start == 0 || r->end < r->start) {
    ++c.trace.untimed;
    return;
  }
  if (c.base == 0) c.base = r->start;
  const auto us = [&](uint64_t ns) { return static_cast<double>(static_cast<int64_t>(ns - c.base)) * 1e-3; };
  c.trace.activities.push_back({r->graphNodeId, us(r->start), us(r->end)});
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Collected& c = collected();
  {
    const std::lock_guard lock(c.mutex);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && c.library->cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) take<KernelRecord>(record, c);
      if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) take<CopyRecord>(record, c);
      if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) take<FillRecord>(record, c);
    }
    size_t dropped = 0;
    if (c.library->cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS)
      c.trace.dropped += static_cast<int64_t>(dropped);
  }
  std::free(buffer);
}

Status begin(const Cupti& library) {
  TS_TRY(library.status("registering buffers", library.cuptiActivityRegisterCallbacks(give_buffer, take_buffer)));
  for (const CUpti_ActivityKind kind : kKinds)
    TS_TRY(library.status("beginning to record", library.cuptiActivityEnable(kind)));
  return {};
}

}  // namespace

Result<CuptiTrace> trace_with_cupti(const std::function<Status()>& body) {
  TS_ASSIGN(const Cupti* const library, cupti());
  Collected& c = collected();
  {
    const std::lock_guard lock(c.mutex);
    c.library = library;
    c.trace = {};
    c.base = 0;
  }
  const Status begun = begin(*library);
  Status done = begun.ok() ? body() : begun;
  if (begun.ok() && done.ok()) done = device_synchronise();
  // Records that are not complete by now never will be.
  if (begun.ok()) {
    const Status flushed =
        library->status("handing over records", library->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    if (done.ok()) done = flushed;
  }
  for (const CUpti_ActivityKind kind : kKinds) (void)library->cuptiActivityDisable(kind);
  TS_TRY(done);
  const std::lock_guard lock(c.mutex);
  return std::move(c.trace);
}

#else

Result<CuptiTrace> trace_with_cupti(const std::function<Status()>&) {
  return machine_error("this program was built without CUPTI");
}

#endif

}  // namespace tessera
