// Networks of tanh layers behind XLA's foreign function interface, for live steps only: of softmax policies the actions,
// the log-probabilities, their gradients, and their slopes along a direction with the gradients of these; of normal laws
// the gradients; for all others the outputs of the network, and the gradients through them. Also the room in which
// observations are kept until then, and weights with their axes exchanged.
//
// The parameters of a network are one vector: for each layer the weights [inputs][outputs] and the biases [outputs],
// where outputs are filled up with zeros to a multiple of FILL. Live steps are gathered into blocks of rows, which stay
// in the cache from the first layer to the last and back; activations are computed again where a gradient needs them,
// because to keep them would take many times the memory of the trajectories.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "operands.h"
#include "random.h"

namespace {

constexpr int64_t FILL = 8;             // what a width is a multiple of
constexpr int64_t ROWS = 96;            // in a block
constexpr int64_t WORTH_A_THREAD = 64;  // rows that take longer than waking a thread
constexpr int64_t PART = 8;             // trajectories that are not shared out among threads
constexpr int64_t MANY = 32;            // inputs, among which zeros are looked for
constexpr int64_t FEW = 4;              // a share of the inputs: one in so many

int64_t filled(int64_t size) { return (size + FILL - 1) / FILL * FILL; }

struct Shape {
  int64_t depth;                          // of weights and biases, one less than of sizes
  std::vector<int64_t> sizes, widths;     // of the inputs and of the outputs of each layer, and how they are stored
  std::vector<int64_t> weights, biases;   // where those of a layer begin
  std::vector<int64_t> turned;            // where its weights [outputs][inputs] begin
  int64_t total = 0, all_turned = 0, widest = 0;

