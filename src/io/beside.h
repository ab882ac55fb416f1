// SPDX-License-Identifier: Apache-2.0
// Files that another file names (a model's external data, the parts of a checkpoint): they lie in that file's folder or
// below it, whatever the name says and wherever links lead.
#pragma once

#include <string>

#include "base/status.h"

namespace tessera {

// Path of the file that `file` calls `name`. Refused: a name that is empty, absolute or climbs, and a link that leads
// out of the folder. Where `file` is itself a link (downloads are kept that way), its target's folder counts too.
Result<std::string> path_beside(const std::string& file, const std::string& name);

}  // namespace tessera
