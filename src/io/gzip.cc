// SPDX-License-Identifier: Apache-2.0
#include "io/gzip.h"

#include <zlib.h>

#include <algorithm>

namespace tessera {

namespace {

constexpr size_t kPiece = size_t{1} << 18;

}  // namespace

bool is_gzip(std::span<const uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

void GzipStream::End::operator()(z_stream_s* stream) const {
  inflateEnd(stream);
  delete stream;
}

GzipStream::GzipStream(std::span<const uint8_t> packed, uint64_t limit_bytes)
    : packed_(packed), limit_bytes_(limit_bytes), piece_(kPiece) {
  auto stream = std::make_unique<z_stream>();
  if (inflateInit2(stream.get(), MAX_WBITS + 16) != Z_OK) {
    status_ = machine_error("zlib cannot start");
    done_ = true;
    return;
  }
  stream_.reset(stream.release());
}

GzipStream::~GzipStream() = default;

// Fills `to`, less at the end; done_ says that nothing follows.
size_t GzipStream::unpack(std::span<uint8_t> to) {
  size_t filled = 0;
  while (filled < to.size() && !done_) {
    const size_t offered = std::min(packed_.size() - taken_, size_t{1} << 30);  // zlib counts in 32 bits
    stream_->next_in = const_cast<uint8_t*>(packed_.data()) + taken_;
    stream_->avail_in = static_cast<uInt>(offered);
    stream_->next_out = to.data() + filled;
    stream_->avail_out = static_cast<uInt>(to.size() - filled);
    const int state = inflate(stream_.get(), Z_NO_FLUSH);
    taken_ += offered - stream_->avail_in;
    filled = to.size() - stream_->avail_out;
    if (state == Z_STREAM_END) {
      done_ = !is_gzip(packed_.subspan(taken_)) || inflateReset(stream_.get()) != Z_OK;
      if (done_ && taken_ < packed_.size() && packed_[taken_] != 0)  // zeros are padding of tapes and blocks
        status_ = bad_input(cat("has bytes after the end of its gzip data, at byte ", taken_));
    } else if (state == Z_BUF_ERROR || (state == Z_OK && offered == 0)) {
      status_ = bad_input(cat("is cut short: its gzip data ends at byte ", taken_, " before it is whole"));
      done_ = true;
    } else if (state != Z_OK) {
      status_ = state == Z_MEM_ERROR ? machine_error("no memory to unpack it")
                                     : bad_input(cat("its gzip data is damaged near byte ", taken_));
      done_ = true;
    }
  }
  return filled;
}

GzipStream::int_type GzipStream::underflow() {
  if (gptr() != egptr()) return traits_type::to_int_type(*gptr());
  if (done_) return traits_type::eof();
  const size_t filled = unpack(piece_);
  unpacked_ += filled;
  if (unpacked_ > limit_bytes_) {
    status_ = bad_input(cat("unpacks to more than ", limit_bytes_, " bytes, which is the limit"));
    done_ = true;
    return traits_type::eof();
  }
  auto* begin = reinterpret_cast<char*>(piece_.data());
  setg(begin, begin, begin + filled);
  return filled == 0 ? traits_type::eof() : traits_type::to_int_type(*begin);
}

Result<std::string> unpack_gzip(std::span<const uint8_t> packed, uint64_t limit_bytes) {
  GzipStream stream(packed, limit_bytes);
  std::string all;
  while (stream.sgetc() != GzipStream::traits_type::eof()) {
    const size_t before = all.size(), more = static_cast<size_t>(stream.in_avail());
    all.resize(before + more);
    stream.sgetn(all.data() + before, static_cast<std::streamsize>(more));
  }
  if (!stream.status().ok()) return stream.status();
  return all;
}

}  // namespace tessera
