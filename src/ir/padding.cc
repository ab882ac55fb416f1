// SPDX-License-Identifier: Apache-2.0
#include "ir/padding.h"

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

std::vector<double> padded_weight(const Attrs& attrs, const std::vector<double>& numbers, const Shape& shape,
                                  const Shape& stored) {
  if (shape.size() != 2 || stored.size() != 2 || shape[1] == 0) return {};
  const auto rows = read_places(attrs, kPaddedRows, shape[0], stored[0]),
             cols = read_places(attrs, kPaddedCols, shape[1], stored[1]);
  if ((!rows && shape[0] != stored[0]) || (!cols && shape[1] != stored[1])) return {};
  return placed(numbers, shape[1], rows, cols);
}

}  // namespace tessera
