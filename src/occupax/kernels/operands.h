// Operands with leading axes, and the threads that work on them: what all kernels share.
//
// Every operand may have leading axes, which vmap adds; an axis of length one is shared by all
// runs.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr int64_t MOST_SUMS = 16;  // copies of the sums of a run

template <ffi::DataType D>
using In = ffi::Buffer<D>;
template <ffi::DataType D>
using Out = ffi::Result<ffi::Buffer<D>>;

// The place of a run in an operand: `rank` axes of its own come last, those before are runs or of
// length one.
template <typename T>
struct Operand {
  T* data;
  int64_t size = 1;
  std::vector<std::pair<int64_t, int64_t>> axes;  // length and stride, the innermost first

  Operand(T* data, ffi::Span<const int64_t> dims, size_t rank, const std::vector<int64_t>& lead)
      : data(data) {
    const size_t own = dims.size() - rank;
    for (size_t i = own; i < dims.size(); ++i) size *= dims[i];
    int64_t stride = size;
    for (size_t i = own; i-- > 0;) {
      axes.push_back({lead[i], dims[i] == 1 ? 0 : stride});
      stride *= dims[i];
    }
  }

  T* at(int64_t run) const {
    T* place = data;
    for (const auto& [length, stride] : axes) {
      place += (run % length) * stride;
      run /= length;
    }
    return place;
  }
};

template <ffi::DataType D>
Operand<const ffi::NativeType<D>> in(const In<D>& buffer, size_t rank,
                                     const std::vector<int64_t>& lead) {
  return {buffer.typed_data(), buffer.dimensions(), rank, lead};
}

template <ffi::DataType D>
Operand<ffi::NativeType<D>> out(Out<D>& buffer, size_t rank, const std::vector<int64_t>& lead) {
  return {buffer->typed_data(), buffer->dimensions(), rank, lead};
}

inline std::vector<int64_t> leading(ffi::Span<const int64_t> dims, size_t rank) {
  return {dims.begin(), dims.begin() + (dims.size() - rank)};
}

inline int64_t product(const std::vector<int64_t>& lengths) {
  int64_t total = 1;
  for (int64_t const length : lengths) total *= length;
  return total;
}

// Whether all numbers of a buffer lie in low..high; nothing is indexed by them before.
inline bool within(const In<ffi::S32>& buffer, int64_t low, int64_t high) {
  const int32_t* const begin = buffer.typed_data();
  int32_t least = 0;
  int32_t most = 0;
  const int64_t count = static_cast<int64_t>(buffer.element_count());
  if (count > 0) least = most = begin[0];
  for (int64_t i = 0; i < count; ++i)
    least = std::min(least, begin[i]), most = std::max(most, begin[i]);
  return count == 0 || (least >= low && most <= high);
}

inline ffi::Error refused(const char* sentence) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, sentence);
}

// Runs unit 0 to count - 1, each once, on at most `threads` threads. The caller works too, and so
// never waits for a thread that has not begun.
template <typename Unit>
void in_parallel(ffi::ThreadPool pool, int64_t count, int64_t threads, const Unit& unit) {
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
  };
  auto const shared = std::make_shared<Shared>();
  auto const work = [shared, count, &unit] {
    for (int64_t i; (i = shared->next.fetch_add(1)) < count;) {
      unit(i);
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  const int64_t helpers = std::min({static_cast<int64_t>(pool.num_threads()), count, threads}) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(std::function<void()>(work));
  work();
  while (shared->done.load(std::memory_order_acquire) < count) std::this_thread::yield();
}

}  // namespace
