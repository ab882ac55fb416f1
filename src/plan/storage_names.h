// SPDX-License-Identifier: Apache-2.0
// How engine files spell where a tensor lies; in the order of plan.h's Storage.
#pragma once

#include <string_view>

namespace tessera {

constexpr std::string_view kStorageNames[] = {"arena", "constant", "input", "output", "state"};

}  // namespace tessera
