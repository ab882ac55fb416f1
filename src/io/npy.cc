// SPDX-License-Identifier: Apache-2.0
#include "io/npy.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "base/memory.h"

namespace tessera {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kLongestHeader = size_t{1} << 16;  // 64 axes and three words need far less
constexpr size_t kMostAxes = 64;                    // numpy's own limit

struct Dtype {
  const char* word;
  int bytes;
  double (*number)(const uint8_t*);
};

template <class T>
double number(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof(v));
  return static_cast<double>(v);
}

double half_number(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude =
      exponent == 31  ? (fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity())
      : exponent == 0 ? std::ldexp(fraction, -24)
                      : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

constexpr Dtype kDtypes[] = {
    {"<f4", 4, number<float>},    {"<f8", 8, number<double>},   {"<f2", 2, half_number},
    {"|i1", 1, number<int8_t>},   {"<i2", 2, number<int16_t>},  {"<i4", 4, number<int32_t>},
    {"<i8", 8, number<int64_t>},  {"|u1", 1, number<uint8_t>},  {"<u2", 2, number<uint16_t>},
    {"<u4", 4, number<uint32_t>}, {"<u8", 8, number<uint64_t>}, {"|b1", 1, number<uint8_t>},
};
static_assert(std::endian::native == std::endian::little);

const Dtype* find_dtype(std::string_view word) {
  for (const Dtype& d : kDtypes) {
    if (word == d.word) return &d;
  }
  return nullptr;
}

// Reads the header's dict: three keys in any order, Python's spelling.
class DictReader {
 public:
  explicit DictReader(std::string_view text) : text_(text) {}

  Status read(NpyHeader* header) {
    bool have_descr = false, have_order = false, have_shape = false;
    if (!take('{')) return wrong("a dict in braces");
    while (!take('}')) {
      const std::optional<std::string> key = quoted();
      if (!key || !take(':')) return wrong("a quoted key and a colon");
      if (*key == "descr" && !have_descr) {
        TS_TRY(read_descr(header));
        have_descr = true;
      } else if (*key == "fortran_order" && !have_order) {
        if (word("True")) {
          header->fortran_order = true;
        } else if (!word("False")) {
          return wrong("True or False");
        }
        have_order = true;
      } else if (*key == "shape" && !have_shape) {
        TS_TRY(read_shape(header));
        have_shape = true;
      } else {
        return bad_input(cat("the .npy header has an unknown or repeated key '", *key, "'"));
      }
      if (!take(',') && peek() != '}') return wrong("a comma or a closing brace");
    }
    skip_blanks();
    if (at_ < text_.size()) return wrong("nothing more");
    if (!have_descr || !have_order || !have_shape)
      return bad_input("the .npy header lacks one of descr, fortran_order, shape");
    return {};
  }

 private:
  Status wrong(const char* wanted) const {
    return bad_input(cat("the .npy header is not understood at character ", at_, ": want ", wanted));
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view w) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(w)) return false;
    at_ += w.size();
    return true;
  }
  std::optional<std::string> quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }

  Status read_descr(NpyHeader* header) {
    const std::optional<std::string> descr = quoted();
    if (!descr) return bad_input("the array's type is not a plain number (a structured type?)");
    // numpy writes '|' for single bytes and '<' for the rest; other programs leave it out or write '='.
    std::string_view kind = *descr;
    const char order = kind.empty() ? '\0' : kind.front();
    if (order == '<' || order == '>' || order == '|' || order == '=') kind.remove_prefix(1);
    for (const Dtype& d : kDtypes) {
      if (kind != d.word + 1 || (order == '>' && d.bytes > 1)) continue;
      header->dtype = d.word;
      return {};
    }
    return bad_input(
        cat("the array's type '", *descr,
            "' is not read; little-endian floats (f2 f4 f8), integers (i1 to i8, u1 to u8) and bools (b1) are"));
  }

  Status read_shape(NpyHeader* header) {
    if (!take('(')) return wrong("a tuple of sizes");
    while (!take(')')) {
      skip_blanks();
      int64_t size = 0;
      const size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        const int digit = text_[at_] - '0';
        if (size > (std::numeric_limits<int64_t>::max() - digit) / 10)
          return bad_input("a size in the array's shape is too large");
        size = size * 10 + digit;
      }
      if (at_ == begin) return wrong("a size that is a whole number");
      header->shape.push_back(size);
      if (header->shape.size() > kMostAxes) return bad_input(cat("the array has more than ", kMostAxes, " axes"));
      if (!take(',') && peek() != ')') return wrong("a comma or a closing bracket");
    }
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Elements of a shape, or nothing where their bytes do not fit in 63 bits.
std::optional<int64_t> checked_count(const std::vector<int64_t>& shape, int64_t element_bytes) {
  // Sizes next to a zero count too: whoever multiplies them later may not overflow either.
  int64_t n = 1;
  bool empty = false;
  for (int64_t d : shape) {
    if (d == 0) {
      empty = true;
    } else if (n > std::numeric_limits<int64_t>::max() / element_bytes / d) {
      return std::nullopt;
    } else {
      n *= d;
    }
  }
  return empty ? 0 : n;
}

