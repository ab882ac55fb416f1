// SPDX-License-Identifier: Apache-2.0
#include "testing/count_allocations.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TS_COUNTS 1
#endif

namespace tessera {

std::atomic<int64_t> allocations{0}, bytes_held{0};

bool counts_allocations() {
#ifdef TS_COUNTS
  return true;
#else
  return false;
#endif
}

}  // namespace tessera

namespace {
using tessera::allocations, tessera::bytes_held;

[[maybe_unused]] void* counted(void* p) {
  ++allocations;
  bytes_held += static_cast<int64_t>(malloc_usable_size(p));
  return p;
}
}  // namespace

#ifdef TS_COUNTS
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
void* malloc(size_t n) { return counted(__libc_malloc(n)); }
void* calloc(size_t n, size_t size) { return counted(__libc_calloc(n, size)); }
void* realloc(void* p, size_t n) {
  bytes_held -= static_cast<int64_t>(malloc_usable_size(p));
  return counted(__libc_realloc(p, n));
}
void* aligned_alloc(size_t alignment, size_t n) { return counted(__libc_memalign(alignment, n)); }
int posix_memalign(void** out, size_t alignment, size_t n) {
  *out = counted(__libc_memalign(alignment, n));
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* p) {
  bytes_held -= static_cast<int64_t>(malloc_usable_size(p));
  __libc_free(p);
}
// Large buffers are maps of their own.
void* mmap(void* address, size_t n, int protection, int flags, int fd, off_t offset) noexcept {
  ++allocations;
  bytes_held += static_cast<int64_t>(n);
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, n, protection, flags, fd, offset));
}
int munmap(void* address, size_t n) noexcept {
  bytes_held -= static_cast<int64_t>(n);
  return static_cast<int>(syscall(SYS_munmap, address, n));
}
}
#endif
