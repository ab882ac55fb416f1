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
// Of an open file; it may be closed afterwards. Contract: the offset is a multiple of the page size, the part lies
// inside the file, and nothing writes to it any more. Its pages may be given back.
Result<Bytes> map_part(int fd, size_t offset, size_t size);

// A mapped file whose pages may be given back: weights of a model that is being built, each read a few times.
Bytes read_by_turns(Bytes file);
// The pages of these bytes leave memory until they are touched again, where they lie in such a file; small pieces and
// other memory stay as they are.
void give_back(const void* data, size_t size);
// The file that holds this byte is not read by turns any more: from now on give_back leaves it alone.
void keep_pages(const void* data);

}  // namespace tessera
