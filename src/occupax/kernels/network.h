// Networks of tanh layers, which all kernels about them share: their parameters, the inputs that
// are not zero, the passes over a block of rows, and the blocks of live steps.
//
// The parameters of a network are one vector: for each layer the weights [inputs][outputs] and the
// biases [outputs], where outputs are filled up with zeros to a multiple of FILL. Live steps are
// gathered into blocks of rows, which stay in the cache from the first layer to the last and back;
// activations are computed again where a gradient needs them, because to keep them would take many
// times the memory of the trajectories.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "operands.h"

namespace network {

constexpr int64_t FILL = 8;             // what a width is a multiple of
constexpr int64_t ROWS = 96;            // in a block
constexpr int64_t WORTH_A_THREAD = 64;  // rows that take longer than waking a thread
constexpr int64_t PART = 8;             // trajectories that are not shared out among threads
constexpr int64_t MANY = 32;            // inputs, among which zeros are looked for
constexpr int64_t FEW = 4;              // a share of the inputs: one in so many

inline int64_t filled(int64_t size) {
  return (size + FILL - 1) / FILL * FILL;
}

struct Shape {
  int64_t depth;  // of weights and biases, one less than of sizes
  std::vector<int64_t> sizes,
      widths;  // of the inputs and of the outputs of each layer, and how they are stored
  std::vector<int64_t> weights, biases;  // where those of a layer begin
  std::vector<int64_t> turned;           // where its weights [outputs][inputs] begin
  int64_t total = 0, all_turned = 0, widest = 0;

  explicit Shape(ffi::Span<const int64_t> given)
      : depth(given.size() - 1), sizes(given.begin(), given.end()) {
    for (auto* list : {&widths, &weights, &biases, &turned}) list->reserve(depth + 1);
    widths.push_back(sizes[0]);
    for (int64_t l = 0; l < depth; ++l) {
      widths.push_back(filled(sizes[l + 1]));
      weights.push_back(total);
      biases.push_back(total += sizes[l] * widths[l + 1]);
      total += widths[l + 1];
      turned.push_back(all_turned);
      all_turned += sizes[l + 1] * widths[l];
    }
    widest = *std::max_element(widths.begin(), widths.end());
  }
};

constexpr const char* PARAMETERS =
    "the parameters and observations must be those of a network of these sizes.";
constexpr const char* STEPS_TAKEN = "actions must lie in 0..A-1, and lengths in 0..H.";

// Those inputs of a block of rows that are not zero, and their places, where they are few in every
// row: images of many colours. Zeros then take no time. They add nothing, whatever the weight or
// the error they would be multiplied with: an infinite weight of an input that is never seen says
// nothing, and an infinite error is in the gradient of a bias.
template <typename T>
struct Sparse {
  bool few = false;
  int64_t ends[ROWS + 1] = {};  // those of row r are number ends[r] to ends[r + 1]
  std::vector<int32_t> places;
  std::vector<T> values;

  // Looks at the inputs of row number `row`; those before it are known.
  void add(int64_t row, const T* inputs, int64_t size) {
    constexpr int64_t AT_ONCE = 8;
    constexpr int64_t WORDS = AT_ONCE * sizeof(T) / sizeof(uint64_t);
    if (row == 0)
      few = size >= MANY, places.resize(ROWS * (size / FEW + AT_ONCE)),
      values.resize(places.size());
    if (!few) return;
    int64_t end = ends[row];
    int64_t first = 0;
    const int64_t most = end + size / FEW;
    const auto look = [&](int64_t last) {
      for (; first < last; ++first) {
        places[end] = static_cast<int32_t>(first), values[end] = inputs[first];
        end += inputs[first] != 0;
      }
    };
    while (first + AT_ONCE <= size && end <= most) {
      uint64_t words[WORDS];
      uint64_t any = 0;
      std::memcpy(words, inputs + first, sizeof(words));
      for (uint64_t const word : words) any |= word;
      if (any != 0)
        look(first + AT_ONCE);
      else
        first += AT_ONCE;  // as most are
    }
    if (end <= most) look(size);
    few = end <= most;
    ends[row + 1] = end;
  }
};

// The passes of a network over a block of rows; `network_math.h` says what they do.
template <typename T>
struct Passes {
  void (*forward)(const Shape&, const T*, int64_t, const Sparse<T>&, T* const*);
  void (*backward)(const Shape&, const T*, int64_t, const Sparse<T>&, T* const*, T*, T*, const T*,
                   T*);
  void (*forward_along)(const Shape&, const T*, const T*, int64_t, const Sparse<T>&,
                        const T* const*, T* const*);
  void (*backward_along)(const Shape&, const T*, const T*, int64_t, const Sparse<T>&,
                         const T* const*, const T* const*, T*, T*, T*, T*, const T*, T*);
  void (*transpose)(const T*, int64_t, int64_t, int64_t, T*, int64_t);
  T (*squares)(int64_t, const T*);
  void (*descend)(int64_t, const T*, T, T, T, T, T*, T*, T*);
};

// Those of the processor that this runs on.
template <typename T>
const Passes<T>& passes();

// Room for a block of rows and for what a network makes of them; one for each thread, and used
// again.
template <typename T>
struct Block {
  const Shape& shape;
  std::vector<T>& room;
  Sparse<T>& inputs;
  std::vector<T*> layers, slopes;
  T *errors, *spare, *bends, *spare_bends, *zeros;
  int64_t rows = 0;
  const T* seen[ROWS];  // the observation of each row
  int64_t place[ROWS];  // where it came from

