// SPDX-License-Identifier: Apache-2.0
// What passes that pad linear layers share (pad_heads.h, pad_products.h): zeros between the rows or columns of a
// weight, between the numbers of its vectors, behind the rows of a value. Weights are padded in their own type: zero is
// a code of all zero bits, the scale of a row of zeros is 1, as quantize makes it, and no other scale changes.
#pragma once

#include <string>
#include <vector>

#include "archs/arch.h"
#include "ir/graph.h"
#include "ir/padding.h"
#include "ir/region.h"
#include "rewrite/edit/match.h"

namespace tessera {

// kLeftOut: constants have a shape and no numbers, which is all that kernels are asked about.
enum class PaddedNumbers : uint8_t { kMade, kLeftOut };

// A linear layer, or a convolution in one group, of one matrix in whole bytes, without scales or with those of the
// tensor or of its rows, dense (not 2:4), and vectors of as many numbers as it has rows.
bool can_pad(const Graph& graph, const Node& layer);
// A program each of whose steps leaves a column of zeros as it is.
bool keeps_zeros(const Program& then);

// Contract of both: can_pad. Results and operands that are no constants are the caller's.
void pad_rows(Graph& graph, Node& layer, const PaddedPlaces& places, PaddedNumbers numbers);
void pad_cols(Graph& graph, Node& layer, const PaddedPlaces& places, PaddedNumbers numbers);
// The constant with zeros behind each of its rows; `region`: how it is read.
ValueId pad_constant(Graph& graph, ValueId constant, const Region& region, int64_t cols, PaddedNumbers numbers);

// The value with zeros behind each of its rows, in this type (with the scale of `like`), by one node: concat, or copy
// where the rows are long enough already. A value with more axes than `like` is read in the order of its elements, as
// like's rows (patches straight from an image). `made` gets that node as its last one, not yet in the graph.
ValueId pad_value(Graph& graph, ValueId value, int64_t cols, ValueId like, const std::string& layer,
                  std::vector<Node>& made);

// A read of a value's storage by a node that is no view. Values that came after `producers` was taken do not count.
struct StorageRead {
  size_t node, input;
};
std::vector<StorageRead> reads_of(const Graph& graph, const std::vector<int>& producers, ValueId base);
// Whether the caller reads the storage.
bool is_output(const Graph& graph, const std::vector<int>& producers, ValueId base);

// The copy that gathers v's rows from a value with more axes, where v is all that it makes (an image's patches); else
// null.
const Node* gather_of(const Matcher& matcher, ValueId v);
// Whether a kernel of the target itself takes the node, not only one of every GPU.
bool runs_on_own(const Graph& graph, size_t node, Arch target);

Node view_node(ValueId base, ValueId view, const Region& region);
// The stem, or with the first number behind it that no layer has.
std::string layer_name(const Graph& graph, const std::string& stem);

}  // namespace tessera
