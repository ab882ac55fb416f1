// SPDX-License-Identifier: Apache-2.0
// A library that is opened when it is first needed and stays open until the process ends. Looked for in this order:
//   the file that an environment variable names, and no other where it is set
//   the loader's own search (LD_LIBRARY_PATH, the system's folders)
//   the folders given
#pragma once

#include <span>
#include <string>

#include "base/status.h"

namespace tessera {

struct LibrarySearch {
  std::string what;      // how a reader knows it: "cuBLASLt"
  std::string file;      // "libcublasLt.so.12"
  std::string variable;  // the environment variable
  std::span<const std::string> folders;
};

class SharedLibrary {
 public:
  // An error says every place that was tried and what each answered.
  static Result<SharedLibrary> open(const LibrarySearch& search);

  template <class Function>
  Status find(Function& to, const char* name) const {
    Result<void*> found = symbol(name);
    if (!found.ok()) return found.status();
    to = reinterpret_cast<Function>(*found);
    return {};
  }
  const std::string& place() const { return place_; }

 private:
  Result<void*> symbol(const char* name) const;

  void* handle_ = nullptr;
  std::string what_, file_, place_;
};

}  // namespace tessera