  explicit Shape(ffi::Span<const int64_t> given) : depth(given.size() - 1), sizes(given.begin(), given.end()) {
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

constexpr const char* PARAMETERS = "the parameters and observations must be those of a network of these sizes.";
constexpr const char* STEPS_TAKEN = "actions must lie in 0..A-1, and lengths in 0..H.";

// Those inputs of a block of rows that are not zero, and their places, where they are few in every row: images of many
// colours. Zeros then take no time. They add nothing, whatever the weight or the error they would be multiplied with: an
// infinite weight of an input that is never seen says nothing, and an infinite error is in the gradient of a bias.
template <typename T>
struct Sparse {
  bool few = false;
  int64_t ends[ROWS + 1] = {};  // those of row r are number ends[r] to ends[r + 1]
  std::vector<int32_t> places;
  std::vector<T> values;

  // Looks at the inputs of row number `row`; those before it are known.
  void add(int64_t row, const T* inputs, int64_t size) {
    constexpr int64_t AT_ONCE = 8, WORDS = AT_ONCE * sizeof(T) / sizeof(uint64_t);
    if (row == 0) few = size >= MANY, places.resize(ROWS * (size / FEW + AT_ONCE)), values.resize(places.size());
    if (!few) return;
    int64_t end = ends[row], first = 0;
    const int64_t most = end + size / FEW;
    const auto look = [&](int64_t last) {
      for (; first < last; ++first) {
        places[end] = static_cast<int32_t>(first), values[end] = inputs[first];
        end += inputs[first] != 0;
      }
    };
    while (first + AT_ONCE <= size && end <= most) {
      uint64_t words[WORDS], any = 0;
      std::memcpy(words, inputs + first, sizeof(words));
      for (uint64_t word : words) any |= word;
      if (any != 0) look(first + AT_ONCE);
      else first += AT_ONCE;  // as most are
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
  void (*backward)(const Shape&, const T*, int64_t, const Sparse<T>&, T* const*, T*, T*, const T*, T*);
  void (*forward_along)(const Shape&, const T*, const T*, int64_t, const Sparse<T>&, const T* const*, T* const*);
  void (*backward_along)(const Shape&, const T*, const T*, int64_t, const Sparse<T>&, const T* const*, const T* const*,
                         T*, T*, T*, T*, const T*, T*);
};

namespace plain {
constexpr int BYTES = 32;
#include "network_math.h"
}

#ifdef VECTORS
#define PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define FOR_PROCESSORS_WITH(names) PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define FOR_ALL_PROCESSORS PRAGMA(clang attribute pop)
#else
#define FOR_PROCESSORS_WITH(names) PRAGMA(GCC push_options) PRAGMA(GCC target(names))
#define FOR_ALL_PROCESSORS PRAGMA(GCC pop_options)
#endif

FOR_PROCESSORS_WITH("avx2,fma")
namespace wide {
constexpr int BYTES = 32;
#include "network_math.h"
}
FOR_ALL_PROCESSORS

FOR_PROCESSORS_WITH("avx2,fma,avx512f,avx512vl")
namespace widest {
constexpr int BYTES = 64;
#include "network_math.h"
}
FOR_ALL_PROCESSORS

const bool is_wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
const bool is_widest = is_wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");

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

// Room for a block of rows and for what a network makes of them; one for each thread, and used again.
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
    for (int64_t width : shape.widths) size += 2 * ROWS * width;
    if (static_cast<int64_t>(room.size()) < size) room.resize(size);
    T* next = room.data();
    for (auto* list : {&layers, &slopes}) {
      list->reserve(shape.widths.size());
      for (int64_t width : shape.widths) list->push_back(next), next += ROWS * width;
    }
    for (T** place : {&errors, &spare, &bends, &spare_bends, &zeros}) *place = next, next += ROWS * shape.widest;
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
    for (int64_t r = 0; r < rows && !inputs.few; ++r) std::copy(seen[r], seen[r] + size, layers[0] + r * size);
    passes<T>().forward(shape, parameters, rows, inputs, layers.data());
  }

  void backward(const T* turned, T* gradient) {
    passes<T>().backward(shape, turned, rows, inputs, layers.data(), errors, spare, zeros, gradient);
  }

  void forward_along(const T* parameters, const T* direction) {
    forward(parameters);
    passes<T>().forward_along(shape, parameters, direction, rows, inputs, layers.data(), slopes.data());
  }

  void backward_along(const T* turned, const T* turned_direction, T* gradient) {
    passes<T>().backward_along(shape, turned, turned_direction, rows, inputs, layers.data(), slopes.data(), errors,
                             spare, bends, spare_bends, zeros, gradient);
  }

  int64_t actions() const { return shape.sizes.back(); }
  const T* logits(int64_t row) const { return layers.back() + row * shape.widths.back(); }
  const T* logit_slopes(int64_t row) const { return slopes.back() + row * shape.widths.back(); }

  // Writes the probabilities of the actions, and returns what the logarithms of all of them are shifted by.
  T softmax(int64_t row, T* probs) const {
    const T *begin = logits(row), most = *std::max_element(begin, begin + actions());
    T total = 0;
    for (int64_t a = 0; a < actions(); ++a) total += probs[a] = std::exp(begin[a] - most);
    for (int64_t a = 0; a < actions(); ++a) probs[a] /= total;
    return most + std::log(total);
  }

  // Writes the probabilities of the actions, and returns the expectation of the slopes of their logits.
  T expected_slope(int64_t row, T* probs) const {
    softmax(row, probs);
    T mean = 0;
    for (int64_t a = 0; a < actions(); ++a) mean += probs[a] * logit_slopes(row)[a];
    return mean;
  }
};

// Calls flush(block) on blocks of the live rows of trajectories `first` to `last`, each with its place [trajectory, step].
template <typename T, typename Flush>
void each_block(const Shape& shape, const T* observations, const int32_t* lengths, int64_t horizon, int64_t first,
                int64_t last, const Flush& flush) {
  Block<T> block(shape);
  for (int64_t i = first; i < last; ++i)
    for (int64_t t = i * horizon; t < i * horizon + lengths[i]; ++t) {
      block.add(observations + t * shape.sizes[0], t);
      if (block.rows == ROWS) flush(block), block.rows = 0;
    }
  if (block.rows > 0) flush(block);
}

// An action and its log-probability for every live trajectory at step `time`, and zeros for the others.
template <ffi::DataType D>
ffi::Error Act(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::PRED> live, In<ffi::U32> key,
               In<ffi::S32> numbers, In<ffi::S32> time, ffi::Span<const int64_t> sizes, Out<ffi::S32> actions,
               Out<D> log_probs) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(actions->dimensions(), 1);
  const auto network = in(parameters, 1, lead);
  const auto seen = in(observations, 2, lead);
  const auto alive = in(live, 1, lead);
  const auto keys = in(key, 1, lead);
  const auto number = in(numbers, 1, lead);
  const auto now = in(time, 0, lead);
  const auto chosen = out(actions, 1, lead);
  const auto chances = out(log_probs, 1, lead);
  if (network.size != shape.total || seen.size != alive.size * shape.sizes[0]) return refused(PARAMETERS);
  const int64_t n = actions->dimensions().back(), runs = product(lead), parts = (n + ROWS - 1) / ROWS;
  const int64_t rows = std::count(live.typed_data(), live.typed_data() + live.element_count(), true);
  in_parallel(pool, runs * parts, 1 + rows / WORTH_A_THREAD, [&](int64_t unit) {
    const int64_t run = unit / parts, first = unit % parts * ROWS, last = std::min(n, first + ROWS);
    int32_t* const action = chosen.at(run);
    T* const chance = chances.at(run);
    Block<T> block(shape);
    for (int64_t i = first; i < last; ++i) {
      action[i] = 0, chance[i] = 0;
      if (alive.at(run)[i]) block.add(seen.at(run) + i * shape.sizes[0], i);
    }
    if (block.rows == 0) return;
    block.forward(network.at(run));
    std::vector<T> probs(block.actions()), thresholds(block.actions());
    uint32_t trajectory[SLOTS] = {}, turn[SLOTS], words[4][SLOTS];
    std::fill(turn, turn + SLOTS, static_cast<uint32_t>(*now.at(run)));
    for (int64_t row = 0; row < block.rows; ++row) {
      if (row % SLOTS == 0) {
        for (int64_t j = row; j < std::min(block.rows, row + SLOTS); ++j)
          trajectory[j - row] = static_cast<uint32_t>(number.at(run)[block.place[j]]);
        philox(keys.at(run), trajectory, turn, words);
      }
      const T shift = block.softmax(row, probs.data());
      accumulate(probs.data(), 1, block.actions(), thresholds.data());
      const int64_t a = pick(thresholds.data(), block.actions(), uniform<T>(words[0][row % SLOTS]));
      action[block.place[row]] = static_cast<int32_t>(a);
      chance[block.place[row]] = block.logits(row)[a] - shift;
    }
  });
  return ffi::Error::Success();
}

// A number for every live step, and zeros for the others; write(run, block, action, result) gives those of a block.
template <ffi::DataType D, typename Write>
ffi::Error each_step(ffi::ThreadPool pool, const Shape& shape, In<D> observations, In<ffi::S32> actions,
                     In<ffi::S32> lengths, Out<D> numbers, const Write& write) {
  using T = ffi::NativeType<D>;
  const auto lead = leading(numbers->dimensions(), 2);
  const int64_t horizon = numbers->dimensions().back(), n = lengths.dimensions().back(), runs = product(lead);
  const auto seen = in(observations, 3, lead);
  const auto action = in(actions, 2, lead);
  const auto length = in(lengths, 1, lead);
  const auto results = out(numbers, 2, lead);
  if (seen.size != n * horizon * shape.sizes[0]) return refused(PARAMETERS);
  if (!within(actions, 0, shape.sizes.back() - 1) || !within(lengths, 0, horizon)) return refused(STEPS_TAKEN);
  const int64_t parts = (n + PART - 1) / PART;
  in_parallel(pool, runs * parts, 1 + runs * n * horizon / WORTH_A_THREAD, [&](int64_t unit) {
    const int64_t run = unit / parts, first = unit % parts * PART, last = std::min(n, first + PART);
    T* const result = results.at(run);
    std::fill(result + first * horizon, result + last * horizon, T{0});
    each_block(shape, seen.at(run), length.at(run), horizon, first, last,
               [&](Block<T>& block) { write(run, block, action.at(run), result); });
  });
  return ffi::Error::Success();
}

// The log-probability of every live action, and zeros for the others.
template <ffi::DataType D>
ffi::Error LogProbs(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::S32> actions,
                    In<ffi::S32> lengths, ffi::Span<const int64_t> sizes, Out<D> log_probs) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto network = in(parameters, 1, leading(log_probs->dimensions(), 2));
  if (network.size != shape.total) return refused(PARAMETERS);
  const auto write = [&](int64_t run, Block<T>& block, const int32_t* action, T* result) {
    block.forward(network.at(run));
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t t = block.place[row];
      result[t] = block.logits(row)[action[t]] - block.softmax(row, block.errors);
    }
  };
  return each_step<D>(pool, shape, observations, actions, lengths, log_probs, write);
}

