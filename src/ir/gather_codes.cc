// SPDX-License-Identifier: Apache-2.0
#include "ir/gather_codes.h"

#include "types/codes.h"

namespace tessera {
namespace {

// A width that the compiler knows: plain loads and stores.
template <int kBits>
void gather(const void* codes, const Region& region, void* out) {
  for_each_element(region, [&](int64_t to, int64_t from) { set_code(out, kBits, to, code_at(codes, kBits, from)); });
}

}  // namespace

Buffer gather_codes(const void* codes, int bits, const Region& region) {
  const int64_t count = elements(region.shape);
  Buffer out(static_cast<size_t>((count * bits + 7) / 8));
  switch (bits) {
    case 4:
      gather<4>(codes, region, out.data());
      break;
    case 8:
      gather<8>(codes, region, out.data());
      break;
    case 16:
      gather<16>(codes, region, out.data());
      break;
    case 32:
      gather<32>(codes, region, out.data());
      break;
    default:
      gather<64>(codes, region, out.data());
      break;
  }
  return out;
}

}  // namespace tessera
