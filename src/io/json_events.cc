// SPDX-License-Identifier: Apache-2.0
#include "io/json_events.h"

#include <algorithm>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/gzip.h"
#include "io/mmap.h"

namespace tessera {
namespace {

// Hands text on in pieces, each looked over first: a string or number that goes on for too long ends the stream.
class BoundedTokens : public std::streambuf {
 public:
  BoundedTokens(std::span<const uint8_t> file, const JsonEventLimits& limits) : file_(file), limits_(limits) {
    if (is_gzip(file)) packed_.emplace(file, limits.text_bytes);
  }
  Status status() const { return !status_.ok() || !packed_ ? status_ : packed_->status(); }

 protected:
  int_type underflow() override {
    if (gptr() != egptr()) return traits_type::to_int_type(*gptr());
    const std::span<char> piece = packed_ ? next_unpacked() : next_plain();
    if (piece.empty() || !looks_fine(piece)) return traits_type::eof();
    setg(piece.data(), piece.data(), piece.data() + piece.size());
    return traits_type::to_int_type(piece.front());
  }

 private:
  std::span<char> next_plain() {
    constexpr size_t kPiece = size_t{4} << 20;
    if (at_ >= kPiece) give_back(file_.data() + at_ - kPiece, kPiece);  // what was read is not needed again
    const size_t size = std::min(file_.size() - at_, kPiece);
    // A streambuf's area is not const; nothing writes to it.
    char* begin = const_cast<char*>(reinterpret_cast<const char*>(file_.data())) + at_;
    if ((at_ += size) > limits_.text_bytes) {
      status_ = bad_input(cat("has ", file_.size(), " bytes; at most ", limits_.text_bytes, " are read"));
      return {};
    }
    return {begin, size};
  }
  std::span<char> next_unpacked() {
    if (packed_->sgetc() == traits_type::eof()) return {};
    piece_.resize(static_cast<size_t>(packed_->in_avail()));
    packed_->sgetn(piece_.data(), static_cast<std::streamsize>(piece_.size()));
    return piece_;
  }
  bool looks_fine(std::span<const char> piece) {
    for (const char c : piece) {
      if (in_string_) {
        in_string_ = escaped_ || c != '"';
        escaped_ = !escaped_ && c == '\\';
        length_ = in_string_ ? length_ + 1 : 0;
      } else {
        in_string_ = c == '"';
        const bool between = static_cast<unsigned char>(c) <= ' ' || c == ',' || c == ':' || c == '[' || c == ']' ||
                             c == '{' || c == '}' || in_string_;
        length_ = between ? 0 : length_ + 1;
      }
      if (length_ > limits_.token_bytes) {
        status_ = bad_input(cat("holds a string or number of more than ", limits_.token_bytes, " bytes"));
        return false;
      }
    }
    return true;
  }

  const std::span<const uint8_t> file_;
  const JsonEventLimits& limits_;
  std::optional<GzipStream> packed_;
  std::string piece_;
  size_t at_ = 0;
  uint64_t length_ = 0;
  bool in_string_ = false, escaped_ = false;
  Status status_;
};

}  // namespace

// Hands the library's events on.
class JsonEventParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonEventParser(JsonEvents& to, size_t depth) : to_(to), most_depth_(depth) {}
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t v) override { return to_.number(static_cast<double>(v)); }
  bool number_unsigned(number_unsigned_t v) override { return to_.number(static_cast<double>(v)); }
  bool number_float(number_float_t v, const string_t&) override { return to_.number(v); }
  bool string(string_t& v) override { return to_.text(v); }
  bool binary(binary_t&) override { return to_.stop(bad_input("holds binary data")); }
  bool key(string_t& k) override { return to_.key(k); }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return to_.stop(bad_input(cat("is not JSON at byte ", position)));
  }
  const Status& status() const { return to_.status_; }

 private:
  bool open(bool is_object) {
    if (to_.depth_ >= most_depth_) return to_.stop(bad_input(cat("is nested deeper than ", most_depth_, " levels")));
    ++to_.depth_;
    return to_.open(is_object);
  }
  bool close() {
    const bool goes_on = to_.close();
    --to_.depth_;
    return goes_on;
  }

  JsonEvents& to_;
  const size_t most_depth_;
};

Status read_json_events(std::span<const uint8_t> file, JsonEvents& events, const JsonEventLimits& limits) {
  BoundedTokens tokens(file, limits);
  std::istream stream(&tokens);
  JsonEventParser parser(events, limits.depth);
  const bool whole = nlohmann::json::sax_parse(stream, &parser);
  // What ended the stream early is the cause of what the parser says.
  TS_TRY(tokens.status());
  TS_TRY(parser.status());
  return whole ? Status{} : bad_input("is not JSON");
}

}  // namespace tessera
