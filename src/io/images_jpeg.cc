// SPDX-License-Identifier: Apache-2.0
// Baseline and progressive JPEG by libjpeg, whose errors jump: between setjmp and the end of a function nothing may
// have a destructor that the jump would skip.
#include "io/images.h"

#if TS_WITH_JPEG
#include <csetjmp>
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>
#endif

namespace tessera {

#if !TS_WITH_JPEG

Result<Image> decode_jpeg(std::span<const uint8_t>) {
  return machine_error("is a JPEG file, and this build reads none: install libjpeg-dev and build again");
}

#else

namespace {

constexpr int kScans = 100;  // a progressive file of more is meant to keep the reader busy

struct Errors {
  jpeg_error_mgr base;  // first: libjpeg hands back its address
  jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void give_up(j_common_ptr c) {
  auto* errors = reinterpret_cast<Errors*>(c->err);
  c->err->format_message(c, errors->text);
  longjmp(errors->back, 1);
}

// libjpeg fills what is missing with grey and goes on: that would be made-up data.
void on_message(j_common_ptr c, int level) {
  if (level < 0 && c->err->msg_code != JWRN_EXTRANEOUS_DATA) give_up(c);
}
void print_nothing(j_common_ptr) {}

void watch_scans(j_common_ptr c) {
  auto* errors = reinterpret_cast<Errors*>(c->err);
  if (reinterpret_cast<j_decompress_ptr>(c)->input_scan_number <= kScans) return;
  std::snprintf(errors->text, sizeof(errors->text), "more than %d scans", kScans);
  longjmp(errors->back, 1);
}

struct Reader {
  jpeg_decompress_struct jpeg;
  Errors errors;
  jpeg_progress_mgr progress;
};

// False: errors.text says why.
bool read_header(Reader& r, const uint8_t* data, size_t size) {
  if (setjmp(r.errors.back)) return false;
  jpeg_create_decompress(&r.jpeg);
  r.progress.progress_monitor = watch_scans;
  r.jpeg.progress = &r.progress;
  r.jpeg.mem->max_memory_to_use = long{1} << 30;
  jpeg_mem_src(&r.jpeg, data, size);
  jpeg_read_header(&r.jpeg, TRUE);
  return true;
}

bool read_rows(Reader& r, uint8_t* rgb) {
  if (setjmp(r.errors.back)) return false;
  r.jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&r.jpeg);
  while (r.jpeg.output_scanline < r.jpeg.output_height) {
    JSAMPROW row = rgb + size_t{r.jpeg.output_scanline} * r.jpeg.output_width * 3;
    jpeg_read_scanlines(&r.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&r.jpeg);
  return true;
}

}  // namespace

Result<Image> decode_jpeg(std::span<const uint8_t> file) {
  Reader r{};
  struct Destroy {
    Reader& r;
    ~Destroy() { jpeg_destroy_decompress(&r.jpeg); }
  } const destroy{r};
  r.jpeg.err = jpeg_std_error(&r.errors.base);
  r.errors.base.error_exit = give_up;
  r.errors.base.emit_message = on_message;
  r.errors.base.output_message = print_nothing;
  if (!read_header(r, file.data(), file.size())) return bad_input(cat("is a damaged JPEG file: ", r.errors.text));
  if (r.jpeg.jpeg_color_space == JCS_CMYK || r.jpeg.jpeg_color_space == JCS_YCCK)
    return bad_input("is a CMYK JPEG file; wanted RGB or grey");
  Image image{.height = r.jpeg.image_height, .width = r.jpeg.image_width, .rgb = {}};
  TS_TRY(check_image_size(image.height, image.width));
  image.rgb.resize(static_cast<size_t>(image.height * image.width * 3));
  if (!read_rows(r, image.rgb.data())) return bad_input(cat("is a damaged JPEG file: ", r.errors.text));
  return image;
}

#endif

}  // namespace tessera