// The derivative of the log-probability of every live action along a direction, and zeros for the others.
template <ffi::DataType D>
ffi::Error Slopes(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::S32> actions,
                  In<ffi::S32> lengths, In<D> direction, ffi::Span<const int64_t> sizes, Out<D> along) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(along->dimensions(), 2);
  const auto network = in(parameters, 1, lead), moved = in(direction, 1, lead);
  if (network.size != shape.total || moved.size != shape.total) return refused(PARAMETERS);
  const auto write = [&](int64_t run, Block<T>& block, const int32_t* action, T* result) {
    block.forward_along(network.at(run), moved.at(run));
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t t = block.place[row];
      result[t] = block.logit_slopes(row)[action[t]] - block.expected_slope(row, block.errors);
    }
  };
  return each_step<D>(pool, shape, observations, actions, lengths, along, write);
}

// What the network makes of every live observation, and zeros for the others.
template <ffi::DataType D>
ffi::Error Outputs(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::S32> lengths,
                   ffi::Span<const int64_t> sizes, Out<D> outputs) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(outputs->dimensions(), 3);
  const int64_t horizon = observations.dimensions()[observations.dimensions().size() - 2];
  const int64_t n = lengths.dimensions().back(), runs = product(lead), size = shape.sizes.back();
  const auto network = in(parameters, 1, lead);
  const auto seen = in(observations, 3, lead);
  const auto length = in(lengths, 1, lead);
  const auto results = out(outputs, 3, lead);
  if (network.size != shape.total || seen.size != n * horizon * shape.sizes[0]) return refused(PARAMETERS);
  if (!within(lengths, 0, horizon)) return refused(STEPS_TAKEN);
  const int64_t part = std::max(PART, ROWS / horizon), parts = (n + part - 1) / part;
  const int64_t rows = std::accumulate(lengths.typed_data(), lengths.typed_data() + lengths.element_count(), int64_t{0});
  in_parallel(pool, runs * parts, 1 + rows / WORTH_A_THREAD, [&](int64_t unit) {
    const int64_t run = unit / parts, first = unit % parts * part, last = std::min(n, first + part);
    T* const result = results.at(run);
    std::fill(result + first * horizon * size, result + last * horizon * size, T{0});
    each_block(shape, seen.at(run), length.at(run), horizon, first, last, [&](Block<T>& block) {
      block.forward(network.at(run));
      for (int64_t row = 0; row < block.rows; ++row)
        std::copy(block.logits(row), block.logits(row) + size, result + block.place[row] * size);
    });
  });
  return ffi::Error::Success();
}

