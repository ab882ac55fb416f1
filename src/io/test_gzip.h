// SPDX-License-Identifier: Apache-2.0
// Text as gzip, for tests of readers.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

namespace tessera {

inline std::string gzip_of(const std::string& text) {
  std::string out(text.size() + 1000, '\0');
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 9, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

}  // namespace tessera
