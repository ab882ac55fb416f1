// SPDX-License-Identifier: Apache-2.0
#include "ir/shape.h"

#include <algorithm>

namespace tessera {

int64_t elements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

int64_t cols_of(const Shape& shape) { return shape.empty() ? 1 : shape.back(); }

int64_t rows_of(const Shape& shape) { return elements(shape) / std::max<int64_t>(1, cols_of(shape)); }

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? "," : "") + std::to_string(shape[i]);
  return out + "]";
}

Shape dense_strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

bool is_dense(const Shape& shape, const Shape& strides) {
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

RowView as_rows(const Shape& shape, const Shape& strides) {
  RowView v;
  if (shape.empty()) return {true, 1, 1, 1};
  const size_t last = shape.size() - 1;
  v.cols = shape[last];
  if (v.cols != 1 && strides[last] != 1) return v;
  v.row_stride = v.cols;
  bool first = true;
  int64_t expected = 0;
  for (size_t i = last; i-- > 0;) {
    if (shape[i] == 1) continue;
    if (first) {
      v.row_stride = strides[i];
      first = false;
    } else if (strides[i] != expected) {
      return v;
    }
    expected = strides[i] * shape[i];
    v.rows *= shape[i];
  }
  v.uniform = true;
  return v;
}

bool reshape_strides(const Shape& from, const Shape& strides, const Shape& shape, Shape* result) {
  if (elements(from) != elements(shape)) return false;
  result->assign(shape.size(), 0);
  if (elements(from) == 0) {
    *result = dense_strides(shape);
    return true;
  }
  // Walk both shapes from the back; group the axes of `from` whose product equals a group of `shape`, and require each
  // group to be contiguous.
  size_t i = from.size(), j = shape.size();
  while (i > 0 || j > 0) {
    int64_t have = 1, want = 1;
    const size_t group_end_i = i, group_end_j = j;
    do {
      if (have <= want && i > 0) {
        have *= from[--i];
      } else if (j > 0) {
        want *= shape[--j];
      } else {
        have *= from[--i];
      }
    } while (have != want);
    // Leading ones join the group that follows them.
    if (i == 0) {
      while (j > 0 && shape[j - 1] == 1) --j;
    }
    if (j == 0) {
      while (i > 0 && from[i - 1] == 1) --i;
    }
    // Contiguity of from[i .. group_end_i): each axis steps over the next one whole.
    int64_t inner = -1, expected = -1;
    for (size_t a = group_end_i; a-- > i;) {
      if (from[a] == 1) continue;
      if (inner < 0) {
        inner = strides[a];
      } else if (strides[a] != expected) {
        return false;
      }
      expected = strides[a] * from[a];
    }
    int64_t step = inner < 0 ? 1 : inner;
    for (size_t a = group_end_j; a-- > j;) {
      (*result)[a] = step;
      step *= shape[a];
    }
  }
  return true;
}

}  // namespace tessera
