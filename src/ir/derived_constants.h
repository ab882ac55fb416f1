// SPDX-License-Identifier: Apache-2.0
// What is made of a model's constants (transposed, folded, in codes, packed), each once however many graphs and plans
// of the model want it. Graphs of one model share the object (Graph::derived). What is made goes to a scratch file
// (io/scratch_file.h), so that memory holds what is in use and not all that was made.
// An entry's key is what is done, and to which bytes: large ones are told by their address, which stays theirs because
// the entry keeps them; small ones by what they hold.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "io/scratch_file.h"

namespace tessera {

struct Graph;

class DerivedConstants {
 public:
  using Make = std::function<Result<std::vector<Buffer>>()>;

  // The bytes that `recipe` gives for `from`. The recipe says all that the result depends on but the bytes themselves.
  // Where no byte array of `from` is large, `make` is simply called.
  Result<std::vector<Bytes>> once(const std::string& recipe, std::span<const Bytes> from, const Make& make);
  // Bytes for as long as anybody holds them, in the scratch file where they are large.
  Bytes keep(Buffer buffer) { return scratch_.keep(std::move(buffer)); }

  int64_t made() const { return made_; }    // large results that were computed
  int64_t found() const { return found_; }  // and those that were there already

 private:
  struct Entry {
    std::vector<Bytes> from, result;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  ScratchFile scratch_;
  int64_t made_ = 0, found_ = 0;
};

// The same for a graph: without DerivedConstants of its own each call makes its bytes anew.
Result<std::vector<Bytes>> derive(const Graph& graph, const std::string& recipe, std::span<const Bytes> from,
                                  const DerivedConstants::Make& make);

}  // namespace tessera
