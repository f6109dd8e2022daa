// The passes of a network over a block of rows, compiled for several kinds of processors, with the
// same results.

#include "network.h"
#include "random.h"  // whether there are vectors

namespace network {

namespace plain {
constexpr int BYTES = 32;
#include "network_math.h"
}  // namespace plain

#ifdef VECTORS
#define PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define FOR_PROCESSORS_WITH(names) \
  PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define FOR_ALL_PROCESSORS PRAGMA(clang attribute pop)
#else
#define FOR_PROCESSORS_WITH(names) PRAGMA(GCC push_options) PRAGMA(GCC target(names))
#define FOR_ALL_PROCESSORS PRAGMA(GCC pop_options)
#endif

FOR_PROCESSORS_WITH("avx2,fma")
namespace wide {
constexpr int BYTES = 32;
#include "network_math.h"
}  // namespace wide
FOR_ALL_PROCESSORS

FOR_PROCESSORS_WITH("avx2,fma,avx512f,avx512vl")
namespace widest {
constexpr int BYTES = 64;
#include "network_math.h"
}  // namespace widest
FOR_ALL_PROCESSORS

const bool is_wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
const bool is_widest =
    is_wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");

template <typename T>
const Passes<T>& passes() {
  return is_widest ? widest::all_passes<T> : is_wide ? wide::all_passes<T> : plain::all_passes<T>;
}
#else
template <typename T>
const Passes<T>& passes() {
  return plain::all_passes<T>;
}
#endif

template const Passes<float>& passes<float>();
template const Passes<double>& passes<double>();

}  // namespace network
