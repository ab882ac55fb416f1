// SPDX-License-Identifier: Apache-2.0
// Steps of a plan that only move numbers: copies, and casts where the type changes. The one that lays the patches of a
// picture out as rows, in whatever type, is part of the patch embedding that reads them and not counted: a convolution
// reads them so, too.
#pragma once

#include "plan/plan.h"

namespace tessera {

struct CopyCount {
  int64_t copies = 0, casts = 0;
  bool operator==(const CopyCount&) const = default;
};
CopyCount count_copies(const Plan& plan);

}  // namespace tessera
