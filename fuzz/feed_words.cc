// SPDX-License-Identifier: Apache-2.0
// Words of the command line, and names that files carry.
#include "base/status.h"
#include "fuzz/feeds.h"
#include "io/images_prepare.h"
#include "ir/ranges.h"
#include "precision/quantize.h"
#include "rewrite/port_types.h"
#include "types/quant_type.h"

namespace tessera::fuzz {

void feed_words(std::span<const uint8_t> input) {
  const std::string text(input.begin(), input.end());
  if (const auto type = parse_quant_type(text)) {
    const auto again = parse_quant_type(to_string(*type));
    TS_CHECK(again && *again == *type, to_string(*type));
  }
  if (const auto allowance = parse_allowance(text); allowance.ok()) {
    TS_CHECK(allowance->pattern + "=" + allowance->precision == text, text);
    (void)find_precision(allowance->precision);
  }
  if (const auto preprocess = parse_preprocess(text); preprocess.ok()) {
    const auto again = parse_preprocess(to_string(*preprocess));
    TS_CHECK(again.ok() && *again == *preprocess, to_string(*preprocess));
  }
  if (const auto pixels = parse_pixels(text); pixels.ok()) {
    const auto again = parse_pixels(to_string(*pixels));
    TS_CHECK(again.ok() && *again == *pixels, to_string(*pixels));
  }
  if (const auto port = parse_port_type(text); port.ok()) TS_CHECK(text.starts_with(port->name + "="), text);
  if (const auto method = parse_range_method(text); method.ok()) {
    const auto again = parse_range_method(to_string(*method));
    TS_CHECK(again.ok() && *again == *method, to_string(*method));
  }
}

}  // namespace tessera::fuzz
