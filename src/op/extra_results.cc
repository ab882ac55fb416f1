// SPDX-License-Identifier: Apache-2.0
#include "op/extra_results.h"

namespace tessera {

ExtraResults ExtraResults::of(const Attrs& attrs) {
  ExtraResults b;
  int results = 1;
  if (attrs.integer(kCodesResult) != 0) b.codes = results++;
  if (attrs.integer(kMomentsResult) != 0) b.moments = results++;
  return b;
}

}  // namespace tessera
