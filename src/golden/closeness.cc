// SPDX-License-Identifier: Apache-2.0
#include "golden/closeness.h"

#include <algorithm>

namespace tessera {
namespace {

double cosine_of(double product, double got, double want) {
  return got > 0 && want > 0 ? product / std::sqrt(got * want) : (got == want ? 1.0 : 0.0);
}

}  // namespace

Closeness compare(std::span<const double> got, std::span<const double> want, int64_t samples) {
  Closeness c{.cosine_mean = 0, .centred_mean = 0};
  const size_t n = samples > 0 ? want.size() / static_cast<size_t>(samples) : 0;
  double error = 0, size = 0, product = 0, got_size = 0;
  for (int64_t s = 0; s < samples; ++s) {
    const size_t begin = static_cast<size_t>(s) * n, end = begin + n;
    double gw = 0, gg = 0, ww = 0, g_sum = 0, w_sum = 0;
    for (size_t i = begin; i < end; ++i) {
      gw += got[i] * want[i];
      gg += got[i] * got[i];
      ww += want[i] * want[i];
      g_sum += got[i], w_sum += want[i];
      error += (got[i] - want[i]) * (got[i] - want[i]);
    }
    size += ww, product += gw, got_size += gg;
    const double count = static_cast<double>(std::max<size_t>(n, 1));
    double cgw = 0, cgg = 0, cww = 0;  // a second pass: no difference of large squares
    for (size_t i = begin; i < end; ++i) {
      const double g = got[i] - g_sum / count, w = want[i] - w_sum / count;
      cgw += g * w, cgg += g * g, cww += w * w;
    }
    // Of one number nothing is left but the mean.
    const double cosine = cosine_of(gw, gg, ww), centred = n == 1 ? cosine : cosine_of(cgw, cgg, cww);
    c.cosine_mean += cosine / static_cast<double>(samples);
    c.centred_mean += centred / static_cast<double>(samples);
    if (!(cosine >= c.cosine_worst)) c.cosine_worst = cosine, c.worst_sample = s;
    if (!(centred >= c.centred_worst)) c.centred_worst = centred;
    if (!std::isfinite(gg)) c.finite = false;
  }
  c.samples = samples;
  c.alone = n == 1 && samples == 1;
  if (n == 1 && samples > 1) {
    c.cosine_mean = c.cosine_worst = c.centred_mean = c.centred_worst = cosine_of(product, got_size, size);
    c.worst_sample = 0;
  }
  c.error_squares = error, c.size_squares = size;
  c.relative_l2 = size > 0 ? std::sqrt(error / size) : std::sqrt(error);
  return c;
}

Agreement count_same(std::span<const double> got, std::span<const double> want) {
  Agreement a{.all = static_cast<int64_t>(want.size())};
  for (size_t i = 0; i < want.size() && i < got.size(); ++i) a.same += got[i] == want[i];
  return a;
}

bool agrees(const Agreement& a, double min_cosine) {
  const int64_t others = a.all - a.same;
  if (others == 0 || (others == 1 && a.all > 1 && min_cosine < 1)) return true;
  return a.share() >= 1 - std::sqrt(std::max(0.0, 2 * (1 - min_cosine)));
}

void Closeness::add(const Closeness& next) {
  if (next.samples == 0) return;
  const double all = static_cast<double>(samples + next.samples), here = static_cast<double>(samples) / all,
               there = static_cast<double>(next.samples) / all;
  const bool worse = samples == 0 || !(next.cosine_worst >= cosine_worst);
  cosine_mean = here * cosine_mean + there * next.cosine_mean;
  centred_mean = here * centred_mean + there * next.centred_mean;
  if (worse) cosine_worst = next.cosine_worst, worst_sample = samples + next.worst_sample;
  if (samples == 0 || !(next.centred_worst >= centred_worst)) centred_worst = next.centred_worst;
  alone = false;
  samples += next.samples;
  error_squares += next.error_squares, size_squares += next.size_squares;
  relative_l2 = size_squares > 0 ? std::sqrt(error_squares / size_squares) : std::sqrt(error_squares);
  finite = finite && next.finite;
}

}  // namespace tessera
