// SPDX-License-Identifier: Apache-2.0
// What comparisons found, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "verify/verdicts.h"

namespace tessera {

nlohmann::ordered_json check_json(const VerifyCheck& check);

}  // namespace tessera
