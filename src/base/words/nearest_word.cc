// SPDX-License-Identifier: Apache-2.0
#include "base/words/nearest_word.h"

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

size_t edits_between(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  size_t fewest = word.size() / 4 + 1;  // one slip in a short word, two in one of four to seven letters ...
  for (const std::string& k : known) {
    const bool begins = word.size() >= 3 && k.starts_with(word);
    const size_t edits = begins ? 1 : edits_between(word, k);
    if (edits < fewest || (edits == fewest && best.empty())) best = k, fewest = edits;
  }
  return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

}  // namespace tessera
