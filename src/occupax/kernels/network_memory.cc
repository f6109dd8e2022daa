// The room in which observations are kept until a network is asked about them, and weights with
// their axes exchanged.

#include <cstring>

#include "operands.h"

namespace {

// Room in which nothing is written: memory that is not touched costs nothing. The operand is there
// so that a loop makes new room at every turn, and not a copy of what it had before.
ffi::Error Room(ffi::AnyBuffer, ffi::Result<ffi::AnyBuffer>) {
  return ffi::Error::Success();
}

// Puts what live trajectories see at step `time` into rows [trajectory, step], in place; all else
// stays as it is.
ffi::Error Keep(ffi::AnyBuffer, ffi::AnyBuffer seen, In<ffi::PRED> live, In<ffi::S32> time,
                ffi::Result<ffi::AnyBuffer> rows) {
  const int64_t n = live.element_count();
  const int64_t times = time.element_count();
  if (n == 0 || seen.size_bytes() == 0) return ffi::Error::Success();
  const int64_t size = seen.size_bytes() / n;
  const int64_t horizon = rows->size_bytes() / seen.size_bytes();
  const bool fits =
      n * size == static_cast<int64_t>(seen.size_bytes()) && n % std::max<int64_t>(times, 1) == 0;
  if (!fits || n * size * horizon != static_cast<int64_t>(rows->size_bytes()) ||
      !within(time, 0, horizon - 1))
    return refused(
        "what is seen must have a row for each trajectory, and the time must lie in 0..H-1.");
  const auto* const from = static_cast<const char*>(seen.untyped_data());
  auto* const to = static_cast<char*>(rows->untyped_data());
  for (int64_t i = 0; i < n; ++i)
    if (live.typed_data()[i])
      std::memcpy(to + (i * horizon + time.typed_data()[i * times / n]) * size, from + i * size,
                  size);
  return ffi::Error::Success();
}

// Exchanges the last two axes of an array, a few columns at a time, so that both sides stay in the
// cache.
template <ffi::DataType D>
ffi::Error Turn(In<D> matrices, Out<D> turned) {
  constexpr int64_t AT_ONCE = 16;
  const auto dims = matrices.dimensions();
  const int64_t rows = dims[dims.size() - 2];
  const int64_t columns = dims.back();
  const int64_t count = product(leading(dims, 2));
  const auto* from = matrices.typed_data();
  auto* to = turned->typed_data();
  for (int64_t m = 0; m < count; ++m, from += rows * columns, to += rows * columns)
    for (int64_t first = 0; first < columns; first += AT_ONCE)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = first; c < std::min(columns, first + AT_ONCE); ++c)
          to[c * rows + r] = from[r * columns + c];
  return ffi::Error::Success();
}

template <ffi::DataType D>
auto bind_turn() {
  return ffi::Ffi::Bind().template Arg<In<D>>().template Ret<ffi::Buffer<D>>();
}

#define BIND_ROOM ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>()
#define BIND_KEEP            \
  ffi::Ffi::Bind()           \
      .Arg<ffi::AnyBuffer>() \
      .Arg<ffi::AnyBuffer>() \
      .Arg<In<ffi::PRED>>()  \
      .Arg<In<ffi::S32>>()   \
      .Ret<ffi::AnyBuffer>()

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(network_room, Room, BIND_ROOM);
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_keep, Keep, BIND_KEEP);
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_turn_float32, Turn<ffi::F32>, bind_turn<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_turn_float64, Turn<ffi::F64>, bind_turn<ffi::F64>());
