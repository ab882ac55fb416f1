// SPDX-License-Identifier: Apache-2.0
#include "report/escape.h"

#include <gtest/gtest.h>

#include "report/figures.h"
#include "report/typeset.h"

namespace tessera {
namespace {

TEST(CleanText, ControlsBreaksAndBrokenBytesAreReplaced) {
  EXPECT_EQ(clean_text("a\nb\tc\rd"), "a b c d");
  EXPECT_EQ(clean_text(std::string_view("a\0b\x1b[31m\x7f", 9)), "a?b?[31m?");
  EXPECT_EQ(clean_text("\xc2\x85"), "?");              // a C1 control
  EXPECT_EQ(clean_text("a\xe2\x80\xaeltr"), "a?ltr");  // turns the text around
  EXPECT_EQ(clean_text("\xff|\xc3"), "\xef\xbf\xbd|\xef\xbf\xbd");
  EXPECT_EQ(clean_text("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");                  // an overlong slash
  EXPECT_EQ(clean_text("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
  EXPECT_EQ(clean_text("\xc2\xb5s \xe2\x82\xac \xf0\x9f\x99\x82"), "\xc2\xb5s \xe2\x82\xac \xf0\x9f\x99\x82");
}

TEST(CutMiddle, KeepsBothEndsAndWholeCharacters) {
  EXPECT_EQ(cut_middle("short", 5), "short");
  EXPECT_EQ(cut_middle("abcdefghij", 5), "ab\xe2\x80\xa6ij");
  EXPECT_EQ(cut_middle("\xc2\xb5\xc2\xb5\xc2\xb5\xc2\xb5\xc2\xb5", 3), "\xc2\xb5\xe2\x80\xa6\xc2\xb5");
}

TEST(HtmlText, NothingOfItIsMarkup) {
  EXPECT_EQ(html_text("<script>alert('1')&\"</script>"), "&lt;script&gt;alert(&#39;1&#39;)&amp;&quot;&lt;/script&gt;");
}

TEST(MarkdownText, NothingOfItIsMarkup) {
  EXPECT_EQ(markdown_text("*a* _b_ [c](d) <e> `f` |g| ~h~ i\\"),
            "\\*a\\* \\_b\\_ \\[c\\](d) &lt;e> \\`f\\` \\|g\\| \\~h\\~ i\\\\");
  EXPECT_EQ(markdown_text("mlp_fc1 7.600 -4.9 +1"), "mlp_fc1 7.600 -4.9 +1");  // as people read it
}

TEST(MarkdownLine, DoesNotBeginAListAQuoteOrAHeading) {
  EXPECT_EQ(markdown_line("1. a"), "1\\. a");
  EXPECT_EQ(markdown_line("1.38x"), "1.38x");
  EXPECT_EQ(markdown_line("- a"), "\\- a");
  EXPECT_EQ(markdown_line("-1"), "-1");
  EXPECT_EQ(markdown_line("# a"), "\\# a");
  EXPECT_EQ(markdown_line("---"), "\\---");
  EXPECT_EQ(markdown_line(">a"), "\\>a");
  EXPECT_EQ(markdown_line("===="), "\\====");
}

TEST(MarkdownCode, FencesAreLongerThanWhatIsInside) {
  EXPECT_EQ(markdown_code("a_b<c>", true), "`a_b<c>`");
  EXPECT_EQ(markdown_code("a`b``c", false), "```a`b``c```");
  EXPECT_EQ(markdown_code("`a", false), "`` `a ``");
  EXPECT_EQ(markdown_code("a|b", true), "`a\\|b`");
  EXPECT_EQ(markdown_code("a|b", false), "`a|b`");
  EXPECT_EQ(markdown_code("a\\|b", true), "a\\\\\\|b");  // no code span says this in every reader
  EXPECT_EQ(markdown_code("", true), "");
}

TEST(Typeset, NumbersKeepTheirUnitsAndSigns) {
  EXPECT_EQ(typeset("1.38x of 7.60 ms"), "1.38\u00A0\u00D7 of 7.60\u00A0ms");
  EXPECT_EQ(typeset("26.4 % is"), "26.4\u00A0% is");
  EXPECT_EQ(typeset("sm90_fp8 128x256"), "sm90_fp8 128x256");  // a tile is no product
  EXPECT_EQ(typeset("cutlass__5x_cudnn"), "cutlass__5x_cudnn");
  EXPECT_EQ(typeset("2 samples, 3 xs"), "2 samples, 3 xs");
  EXPECT_EQ(typeset("5.50 ms - 1.45 ms"), "5.50\u00A0ms \u2212 1.45\u00A0ms");
  EXPECT_EQ(typeset("a - b <i>"), "a - b &lt;i&gt;");
  EXPECT_EQ(typeset("1 ms -> 2 ms"), "1\u00A0ms \u2192 2\u00A0ms");
  EXPECT_EQ(typeset_number("-0.5"), "\u22120.5");
  EXPECT_EQ(typeset_number("-"), "\u2013");
}

TEST(Figures, AreShortAndNeverInfinite) {
  EXPECT_EQ(decimals(1.005, 2), "1.00");
  EXPECT_EQ(decimals(0.0 / 0.0, 2), "-");
  EXPECT_EQ(decimals(1e300, 3), "1.00e+300");
  EXPECT_EQ(decimals(-0.0004, 3), "0.000");
  EXPECT_EQ(signed_words(1.949, 2), "+1.95");
  EXPECT_EQ(signed_words(-0.5, 1), "-0.5");
  EXPECT_EQ(signed_words(0.0001, 3), "0.000");
  EXPECT_EQ(rounded(0.01234), "0.0123");
  EXPECT_EQ(rounded(1234.5), "1234");
  EXPECT_EQ(rounded(0), "0");
  EXPECT_EQ(share_words(0.8416), "84.2 %");
  EXPECT_EQ(ratio_words(1.384), "1.38x");
  EXPECT_EQ(time_words(533), "533 us");
  EXPECT_EQ(time_words(7600), "7.60 ms");
  EXPECT_EQ(size_words(52.04e6), "52.0 MB");
  EXPECT_EQ(count_words(8.1e14, "FLOP/s"), "810 TFLOP/s");
  EXPECT_EQ(count_words(999.6, "B/s"), "1.00 kB/s");
}

}  // namespace
}  // namespace tessera
