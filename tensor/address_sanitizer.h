// Whether the address sanitizer is at work, and its interface.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define STORYTAPE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STORYTAPE_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef STORYTAPE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif
