// SPDX-License-Identifier: Apache-2.0
// All ids are checked before a row moves: a bad one leaves y as it was. Bytes that every row has a number for (pixels)
// need no check, and rows of the result's own type are moved as they lie.
#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "op/host_numbers.h"
#include "ops/gather/gather.h"

namespace tessera {
namespace {

// A piece of parallel work: some microseconds.
constexpr int64_t kPieceRows = 8192, kPieceBytes = 64 << 10, kPieceNumbers = 16 * kChunk;

// y[i] = table[ids[i]], rows of kBytes; 0: of row_bytes.
template <size_t kBytes, class Id>
void move_rows(const uint8_t* table, const Id* ids, uint8_t* y, int64_t n, size_t row_bytes) {
  const size_t bytes = kBytes == 0 ? row_bytes : kBytes;
  for (int64_t i = 0; i < n; ++i, y += bytes) std::memcpy(y, table + static_cast<size_t>(ids[i]) * bytes, bytes);
}

// f16 and f32, one number or one for each of three channels: moves of a known size are one or two instructions.
template <class Id>
decltype(&move_rows<0, Id>) mover_of(size_t row_bytes) {
  switch (row_bytes) {
    case 2:
      return move_rows<2, Id>;
    case 4:
      return move_rows<4, Id>;
    case 6:
      return move_rows<6, Id>;
    case 12:
      return move_rows<12, Id>;
    default:
      return move_rows<0, Id>;
  }
}

bool moves_bytes(const GatherProblem& p) { return p.table == p.y && !p.y.scaled() && info(p.y.element).bits % 8 == 0; }

size_t row_bytes_of(const GatherProblem& p) {
  return static_cast<size_t>(p.row_elements * info(p.table.element).bits / 8);
}

// Rows that lie whole in pieces, or, where they are longer, pieces that lie whole in rows.
template <class Id>
void gather_rows(const uint8_t* table, const Id* ids, uint8_t* y, int64_t count, size_t row_bytes) {
  const int64_t bytes = static_cast<int64_t>(row_bytes), of_row = divide_up(bytes, kPieceBytes);
  if (of_row == 0) return;
  if (of_row == 1) {
    const auto move = mover_of<Id>(row_bytes);
    const int64_t rows = std::min(kPieceBytes / bytes, kPieceRows);
    parallel_for(count, rows, [&](int64_t begin, int64_t end) {
      move(table, ids + begin, y + static_cast<size_t>(begin) * row_bytes, end - begin, row_bytes);
    });
    return;
  }
  parallel_for(count * of_row, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / of_row, first = i % of_row * kPieceBytes;
      std::memcpy(y + row * bytes + first, table + static_cast<int64_t>(ids[row]) * bytes + first,
                  static_cast<size_t>(std::min(kPieceBytes, bytes - first)));
    }
  });
}

class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(GatherProblem problem)
      : p_(std::move(problem)), ids_(static_cast<size_t>(p_.count)), row_({p_.row_elements}, {1}, {1}) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    TS_TRY(read_ids(in[1]));
    const auto* table = static_cast<const uint8_t*>(in[0].data);
    const size_t row_bytes = row_bytes_of(p_);
    if (moves_bytes(p_)) {
      gather_rows(table, ids_.data(), static_cast<uint8_t*>(out[0].data), p_.count, row_bytes);
      return {};
    }
    const auto convert = [&](int64_t begin, int64_t end) {
      TensorView row = in[0];
      for (int64_t i = begin; i < end; ++i) {
        row.data = static_cast<uint8_t*>(in[0].data) + static_cast<size_t>(ids_[static_cast<size_t>(i)]) * row_bytes;
        row_.run(row, out[0], i * p_.row_elements);
      }
    };
    if (p_.row_elements > kPieceNumbers) {
      convert(0, p_.count);  // each row on all threads
    } else {
      parallel_for(p_.count, kPieceNumbers / std::max<int64_t>(1, p_.row_elements), convert);
    }
    return {};
  }

 private:
  // Integers are read as they are: f64 would blur ids above 2^53.
  static int64_t id_at(const TensorView& ids, int64_t i) {
    const auto as = [&](auto code) { return static_cast<int64_t>(static_cast<const decltype(code)*>(ids.data)[i]); };
    const Element e = ids.desc->type.element;
    return e == Element::i64 ? as(int64_t{}) : e == Element::i32 ? as(int32_t{}) : as(uint8_t{});
  }

  Status read_ids(const TensorView& ids) {
    for (int64_t i = 0; i < p_.count; ++i) {
      const int64_t id = id_at(ids, i), row = id < 0 ? id + p_.table_rows : id;
      if (row < 0 || row >= p_.table_rows) {
        return bad_input(
            cat("gather: id ", id, " at position ", i, " is outside the table of ", p_.table_rows, " rows"));
      }
      ids_[static_cast<size_t>(i)] = row;
    }
    return {};
  }

  GatherProblem p_;
  std::vector<int64_t> ids_;
  Conversion row_;
};

class BytesKernel final : public Kernel {
 public:
  explicit BytesKernel(const GatherProblem& p) : count_(p.count), row_bytes_(row_bytes_of(p)) {}

  static bool takes(const GatherProblem& p) { return p.ids == Element::u8 && p.table_rows >= 256 && moves_bytes(p); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    gather_rows(static_cast<const uint8_t*>(in[0].data), static_cast<const uint8_t*>(in[1].data),
                static_cast<uint8_t*>(out[0].data), count_, row_bytes_);
    return {};
  }

 private:
  const int64_t count_;
  const size_t row_bytes_;
};

Verdict accepts(const Problem& p) {
  for (const Operand& o : p.in) TS_REQUIRE(o.dense(), "reads a dense table and dense ids");
  const Element ids = p.in[1].type.element;
  TS_REQUIRE(ids == Element::i64 || ids == Element::i32 || ids == Element::u8, "reads ids in i64, i32 or u8, not ",
             to_string(p.in[1].type));
  return accepts_all_numbers(p);
}

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  GatherProblem g = GatherProblem::of(p);
  if (BytesKernel::takes(g)) return std::unique_ptr<Kernel>(std::make_unique<BytesKernel>(g));
  return std::unique_ptr<Kernel>(std::make_unique<GatherKernel>(std::move(g)));
}

}  // namespace

const Variant& gather_cpu() {
  static const Variant kVariant{
      .name = "gather/cpu", .arch = Arch::cpu, .accepts = accepts, .arithmetic = generic_arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
