// SPDX-License-Identifier: Apache-2.0
// Rows or columns of zeros that a pass put into a layer's weight (lower/pad_heads.h, lower/pad_products.h). The layer
// (and a map that was split off it) says where, in attributes that no kernel reads: lists of triples (count, kept,
// size), each `count` times `kept` rows of the layer's own, then zeros up to `size` rows. [12,72,80]: twelve heads of
// 72 rows have 80 each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/attrs.h"
#include "ir/shape.h"

namespace tessera {

inline constexpr const char *kPaddedRows = "padded_rows", *kPaddedCols = "padded_cols";
// Of a convolution that takes several of its groups as one (lower/merge_groups.h): how many groups it had, and the taps
// of its kernel. Each row of its weight then has zeros at the channels of the other groups. Places come after that.
inline constexpr const char* kMergedGroups = "merged_groups";

// For each padded row the layer's own that it holds; -1: zeros.
using PaddedPlaces = std::vector<int64_t>;

// `count` groups of `kept`, each with zeros behind it up to `size`.
PaddedPlaces padded_groups(int64_t count, int64_t kept, int64_t size);
// What was padded as `first` says, padded once more.
PaddedPlaces padded_again(const PaddedPlaces& first, const PaddedPlaces& second);
std::vector<int64_t> written(const PaddedPlaces& places);

// What an attribute says of `size` padded rows, of which `kept` are the layer's own; nothing where it says something
// else, or is absent.
std::optional<PaddedPlaces> read_places(const Attrs& attrs, const char* name, int64_t kept, int64_t size);

// Numbers of a matrix with so many columns, rows and columns in their places and zeros elsewhere. No places: all as
// they are.
std::vector<double> placed(const std::vector<double>& numbers, int64_t cols, const std::optional<PaddedPlaces>& rows,
                           const std::optional<PaddedPlaces>& of_cols);
// A layer's own weight as its attributes have it padded; empty where they do not say how `shape` becomes `stored`.
std::vector<double> padded_weight(const Attrs& attrs, const std::vector<double>& numbers, const Shape& shape,
                                  const Shape& stored);

}  // namespace tessera
