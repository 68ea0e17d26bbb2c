// Everything the kernels use from outside, before an instruction set is chosen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "call.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
