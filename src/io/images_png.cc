// SPDX-License-Identifier: Apache-2.0
// PNG by libpng, whose errors jump: between setjmp and the end of a function nothing may have a destructor that the
// jump would skip.
#include "io/images.h"

#if TS_WITH_PNG
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <png.h>
#endif

namespace tessera {

#if !TS_WITH_PNG

Result<Image> decode_png(std::span<const uint8_t>) {
  return machine_error("is a PNG file, and this build reads none: install libpng-dev and build again");
}

#else

namespace {

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const uint8_t> left;
  char text[160] = {};
};

[[noreturn]] void give_up(png_structp png, png_const_charp message) {
  auto* r = static_cast<Reader*>(png_get_error_ptr(png));
  std::snprintf(r->text, sizeof(r->text), "%s", message);
  png_longjmp(png, 1);
}
void pass_over(png_structp, png_const_charp) {}

void take(png_structp png, png_bytep out, size_t n) {
  auto* r = static_cast<Reader*>(png_get_io_ptr(png));
  if (n > r->left.size()) png_error(png, "it ends too early");
  std::memcpy(out, r->left.data(), n);
  r->left = r->left.subspan(n);
}

// False: r.text says why.
bool read_header(Reader& r) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  png_set_read_fn(r.png, &r, take);
  png_set_user_limits(r.png, 0x7fffffff, 0x7fffffff);  // our own limit is on the product
  png_set_chunk_malloc_max(r.png, 8 << 20);
  png_set_crc_action(r.png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
  png_read_info(r.png, r.info);
  return true;
}

bool read_rows(Reader& r, uint8_t* rgb, png_bytepp rows, size_t height, size_t stride) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  png_set_expand(r.png);  // palettes to colours, fewer than 8 bits to 8, transparent colours to alpha
  png_set_scale_16(r.png);
  png_set_gray_to_rgb(r.png);
  png_set_strip_alpha(r.png);
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  if (png_get_rowbytes(r.png, r.info) != stride) png_error(r.png, "its rows are not RGB");
  for (size_t y = 0; y < height; ++y) rows[y] = rgb + y * stride;
  png_read_image(r.png, rows);
  png_read_end(r.png, nullptr);
  return true;
}

}  // namespace

Result<Image> decode_png(std::span<const uint8_t> file) {
  Reader r;
  r.left = file;
  struct Destroy {
    Reader& r;
    ~Destroy() { png_destroy_read_struct(&r.png, &r.info, nullptr); }
  } const destroy{r};
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, give_up, pass_over);
  if (r.png != nullptr) r.info = png_create_info_struct(r.png);
  if (r.info == nullptr) return machine_error("no memory for a PNG reader");
  if (!read_header(r)) return bad_input(cat("is a damaged PNG file: ", r.text));
  Image image{.height = png_get_image_height(r.png, r.info), .width = png_get_image_width(r.png, r.info), .rgb = {}};
  TS_TRY(check_image_size(image.height, image.width));
  const auto height = static_cast<size_t>(image.height), stride = static_cast<size_t>(image.width) * 3;
  image.rgb.resize(height * stride);
  std::vector<png_bytep> rows(height);
  if (!read_rows(r, image.rgb.data(), rows.data(), height, stride))
    return bad_input(cat("is a damaged PNG file: ", r.text));
  return image;
}

#endif

}  // namespace tessera