  explicit Block(const Shape& shape) : shape(shape), room(all_room()), inputs(all_inputs()) {
    int64_t size = (4 * ROWS + 1) * shape.widest;
    for (int64_t const width : shape.widths) size += 2 * ROWS * width;
    if (static_cast<int64_t>(room.size()) < size) room.resize(size);
    T* next = room.data();
    for (auto* list : {&layers, &slopes}) {
      list->reserve(shape.widths.size());
      for (int64_t const width : shape.widths) list->push_back(next), next += ROWS * width;
    }
    for (T** place : {&errors, &spare, &bends, &spare_bends, &zeros})
      *place = next, next += ROWS * shape.widest;
    std::fill(zeros, zeros + shape.widest, T{0});
  }

  static std::vector<T>& all_room() {
    thread_local std::vector<T> room;
    return room;
  }

  static Sparse<T>& all_inputs() {
    thread_local Sparse<T> inputs;
    return inputs;
  }

  void add(const T* observation, int64_t from) {
    inputs.add(rows, observation, shape.sizes[0]);
    seen[rows] = observation;
    place[rows++] = from;
  }

  void forward(const T* parameters) {
    const int64_t size = shape.sizes[0];
    for (int64_t r = 0; r < rows && !inputs.few; ++r)
      std::copy(seen[r], seen[r] + size, layers[0] + r * size);
    passes<T>().forward(shape, parameters, rows, inputs, layers.data());
  }

  void backward(const T* turned, T* gradient) {
    passes<T>().backward(shape, turned, rows, inputs, layers.data(), errors, spare, zeros,
                         gradient);
  }

  void forward_along(const T* parameters, const T* direction) {
    forward(parameters);
    passes<T>().forward_along(shape, parameters, direction, rows, inputs, layers.data(),
                              slopes.data());
  }

  void backward_along(const T* turned, const T* turned_direction, T* gradient) {
    passes<T>().backward_along(shape, turned, turned_direction, rows, inputs, layers.data(),
                               slopes.data(), errors, spare, bends, spare_bends, zeros, gradient);
  }

  int64_t actions() const { return shape.sizes.back(); }
  const T* logits(int64_t row) const { return layers.back() + row * shape.widths.back(); }
  const T* logit_slopes(int64_t row) const { return slopes.back() + row * shape.widths.back(); }

  // Writes the probabilities of the actions, and returns what the logarithms of all of them are
  // shifted by.
  T softmax(int64_t row, T* probs) const {
    const T* begin = logits(row);
    const T most = *std::max_element(begin, begin + actions());
    T total = 0;
    for (int64_t a = 0; a < actions(); ++a) total += probs[a] = std::exp(begin[a] - most);
    for (int64_t a = 0; a < actions(); ++a) probs[a] /= total;
    return most + std::log(total);
  }

  // Writes the probabilities of the actions, and returns the expectation of the slopes of their
  // logits.
  T expected_slope(int64_t row, T* probs) const {
    softmax(row, probs);
    T mean = 0;
    for (int64_t a = 0; a < actions(); ++a) mean += probs[a] * logit_slopes(row)[a];
    return mean;
  }
};

// Calls flush(block) on blocks of the live rows of trajectories `first` to `last`, each with its
// place [trajectory, step].
template <typename T, typename Flush>
void each_block(const Shape& shape, const T* observations, const int32_t* lengths, int64_t horizon,
                int64_t first, int64_t last, const Flush& flush) {
  Block<T> block(shape);
  for (int64_t i = first; i < last; ++i)
    for (int64_t t = i * horizon; t < i * horizon + lengths[i]; ++t) {
      block.add(observations + t * shape.sizes[0], t);
      if (block.rows == ROWS) flush(block), block.rows = 0;
    }
  if (block.rows > 0) flush(block);
}

// What requests about live steps, and about their actions, begin with; a binding cannot be handed
// on by a function.
#define ROWS_OF(D)                     \
  ffi::Ffi::Bind()                     \
      .template Ctx<ffi::ThreadPool>() \
      .template Arg<In<D>>()           \
      .template Arg<In<D>>()           \
      .template Arg<In<ffi::S32>>()

#define STEPS(D) ROWS_OF(D).template Arg<In<ffi::S32>>()

template <ffi::DataType D>
auto bind_gradient() {
  return STEPS(D)
      .template Arg<In<D>>()
      .template Attr<ffi::Span<const int64_t>>("sizes")
      .template Ret<ffi::Buffer<D>>();
}

}  // namespace network