// The weights of all runs with their axes exchanged.
template <typename T>
std::vector<T> turned_weights(const Shape& shape, const Operand<const T>& network, int64_t runs) {
  std::vector<T> turned(runs * shape.all_turned);
  for (int64_t run = 0; run < runs; ++run)
    for (int64_t l = 1; l < shape.depth; ++l) {
      const T* weights = network.at(run) + shape.weights[l];
      T* const to = &turned[run * shape.all_turned + shape.turned[l]];
      for (int64_t i = 0; i < shape.sizes[l]; ++i)
        for (int64_t o = 0; o < shape.sizes[l + 1]; ++o)
          to[o * shape.widths[l] + i] = weights[i * shape.widths[l + 1] + o];
    }
  return turned;
}

// The sum over live steps of gradients; add(run, block, sum) adds those of a block, whose errors are zeros.
template <ffi::DataType D, typename Add>
ffi::Error sum_gradients(ffi::ThreadPool pool, const Shape& shape, In<D> observations, In<ffi::S32> lengths,
                         const std::vector<int64_t>& lead, Out<D> gradient, const Add& add) {
  using T = ffi::NativeType<D>;
  const int64_t horizon = observations.dimensions()[observations.dimensions().size() - 2];
  const int64_t n = lengths.dimensions().back(), runs = product(lead);
  const auto seen = in(observations, 3, lead);
  const auto length = in(lengths, 1, lead);
  const auto results = out(gradient, 1, lead);
  if (seen.size != n * horizon * shape.sizes[0]) return refused(PARAMETERS);
  if (!within(lengths, 0, horizon)) return refused(STEPS_TAKEN);
  const int64_t most = (n + PART - 1) / PART, parts = std::min(most, MOST_SUMS), each = (n + parts - 1) / parts;
  const std::unique_ptr<T[]> others(new T[runs * (parts - 1) * shape.total]);
  const auto sum_of = [&](int64_t run, int64_t part) {  // that of the first part becomes the result
    return part == 0 ? results.at(run) : &others[(run * (parts - 1) + part - 1) * shape.total];
  };
  const int64_t threads = 1 + runs * n * horizon / WORTH_A_THREAD;
  in_parallel(pool, runs * parts, threads, [&](int64_t unit) {
    const int64_t run = unit / parts, part = unit % parts;
    const int64_t first = std::min(n, part * each), last = std::min(n, first + each);
    T* const sum = sum_of(run, part);
    std::fill(sum, sum + shape.total, T{0});
    each_block(shape, seen.at(run), length.at(run), horizon, first, last, [&](Block<T>& block) {
      std::fill(block.errors, block.errors + block.rows * shape.widths.back(), T{0});
      add(run, block, sum);
    });
  });
  in_parallel(pool, runs, threads, [&](int64_t run) {
    T* const total = sum_of(run, 0);
    for (int64_t part = 1; part < parts; ++part) {
      const T* const sum = sum_of(run, part);
      for (int64_t i = 0; i < shape.total; ++i) total[i] += sum[i];
    }
  });
  return ffi::Error::Success();
}

