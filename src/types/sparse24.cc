// SPDX-License-Identifier: Apache-2.0
#include "types/sparse24.h"

#include <algorithm>
#include <bit>

#include "types/codes.h"
#include "types/quant_type.h"

namespace tessera {
namespace {

// -0 is zero: a float's sign does not count, an integer's code does as a whole.
bool is_zero(const ElementInfo& element, uint64_t code) {
  const uint64_t sign = element.kind == ElementKind::kFloat ? uint64_t{1} << (element.bits - 1) : 0;
  return (code & ~sign) == 0;
}

}  // namespace

Result<Sparse24> compress24(Element e, const void* codes, int64_t rows, int64_t cols) {
  const ElementInfo& element = info(e);
  if (is_power(e)) return bad_input(cat("2:4: ", element.name, " has no zero"));
  const int64_t groups = groups24(cols), kept_cols = kept24_cols(cols);
  Sparse24 out{Buffer(static_cast<size_t>(packed_bytes(e, rows * kept_cols))),
               Buffer(static_cast<size_t>(rows * meta24_row_bytes(cols)))};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      uint64_t group[4] = {};
      uint32_t nonzero = 0;
      for (int64_t i = 0; i < std::min<int64_t>(4, cols - 4 * g); ++i) {
        group[i] = code_at(codes, element.bits, r * cols + 4 * g + i);
        nonzero |= is_zero(element, group[i]) ? 0u : 1u << i;
      }
      if (std::popcount(nonzero) > 2) {
        return bad_input(cat("2:4: row ", r, ", columns ", 4 * g, " to ", 4 * g + 3, " hold ", std::popcount(nonzero),
                             " numbers that are not zero; at most 2 of 4 are accepted"));
      }
      const uint32_t metadata = metadata24(nonzero);
      set_code(out.kept.data(), element.bits, r * kept_cols + 2 * g, group[first24(metadata)]);
      set_code(out.kept.data(), element.bits, r * kept_cols + 2 * g + 1, group[second24(metadata)]);
      out.metadata.data()[meta24_byte(r, g, cols)] |= static_cast<uint8_t>(metadata << meta24_shift(g));
    }
    if (groups % 2 != 0) out.metadata.data()[meta24_byte(r, groups, cols)] |= static_cast<uint8_t>(metadata24(0) << 4);
  }
  return out;
}

void expand24(Element e, const void* kept, const void* metadata, int64_t rows, int64_t cols, void* codes) {
  const int bits = info(e).bits;
  const int64_t kept_cols = kept24_cols(cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups24(cols); ++g) {
      const uint32_t pair = static_cast<const uint8_t*>(metadata)[meta24_byte(r, g, cols)] >> meta24_shift(g) & 15u;
      uint64_t group[4] = {};
      group[first24(pair)] = code_at(kept, bits, r * kept_cols + 2 * g);
      group[second24(pair)] = code_at(kept, bits, r * kept_cols + 2 * g + 1);
      for (int64_t i = 0; i < std::min<int64_t>(4, cols - 4 * g); ++i)
        set_code(codes, bits, r * cols + 4 * g + i, group[i]);
    }
  }
}

void prune24(float* x, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; c += 4) {
      float* group = x + r * cols + c;
      const int n = static_cast<int>(std::min<int64_t>(4, cols - c));
      uint32_t keep = 0;
      for (int kept = 0; kept < 2; ++kept) {
        int best = -1;
        for (int i = 0; i < n; ++i) {
          if ((keep >> i & 1) != 0) continue;
          if (best < 0 || (bits_of(group[i]) & 0x7fffffffu) > (bits_of(group[best]) & 0x7fffffffu)) best = i;
        }
        if (best >= 0) keep |= 1u << best;
      }
      for (int i = 0; i < n; ++i) {
        if ((keep >> i & 1) == 0) group[i] = 0;
      }
    }
  }
}

}  // namespace tessera
