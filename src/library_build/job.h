// SPDX-License-Identifier: Apache-2.0
// What the functions of libtessera_build share: one of them at a time, whose caller's functions the process calls; and
// arrays of the caller's as the file that the rooms read.
#pragma once

#include <tessera/tessera_build.h>

#include <string>

#include "base/fork_locks.h"
#include "base/status.h"
#include "library/status.h"

namespace tessera {

// It has no size, and programs hand over arrays of it: it never grows.
static_assert(sizeof(tess_array) == 2 * sizeof(void*));

inline std::string word(const char* text) { return text == nullptr ? "" : text; }

// While it goes on, its caller's functions are those that the process calls.
class Job {
 public:
  Job(tess_progress_function progress, tess_log_function log, void* user);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  // OK, or the error of one that came while another was going on.
  Status status() const;

 private:
  const Turns::Turn mine_;
};

// The samples as a file, for the length of a job.
class ArraysFile {
 public:
  ArraysFile() = default;
  ~ArraysFile();
  ArraysFile(const ArraysFile&) = delete;
  ArraysFile& operator=(const ArraysFile&) = delete;
  // `what`: the field that they are given in. Writes nothing where there are none.
  Status write(const char* what, const tess_array* arrays, size_t count);
  // Of the file, whose name is the same in every job: an engine's record has it. `path` where nothing was written.
  std::string path_or(const char* path) const;
  // The same status, with the field where it names the file.
  Status named(const Status& status) const;

 private:
  std::string folder_, what_;
};

}  // namespace tessera