// The sum over live steps of their coefficient times the gradient of the log-probability of their action.
template <ffi::DataType D>
ffi::Error Gradient(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::S32> actions,
                    In<ffi::S32> lengths, In<D> coefficients, ffi::Span<const int64_t> sizes, Out<D> gradient) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(gradient->dimensions(), 1);
  const auto network = in(parameters, 1, lead);
  const auto action = in(actions, 2, lead);
  const auto coefficient = in(coefficients, 2, lead);
  if (network.size != shape.total) return refused(PARAMETERS);
  if (!within(actions, 0, shape.sizes.back() - 1)) return refused(STEPS_TAKEN);
  const auto turned = turned_weights(shape, network, product(lead));
  const auto add = [&](int64_t run, Block<T>& block, T* sum) {
    block.forward(network.at(run));
    for (int64_t row = 0; row < block.rows; ++row) {
      const T weight = coefficient.at(run)[block.place[row]];
      T* const error = block.errors + row * shape.widths.back();
      block.softmax(row, error);
      for (int64_t a = 0; a < block.actions(); ++a) error[a] *= -weight;
      error[action.at(run)[block.place[row]]] += weight;
    }
    block.backward(&turned[run * shape.all_turned], sum);
  };
  return sum_gradients<D>(pool, shape, observations, lengths, lead, gradient, add);
}

// The same, and the sum of a second coefficient times the gradient of the slope of the log-probability along a direction.
template <ffi::DataType D>
ffi::Error SlopeGradient(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::S32> actions,
                         In<ffi::S32> lengths, In<D> direction, In<D> coefficients, In<D> slope_coefficients,
                         ffi::Span<const int64_t> sizes, Out<D> gradient) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(gradient->dimensions(), 1);
  const auto network = in(parameters, 1, lead), moved = in(direction, 1, lead);
  const auto action = in(actions, 2, lead);
  const auto coefficient = in(coefficients, 2, lead), of_slope = in(slope_coefficients, 2, lead);
  if (network.size != shape.total || moved.size != shape.total) return refused(PARAMETERS);
  if (!within(actions, 0, shape.sizes.back() - 1)) return refused(STEPS_TAKEN);
  const auto turned = turned_weights(shape, network, product(lead));
  const auto turned_direction = turned_weights(shape, moved, product(lead));
  const auto add = [&](int64_t run, Block<T>& block, T* sum) {
    block.forward_along(network.at(run), moved.at(run));
    std::fill(block.bends, block.bends + block.rows * shape.widths.back(), T{0});
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t t = block.place[row], chosen = action.at(run)[t];
      const T weight = coefficient.at(run)[t], slope_weight = of_slope.at(run)[t], *const slopes = block.logit_slopes(row);
      T *const error = block.errors + row * shape.widths.back(), *const bend = block.bends + row * shape.widths.back();
      const T mean = block.expected_slope(row, error);
      for (int64_t a = 0; a < block.actions(); ++a) {
        bend[a] = -slope_weight * error[a];
        error[a] *= -weight - slope_weight * (slopes[a] - mean);
      }
      bend[chosen] += slope_weight;
      error[chosen] += weight;
    }
    block.backward_along(&turned[run * shape.all_turned], &turned_direction[run * shape.all_turned], sum);
  };
  return sum_gradients<D>(pool, shape, observations, lengths, lead, gradient, add);
}

