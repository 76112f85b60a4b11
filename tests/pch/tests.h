// Compiled once for all tests.
#include "tests/catch.h"
