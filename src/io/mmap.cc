// SPDX-License-Identifier: Apache-2.0
#include "io/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tessera {
namespace {

struct Map {
  void* address;
  size_t size;
  ~Map() { munmap(address, size); }
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

}  // namespace tessera
