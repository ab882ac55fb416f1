// SPDX-License-Identifier: Apache-2.0
// Reads a file by mapping it: pages come in when they are touched, and Bytes keeps the map alive.
#pragma once

#include <string>

#include "base/buffer.h"
#include "base/status.h"

namespace tessera {

// Read-only. A file that is missing, empty, a folder or a device is an error that says so.
// The file must not be cut short by somebody else while it is mapped (writers that rename, as ours do, never do that).
Result<Bytes> map_file(const std::string& path);

}  // namespace tessera
