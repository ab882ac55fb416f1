// SPDX-License-Identifier: Apache-2.0
// Register lists for inline wgmma, in eights: TS_NAMES_n names %0 ... %(n-1) in the instruction's text, TS_BINDS_n(c,
// d) binds them to d[0] ... d[n-1] with constraint c ("+f" or "+r"). A result of 64 x N numbers takes N / 2 registers
// of each thread.
#pragma once

#define TS_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TS_NAMES_16 TS_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TS_NAMES_24 TS_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TS_NAMES_32 TS_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TS_NAMES_40 TS_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TS_NAMES_48 TS_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TS_NAMES_56 TS_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TS_NAMES_64 TS_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TS_NAMES_72 TS_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TS_NAMES_80 TS_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TS_NAMES_88 TS_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TS_NAMES_96 TS_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TS_NAMES_104 TS_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TS_NAMES_112 TS_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TS_NAMES_120 TS_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define TS_NAMES_128 TS_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"

#define TS_BINDS_8_AT(c, d, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define TS_BINDS_8(c, d) TS_BINDS_8_AT(c, d, 0)
#define TS_BINDS_16(c, d) TS_BINDS_8(c, d), TS_BINDS_8_AT(c, d, 8)
#define TS_BINDS_24(c, d) TS_BINDS_16(c, d), TS_BINDS_8_AT(c, d, 16)
#define TS_BINDS_32(c, d) TS_BINDS_24(c, d), TS_BINDS_8_AT(c, d, 24)
#define TS_BINDS_40(c, d) TS_BINDS_32(c, d), TS_BINDS_8_AT(c, d, 32)
#define TS_BINDS_48(c, d) TS_BINDS_40(c, d), TS_BINDS_8_AT(c, d, 40)
#define TS_BINDS_56(c, d) TS_BINDS_48(c, d), TS_BINDS_8_AT(c, d, 48)
#define TS_BINDS_64(c, d) TS_BINDS_56(c, d), TS_BINDS_8_AT(c, d, 56)
#define TS_BINDS_72(c, d) TS_BINDS_64(c, d), TS_BINDS_8_AT(c, d, 64)
#define TS_BINDS_80(c, d) TS_BINDS_72(c, d), TS_BINDS_8_AT(c, d, 72)
#define TS_BINDS_88(c, d) TS_BINDS_80(c, d), TS_BINDS_8_AT(c, d, 80)
#define TS_BINDS_96(c, d) TS_BINDS_88(c, d), TS_BINDS_8_AT(c, d, 88)
#define TS_BINDS_104(c, d) TS_BINDS_96(c, d), TS_BINDS_8_AT(c, d, 96)
#define TS_BINDS_112(c, d) TS_BINDS_104(c, d), TS_BINDS_8_AT(c, d, 104)
#define TS_BINDS_120(c, d) TS_BINDS_112(c, d), TS_BINDS_8_AT(c, d, 112)
#define TS_BINDS_128(c, d) TS_BINDS_120(c, d), TS_BINDS_8_AT(c, d, 120)
