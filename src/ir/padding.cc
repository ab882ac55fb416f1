// SPDX-License-Identifier: Apache-2.0
#include "ir/padding.h"

#include <algorithm>

namespace tessera {

PaddedPlaces padded_groups(int64_t count, int64_t kept, int64_t size) {
  PaddedPlaces places;
  places.reserve(static_cast<size_t>(count * size));
  for (int64_t g = 0; g < count; ++g) {
    for (int64_t i = 0; i < size; ++i) places.push_back(i < kept ? g * kept + i : -1);
  }
  return places;
}

PaddedPlaces padded_again(const PaddedPlaces& first, const PaddedPlaces& second) {
  PaddedPlaces places;
  places.reserve(second.size());
  for (const int64_t at : second) places.push_back(at < 0 ? -1 : first[static_cast<size_t>(at)]);
  return places;
}

std::vector<int64_t> written(const PaddedPlaces& places) {
  std::vector<int64_t> triples;
  for (size_t i = 0; i < places.size();) {
    int64_t kept = 0, size = 0;
    for (; i < places.size() && places[i] >= 0; ++i) ++kept, ++size;
    for (; i < places.size() && places[i] < 0; ++i) ++size;
    const size_t n = triples.size();
    if (n > 0 && triples[n - 2] == kept && triples[n - 1] == size) {
      ++triples[n - 3];
    } else {
      triples.insert(triples.end(), {1, kept, size});
    }
  }
  return triples;
}

std::optional<PaddedPlaces> read_places(const Attrs& attrs, const char* name, int64_t kept, int64_t size) {
  const std::vector<int64_t> triples = attrs.list(name);
  if (triples.empty() || triples.size() % 3 != 0) return std::nullopt;
  PaddedPlaces places;
  int64_t own = 0, all = 0;
  for (size_t t = 0; t < triples.size(); t += 3) {
    const int64_t count = triples[t], some = triples[t + 1], group = triples[t + 2];
    // An engine file may say anything: nothing is made that is larger than the weight.
    if (count <= 0 || some < 0 || group < some || group <= 0 || group > size - all || count > (size - all) / group)
      return std::nullopt;
    for (const int64_t at : padded_groups(count, some, group)) places.push_back(at < 0 ? -1 : own + at);
    own += count * some, all += count * group;
  }
  return own == kept && all == size ? std::optional(std::move(places)) : std::nullopt;
}

std::vector<double> placed(const std::vector<double>& numbers, int64_t cols, const std::optional<PaddedPlaces>& rows,
                           const std::optional<PaddedPlaces>& of_cols) {
  const size_t own = static_cast<size_t>(cols), height = rows ? rows->size() : numbers.size() / own,
               width = of_cols ? of_cols->size() : own;
  std::vector<double> made(height * width, 0.0);
  for (size_t r = 0; r < height; ++r) {
    const int64_t row = rows ? (*rows)[r] : static_cast<int64_t>(r);
    for (size_t c = 0; row >= 0 && c < width; ++c) {
      const int64_t col = of_cols ? (*of_cols)[c] : static_cast<int64_t>(c);
      if (col >= 0) made[r * width + c] = numbers[static_cast<size_t>(row * cols + col)];
    }
  }
  return made;
}

namespace {

// The weight with the zeros of merged groups, and its shape; false where attributes do not fit it, or `stored` is
// smaller.
bool merge_groups(const Attrs& attrs, std::vector<double>& numbers, Shape& shape, const Shape& stored) {
  const std::vector<int64_t> said = attrs.list(kMergedGroups);
  if (said.empty()) return true;
  const int64_t count = said[0], taps = said.size() == 2 ? said[1] : 0, left = attrs.integer("groups", 1);
  if (count < 1 || taps < 1 || left < 1 || count % left != 0 || shape[0] % count != 0 || shape[1] % taps != 0)
    return false;
  const int64_t merge = count / left, channels = shape[1] / taps, of_group = shape[0] / count;
  // An engine file may say anything: nothing is made that is larger than the weight.
  if (shape[1] < 1 || merge > stored[1] / shape[1] || shape[0] > stored[0]) return false;
  std::vector<double> made(numbers.size() * static_cast<size_t>(merge), 0.0);
  for (int64_t run = 0; run < shape[0] * taps; ++run) {
    const int64_t group = run / taps / std::max<int64_t>(of_group, 1);
    std::copy_n(numbers.begin() + run * channels, channels, made.begin() + (run * merge + group % merge) * channels);
  }
  numbers = std::move(made);
  shape[1] *= merge;
  return true;
}

}  // namespace

std::vector<double> padded_weight(const Attrs& attrs, const std::vector<double>& own, const Shape& own_shape,
                                  const Shape& stored) {
  if (own_shape.size() != 2 || stored.size() != 2 || own_shape[1] == 0) return {};
  std::vector<double> numbers = own;
  Shape shape = own_shape;
  if (!merge_groups(attrs, numbers, shape, stored)) return {};
  const auto rows = read_places(attrs, kPaddedRows, shape[0], stored[0]),
             cols = read_places(attrs, kPaddedCols, shape[1], stored[1]);
  if ((!rows && shape[0] != stored[0]) || (!cols && shape[1] != stored[1])) return {};
  return placed(numbers, shape[1], rows, cols);
}

}  // namespace tessera
