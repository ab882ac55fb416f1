// SPDX-License-Identifier: Apache-2.0
// Names by pattern: `*` stands for any characters, `?` for one.
#pragma once

namespace tessera {

bool matches(const char* pattern, const char* text);

}  // namespace tessera
