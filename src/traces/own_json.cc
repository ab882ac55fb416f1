// SPDX-License-Identifier: Apache-2.0
// The project's own form (profile_json.cc): classes and precisions are in it, so that rules are not asked again.
#include "traces/format.h"

namespace tessera {

bool looks_like_own_json(const Opening& o) { return o.is_object && o.format == "tessera profile"; }

Result<Profile> read_own_json(const Input& input) {
  if (!input.beside.empty()) return bad_input("is a profile of tessera, to which no further file belongs");
  if (input.options.runs > 0) return bad_input("is a profile of tessera, which says its runs itself");
  TS_ASSIGN(const std::string text, input.main.text());
  return parse_profile(text);
}

}  // namespace tessera