// The same for normal laws, of which the network returns the means and behind them the logarithms of the deviations.
template <ffi::DataType D>
ffi::Error Normal(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<D> values, In<ffi::S32> lengths,
                  In<D> coefficients, ffi::Span<const int64_t> sizes, Out<D> gradient) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(gradient->dimensions(), 1);
  const auto network = in(parameters, 1, lead);
  const auto value = in(values, 3, lead);
  const auto coefficient = in(coefficients, 2, lead);
  const int64_t size = shape.sizes.back() / 2;
  if (network.size != shape.total || value.size != coefficient.size * size) return refused(PARAMETERS);
  const auto turned = turned_weights(shape, network, product(lead));
  const auto add = [&](int64_t run, Block<T>& block, T* sum) {
    block.forward(network.at(run));
    for (int64_t row = 0; row < block.rows; ++row) {
      const T weight = coefficient.at(run)[block.place[row]];
      const T *const drawn = value.at(run) + block.place[row] * size, *const means = block.logits(row);
      T* const error = block.errors + row * shape.widths.back();
      for (int64_t i = 0; i < size; ++i) {
        const T precision = std::exp(-means[size + i]), away = (drawn[i] - means[i]) * precision;
        error[i] = weight * away * precision;
        error[size + i] = weight * (away * away - 1);
      }
    }
    block.backward(&turned[run * shape.all_turned], sum);
  };
  return sum_gradients<D>(pool, shape, observations, lengths, lead, gradient, add);
}

// The sum over live steps of the gradient of <outputs, errors>, for errors that are given.
template <ffi::DataType D>
ffi::Error Through(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::S32> lengths, In<D> errors,
                   ffi::Span<const int64_t> sizes, Out<D> gradient) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(gradient->dimensions(), 1);
  const auto network = in(parameters, 1, lead);
  const auto given = in(errors, 3, lead);
  const int64_t size = shape.sizes.back();
  if (network.size != shape.total) return refused(PARAMETERS);
  const auto turned = turned_weights(shape, network, product(lead));
  const auto add = [&](int64_t run, Block<T>& block, T* sum) {
    block.forward(network.at(run));
    for (int64_t row = 0; row < block.rows; ++row) {
      const T* const from = given.at(run) + block.place[row] * size;
      std::copy(from, from + size, block.errors + row * shape.widths.back());
    }
    block.backward(&turned[run * shape.all_turned], sum);
  };
  return sum_gradients<D>(pool, shape, observations, lengths, lead, gradient, add);
}

// Room in which nothing is written: memory that is not touched costs nothing. The operand is there so that a loop makes
// new room at every turn, and not a copy of what it had before.
ffi::Error Room(ffi::AnyBuffer, ffi::Result<ffi::AnyBuffer>) { return ffi::Error::Success(); }

// Puts what live trajectories see at step `time` into rows [trajectory, step], in place; all else stays as it is.
ffi::Error Keep(ffi::AnyBuffer, ffi::AnyBuffer seen, In<ffi::PRED> live, In<ffi::S32> time,
                ffi::Result<ffi::AnyBuffer> rows) {
  const int64_t n = live.element_count(), times = time.element_count();
  if (n == 0 || seen.size_bytes() == 0) return ffi::Error::Success();
  const int64_t size = seen.size_bytes() / n, horizon = rows->size_bytes() / seen.size_bytes();
  const bool fits = n * size == static_cast<int64_t>(seen.size_bytes()) && n % std::max<int64_t>(times, 1) == 0;
  if (!fits || n * size * horizon != static_cast<int64_t>(rows->size_bytes()) || !within(time, 0, horizon - 1))
    return refused("what is seen must have a row for each trajectory, and the time must lie in 0..H-1.");
  const auto* const from = static_cast<const char*>(seen.untyped_data());
  auto* const to = static_cast<char*>(rows->untyped_data());
  for (int64_t i = 0; i < n; ++i)
    if (live.typed_data()[i])
      std::memcpy(to + (i * horizon + time.typed_data()[i * times / n]) * size, from + i * size, size);
  return ffi::Error::Success();
}

