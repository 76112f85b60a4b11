// Which instruction sets the kernels are compiled for. Include this before any Highway header in every kernel
// file
// (*.cc and *-inl.h), so that all of them agree.
//
// On x86 these are AVX-512 ("AVX3": F, BW, CD, DQ, VL), AVX2 with FMA, SSE4 and the baseline that the
// compiler may assume anyway (SSE2, or one lane at a time where Highway has no SSE2 target). The further
// AVX-512 sets and SSSE3 bring our kernels nothing but compile time. Other architectures keep Highway's
// choice.
#pragma once

// Expanded by Highway only where it computes a set of targets, hence after the names below are known. A test
// inside detect_targets.h itself meets an undefined name, which counts as 0 there: nothing disabled.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS STORYTAPE_DISABLED_TARGETS
#endif

#include "hwy/detect_targets.h"

#ifdef HWY_AVX10_2
#define STORYTAPE_HAS_AVX10_2 HWY_AVX10_2
#else
#define STORYTAPE_HAS_AVX10_2 0
#endif
#ifdef HWY_AVX3_SPR
#define STORYTAPE_HAS_AVX3_SPR HWY_AVX3_SPR
#else
#define STORYTAPE_HAS_AVX3_SPR 0
#endif
#ifdef HWY_AVX3_ZEN4
#define STORYTAPE_HAS_AVX3_ZEN4 HWY_AVX3_ZEN4
#else
#define STORYTAPE_HAS_AVX3_ZEN4 0
#endif

#define STORYTAPE_DISABLED_TARGETS \
  (STORYTAPE_HAS_AVX10_2 | STORYTAPE_HAS_AVX3_SPR | STORYTAPE_HAS_AVX3_ZEN4 | HWY_AVX3_DL | HWY_SSSE3)
