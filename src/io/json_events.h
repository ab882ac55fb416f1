// SPDX-License-Identifier: Apache-2.0
// JSON that is too large to hold: the parser's events, from text as it is or packed by gzip. Memory stays bounded
// whatever the size of the file, since no string or number may be longer than a limit.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace tessera {

struct JsonEventLimits {
  uint64_t text_bytes = uint64_t{4} << 30;   // unpacked
  uint64_t token_bytes = uint64_t{1} << 20;  // of one string or number
  size_t depth = 64;
};

// What a reader derives from: it overrides the events that it wants. Returning false stops the parser; stop() keeps the
// reason. Strings may be moved from.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual bool number(double) { return true; }
  virtual bool text(std::string&) { return true; }
  virtual bool key(std::string&) { return true; }
  virtual bool open(bool /*is_object*/) { return true; }
  virtual bool close() { return true; }

 protected:
  bool stop(Status why) {
    if (status_.ok()) status_ = std::move(why);
    return false;
  }
  size_t depth() const { return depth_; }  // containers that are open; after open(), before close()

 private:
  friend class JsonEventParser;
  Status status_;
  size_t depth_ = 0;
};

// The error says what is wrong and, for text that is no JSON, at which byte of it.
Status read_json_events(std::span<const uint8_t> file, JsonEvents& events, const JsonEventLimits& limits = {});

}  // namespace tessera