// Exchanges the last two axes of an array, a few columns at a time, so that both sides stay in the cache.
template <ffi::DataType D>
ffi::Error Turn(In<D> matrices, Out<D> turned) {
  constexpr int64_t AT_ONCE = 16;
  const auto dims = matrices.dimensions();
  const int64_t rows = dims[dims.size() - 2], columns = dims.back(), count = product(leading(dims, 2));
  const auto* from = matrices.typed_data();
  auto* to = turned->typed_data();
  for (int64_t m = 0; m < count; ++m, from += rows * columns, to += rows * columns)
    for (int64_t first = 0; first < columns; first += AT_ONCE)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = first; c < std::min(columns, first + AT_ONCE); ++c) to[c * rows + r] = from[r * columns + c];
  return ffi::Error::Success();
}

template <ffi::DataType D>
auto bind_act() {
  return ffi::Ffi::Bind()
      .template Ctx<ffi::ThreadPool>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<ffi::PRED>>()
      .template Arg<In<ffi::U32>>()
      .template Arg<In<ffi::S32>>()
      .template Arg<In<ffi::S32>>()
      .template Attr<ffi::Span<const int64_t>>("sizes")
      .template Ret<ffi::Buffer<ffi::S32>>()
      .template Ret<ffi::Buffer<D>>();
}

#define STEPS(D)                       \
  ffi::Ffi::Bind()                     \
      .template Ctx<ffi::ThreadPool>() \
      .template Arg<In<D>>()           \
      .template Arg<In<D>>()           \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::S32>>()

template <ffi::DataType D>
auto bind_log_probs() {
  return STEPS(D).template Attr<ffi::Span<const int64_t>>("sizes").template Ret<ffi::Buffer<D>>();
}

#define ROWS_OF(D)                     \
  ffi::Ffi::Bind()                     \
      .template Ctx<ffi::ThreadPool>() \
      .template Arg<In<D>>()           \
      .template Arg<In<D>>()           \
      .template Arg<In<ffi::S32>>()

template <ffi::DataType D>
auto bind_outputs() {
  return ROWS_OF(D).template Attr<ffi::Span<const int64_t>>("sizes").template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_through() {
  return ROWS_OF(D)
      .template Arg<In<D>>()
      .template Attr<ffi::Span<const int64_t>>("sizes")
      .template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_normal() {
  return ffi::Ffi::Bind()
      .template Ctx<ffi::ThreadPool>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<ffi::S32>>()
      .template Arg<In<D>>()
      .template Attr<ffi::Span<const int64_t>>("sizes")
      .template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_gradient() {
  return STEPS(D)
      .template Arg<In<D>>()
      .template Attr<ffi::Span<const int64_t>>("sizes")
      .template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_slope_gradient() {
  return STEPS(D)
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Attr<ffi::Span<const int64_t>>("sizes")
      .template Ret<ffi::Buffer<D>>();
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
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_act_float32, Act<ffi::F32>, bind_act<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_act_float64, Act<ffi::F64>, bind_act<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_log_probs_float32, LogProbs<ffi::F32>, bind_log_probs<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_log_probs_float64, LogProbs<ffi::F64>, bind_log_probs<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_gradient_float32, Gradient<ffi::F32>, bind_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_gradient_float64, Gradient<ffi::F64>, bind_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_slopes_float32, Slopes<ffi::F32>, bind_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_slopes_float64, Slopes<ffi::F64>, bind_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_slope_gradient_float32, SlopeGradient<ffi::F32>, bind_slope_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_slope_gradient_float64, SlopeGradient<ffi::F64>, bind_slope_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_normal_float32, Normal<ffi::F32>, bind_normal<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_normal_float64, Normal<ffi::F64>, bind_normal<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_outputs_float32, Outputs<ffi::F32>, bind_outputs<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_outputs_float64, Outputs<ffi::F64>, bind_outputs<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_through_float32, Through<ffi::F32>, bind_through<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_through_float64, Through<ffi::F64>, bind_through<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_turn_float32, Turn<ffi::F32>, bind_turn<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_turn_float64, Turn<ffi::F64>, bind_turn<ffi::F64>());
