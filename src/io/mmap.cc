// SPDX-License-Identifier: Apache-2.0
#include "io/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/fork_locks.h"

namespace tessera {
namespace {

struct Map {
  void* address;
  size_t size;
  ~Map() { munmap(address, size); }
};

// Maps whose pages may be given back: first byte -> size. MADV_DONTNEED would erase any other memory.
class Returnable {
 public:
  void add(const void* begin, size_t size) {
    const std::lock_guard lock(mutex_);
    maps_[reinterpret_cast<uintptr_t>(begin)] = size;
    any_ = true;
  }
  void remove(const void* begin) {
    const std::lock_guard lock(mutex_);
    maps_.erase(reinterpret_cast<uintptr_t>(begin));
    any_ = !maps_.empty();
  }
  void remove_around(uintptr_t byte) {
    const std::lock_guard lock(mutex_);
    const auto after = maps_.upper_bound(byte);
    if (after == maps_.begin() || byte >= std::prev(after)->first + std::prev(after)->second) return;
    maps_.erase(std::prev(after));
    any_ = !maps_.empty();
  }
  bool any() const { return any_; }
  void give_back(uintptr_t begin, uintptr_t end) {
    const std::lock_guard lock(mutex_);
    const auto after = maps_.upper_bound(begin);
    if (after == maps_.begin()) return;
    const auto map = std::prev(after);
    if (begin >= map->first + map->second) return;
    end = std::min(end, map->first + map->second);
    const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    // The map's own last page ends with it; a page that other bytes share stays.
    const uintptr_t from = (begin + page - 1) / page * page;
    const uintptr_t to = end == map->first + map->second ? (end + page - 1) / page * page : end / page * page;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  }

 private:
  ShortLock mutex_;
  std::map<uintptr_t, size_t> maps_;
  std::atomic<bool> any_ = false;
};

Returnable& returnable() {
  static Returnable* maps = new Returnable;  // never destroyed: maps may outlive main
  return *maps;
}

// Takes the map off the list before it goes.
struct ReturnableMap {
  explicit ReturnableMap(Bytes bytes) : file(std::move(bytes)) { returnable().add(file.data(), file.size()); }
  ReturnableMap(const ReturnableMap&) = delete;
  ~ReturnableMap() { returnable().remove(file.data()); }
  const Bytes file;
};

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<Bytes> map_file(const std::string& path) {
  // Not blocking: opening a pipe would wait for a writer before we could say that it is no file.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return bad_input(cat(path, ": cannot be opened: ", std::strerror(errno)));
  struct stat about;
  if (fstat(file.fd, &about) != 0) return machine_error(cat(path, ": cannot be examined: ", std::strerror(errno)));
  if (S_ISDIR(about.st_mode)) return bad_input(cat(path, ": is a folder, not a file"));
  if (!S_ISREG(about.st_mode)) return bad_input(cat(path, ": is not a regular file"));
  if (about.st_size == 0) return bad_input(cat(path, ": the file is empty"));
  const size_t size = static_cast<size_t>(about.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) return machine_error(cat(path, ": cannot be mapped: ", std::strerror(errno)));
  return Bytes(std::shared_ptr<const Map>(new Map{address, size}), static_cast<const uint8_t*>(address), size);
}

Result<Bytes> map_part(int fd, size_t offset, size_t size) {
  void* address = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return machine_error(cat("cannot be mapped: ", std::strerror(errno)));
  return read_by_turns(
      Bytes(std::shared_ptr<const Map>(new Map{address, size}), static_cast<const uint8_t*>(address), size));
}

Bytes read_by_turns(Bytes file) {
  auto owner = std::make_shared<ReturnableMap>(file);
  return {std::move(owner), file.data(), file.size()};
}

void give_back(const void* data, size_t size) {
  constexpr size_t kLeast = size_t{1} << 20;
  if (size < kLeast || !returnable().any()) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  returnable().give_back(begin, begin + size);
}

void keep_pages(const void* data) { returnable().remove_around(reinterpret_cast<uintptr_t>(data)); }

}  // namespace tessera
