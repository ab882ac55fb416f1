// SPDX-License-Identifier: Apache-2.0
#include "base/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

namespace tessera {

Result<SharedLibrary> SharedLibrary::open(const LibrarySearch& search) {
  const char* asked = std::getenv(search.variable.c_str());
  const bool named = asked != nullptr && *asked != '\0';
  std::vector<std::string> places = {named ? asked : search.file};
  if (!named)
    for (const std::string& folder : search.folders) places.push_back(cat(folder, "/", search.file));
  std::string tried;
  for (const std::string& place : places) {
    SharedLibrary library;
    library.handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_ == nullptr) {
      tried += cat(tried.empty() ? "" : "; ", dlerror());
      continue;
    }
    library.what_ = search.what;
    library.file_ = search.file;
    library.place_ = place;
    return library;
  }
  return machine_error(cat(search.what, " was not found (", tried, "). ",
                           named
                               ? cat(search.variable, " must name ", search.file, "; nothing else is tried")
                               : cat("Put ", search.file, " where the loader looks, or name it in ", search.variable)));
}

Result<void*> SharedLibrary::symbol(const char* name) const {
  void* found = dlsym(handle_, name);
  if (found == nullptr) return machine_error(cat(what_, ": ", place_, " has no function ", name, "; wanted ", file_));
  return found;
}

}  // namespace tessera
