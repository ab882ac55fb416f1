// SPDX-License-Identifier: Apache-2.0
// The argument of an attention's softmax, read backwards over scalings, additions, masks by `where`, reshapes and
// casts:
//   scale * product of factors * (q k^T) + sum of factor * added + sum of (mask ? 0 : hidden)
// A factor is one number for all keys of a query (a temperature per head, as in cosine attention): q can have it. A
// `where` that replaces scores by a number that no score comes near (kHidden or less) is an addition of that number:
// both leave a probability of 0. Anything else (a soft cap's tanh) ends the walk: then there is no chain.
#pragma once

#include <optional>
#include <vector>

#include "rewrite/edit/match.h"

namespace tessera {

// What f32 and f64 lose a score in: scores added to it do not change it.
constexpr double kHidden = -1e30;

struct AddedScores {
  ValueId value = kNoValue;  // what is added, or the mask
  Shape over;                // shape of the scores where it is added: it broadcasts to this
  double factor = 1;         // added: it is multiplied by this
  bool is_mask = false;      // where(value, scores, hidden), or where(value, hidden, scores) if `inverted`
  bool inverted = false;
  double hidden = 0;
};

struct QueryFactor {
  ValueId value = kNoValue;
  Shape over;            // shape of the scores where they are multiplied
  bool divides = false;  // they are divided by it
};

struct ScoreChain {
  const Node* product = nullptr;  // q k^T, [b, heads, queries, keys]; its leading axes may be one, or more than two
  double scale = 1;
  std::vector<AddedScores> added;
  std::vector<QueryFactor> factors;
};

// A product of two activations, one per batch and head (or per batch).
bool is_score_product(const Graph& graph, const Node& node);
std::optional<ScoreChain> read_scores(const Graph& graph, const Matcher& matcher, ValueId softmax_input);

// Behind views that show all of a value in its order, copies and casts between floats.
ValueId behind_reshapes(const Graph& graph, const Matcher& matcher, ValueId v);
// v = x * number or x / number.
std::optional<Matcher::WithNumber> read_scaling(const Matcher& matcher, ValueId v);

}  // namespace tessera
