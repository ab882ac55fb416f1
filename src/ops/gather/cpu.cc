// SPDX-License-Identifier: Apache-2.0
// All ids are checked before a row moves: a bad one leaves y as it was. Bytes that every row has a number for (pixels)
// need no check, and rows of the result's own type are moved as they lie.
#include <cstring>

#include "base/parallel.h"
#include "op/host_numbers.h"
#include "ops/gather/gather.h"

namespace tessera {
namespace {

class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(GatherProblem problem)
      : p_(std::move(problem)), ids_(static_cast<size_t>(p_.count)), row_({p_.row_elements}, {1}, {1}) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    TS_TRY(read_ids(in[1]));
    const int64_t table_bytes = info(p_.table.element).bits / 8;
    TensorView row = in[0];
    for (int64_t i = 0; i < p_.count; ++i) {
      row.data = static_cast<uint8_t*>(in[0].data) + ids_[static_cast<size_t>(i)] * p_.row_elements * table_bytes;
      row_.run(row, out[0], i * p_.row_elements);
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

// y[i] = table[byte i], rows of kBytes; 0: of row_bytes.
template <size_t kBytes>
void move_rows(const uint8_t* table, const uint8_t* ids, uint8_t* y, int64_t n, size_t row_bytes) {
  const size_t bytes = kBytes == 0 ? row_bytes : kBytes;
  for (int64_t i = 0; i < n; ++i, y += bytes) std::memcpy(y, table + ids[i] * bytes, bytes);
}

class BytesKernel final : public Kernel {
 public:
  explicit BytesKernel(const GatherProblem& p)
      : count_(p.count), row_bytes_(static_cast<size_t>(p.row_elements * info(p.table.element).bits / 8)) {}

  static bool takes(const GatherProblem& p) {
    return p.ids == Element::u8 && p.table_rows >= 256 && p.table == p.y && !p.y.scaled() && p.row_elements > 0 &&
           info(p.y.element).bits % 8 == 0;
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const auto* table = static_cast<const uint8_t*>(in[0].data);
    const auto* ids = static_cast<const uint8_t*>(in[1].data);
    auto* y = static_cast<uint8_t*>(out[0].data);
    const auto move = pick();
    parallel_for(count_, kTogether, [&](int64_t begin, int64_t end) {
      move(table, ids + begin, y + static_cast<size_t>(begin) * row_bytes_, end - begin, row_bytes_);
    });
    return {};
  }

 private:
  static constexpr int64_t kTogether = 8192;  // ids per piece of parallel work: some microseconds
  // f16 and f32, one number or one for each of three channels: moves of a known size are one or two instructions.
  decltype(&move_rows<0>) pick() const {
    switch (row_bytes_) {
      case 2:
        return move_rows<2>;
      case 4:
        return move_rows<4>;
      case 6:
        return move_rows<6>;
      case 12:
        return move_rows<12>;
      default:
        return move_rows<0>;
    }
  }

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