// out[c order] = in[fortran order]: walks the output in order and keeps the input's index with it.
void transpose(const uint8_t* in, const std::vector<int64_t>& shape, int64_t count, int64_t size, uint8_t* out) {
  std::vector<int64_t> index(shape.size(), 0), stride(shape.size());
  int64_t step = 1;
  for (size_t a = 0; a < shape.size(); ++a) {
    stride[a] = step;
    step *= shape[a];
  }
  int64_t from = 0;
  for (int64_t to = 0; to < count; ++to) {
    std::memcpy(out + to * size, in + from * size, static_cast<size_t>(size));
    for (size_t a = shape.size(); a-- > 0;) {
      from += stride[a];
      if (++index[a] < shape[a]) break;
      from -= stride[a] * shape[a];
      index[a] = 0;
    }
  }
}

}  // namespace

int64_t dtype_bytes(const std::string& dtype) {
  const Dtype* d = find_dtype(dtype);
  return d ? d->bytes : 0;
}

int64_t Array::count() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

Result<NpyHeader> parse_npy_header(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) return bad_input("is not a .npy array (it does not begin with \\x93NUMPY)");
  if (text.size() < 10) return bad_input("the .npy header is cut short");
  const int version = bytes[6];
  if (version < 1 || version > 3) return bad_input(cat(".npy version ", version, " is not known (1 to 3 are)"));
  const size_t prefix = version == 1 ? 10 : 12;
  if (text.size() < prefix) return bad_input("the .npy header is cut short");
  const size_t length =
      version == 1 ? size_t{bytes[8]} | size_t{bytes[9]} << 8
                   : size_t{bytes[8]} | size_t{bytes[9]} << 8 | size_t{bytes[10]} << 16 | size_t{bytes[11]} << 24;
  if (length > kLongestHeader)
    return bad_input(cat("the .npy header claims ", length, " bytes; at most ", kLongestHeader, " are read"));
  if (text.size() < prefix + length) return bad_input("the .npy header is cut short");
  NpyHeader header;
  TS_TRY(DictReader(text.substr(prefix, length)).read(&header));
  const std::optional<int64_t> count = checked_count(header.shape, dtype_bytes(header.dtype));
  if (!count) return bad_input("the array's shape is too large for any memory");
  header.count = *count;
  header.header_bytes = prefix + length;
  return header;
}

Result<Array> parse_npy(std::span<const uint8_t> bytes, const std::string& name) {
  TS_ASSIGN(NpyHeader header, parse_npy_header(bytes));
  const int64_t size = dtype_bytes(header.dtype);
  const size_t want = static_cast<size_t>(header.count * size), have = bytes.size() - header.header_bytes;
  if (have != want) {
    return bad_input(cat("the array's shape needs ", want, " bytes of numbers, the file has ", have,
                         have < want ? " (cut short?)" : ""));
  }
  TS_ASSIGN(Buffer data, allocate(static_cast<int64_t>(want), cat("array '", name, "'")));
  const uint8_t* numbers = bytes.data() + header.header_bytes;
  if (header.fortran_order && header.shape.size() > 1) {
    transpose(numbers, header.shape, header.count, size, data.data());
  } else if (want > 0) {
    std::memcpy(data.data(), numbers, want);
  }
  return Array{name, std::move(header.shape), std::move(header.dtype), Bytes::own(std::move(data))};
}

std::string npy_header(const Array& array) {
  std::string dict = "{'descr': '" + array.dtype + "', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < array.shape.size(); ++i) {
    dict += std::to_string(array.shape[i]) + (array.shape.size() == 1 ? "," : i + 1 < array.shape.size() ? ", " : "");
  }
  dict += "), }";
  // 10 bytes in front, a newline at the end, blanks between: the numbers begin at a multiple of 64. 64 axes of 19
  // digits fit version 1.
  dict.append(64 - (10 + dict.size() + 1) % 64, ' ');
  dict += '\n';
  std::string out(kMagic);
  out += '\x01';
  out += '\x00';
  out += static_cast<char>(dict.size() & 255);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict;
}

std::vector<double> numbers_of(const Array& array) {
  const Dtype* d = find_dtype(array.dtype);
  TS_CHECK(d != nullptr, "array ", array.name, " has type ", array.dtype);
  std::vector<double> out(static_cast<size_t>(array.count()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = d->number(array.data.data() + i * static_cast<size_t>(d->bytes));
  return out;
}

Array make_array(std::string name, std::vector<int64_t> shape, std::span<const float> numbers) {
  Buffer data(numbers.size_bytes());
  if (!numbers.empty()) std::memcpy(data.data(), numbers.data(), numbers.size_bytes());
  Array array{std::move(name), std::move(shape), "<f4", Bytes::own(std::move(data))};
  TS_CHECK(array.count() == static_cast<int64_t>(numbers.size()), "array ", array.name);
  return array;
}

}  // namespace tessera
