// Networks of tanh layers behind XLA's foreign function interface, a number for each live step: of
// softmax policies the actions, the log-probabilities, and their slopes along a direction; for all
// others the outputs of the network.

#include <numeric>

#include "network.h"
#include "random.h"

namespace network {

// An action and its log-probability for every live trajectory at step `time`, and zeros for the
// others.
template <ffi::DataType D>
ffi::Error Act(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::PRED> live,
               In<ffi::U32> key, In<ffi::S32> numbers, In<ffi::S32> time,
               ffi::Span<const int64_t> sizes, Out<ffi::S32> actions, Out<D> log_probs) {
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
  if (network.size != shape.total || seen.size != alive.size * shape.sizes[0])
    return refused(PARAMETERS);
  const int64_t n = actions->dimensions().back();
  const int64_t runs = product(lead);
  const int64_t parts = (n + ROWS - 1) / ROWS;
  const int64_t rows =
      std::count(live.typed_data(), live.typed_data() + live.element_count(), true);
  in_parallel(pool, runs * parts, 1 + rows / WORTH_A_THREAD, [&](int64_t unit) {
    const int64_t run = unit / parts;
    const int64_t first = unit % parts * ROWS;
    const int64_t last = std::min(n, first + ROWS);
    int32_t* const action = chosen.at(run);
    T* const chance = chances.at(run);
    Block<T> block(shape);
    for (int64_t i = first; i < last; ++i) {
      action[i] = 0, chance[i] = 0;
      if (alive.at(run)[i]) block.add(seen.at(run) + i * shape.sizes[0], i);
    }
    if (block.rows == 0) return;
    block.forward(network.at(run));
    std::vector<T> probs(block.actions());
    std::vector<T> thresholds(block.actions());
    uint32_t trajectory[SLOTS] = {};
    uint32_t turn[SLOTS];
    uint32_t words[4][SLOTS];
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

// A number for every live step, and zeros for the others; write(run, block, action, result) gives
// those of a block.
template <ffi::DataType D, typename Write>
ffi::Error each_step(ffi::ThreadPool pool, const Shape& shape, In<D> observations,
                     In<ffi::S32> actions, In<ffi::S32> lengths, Out<D> numbers,
                     const Write& write) {
  using T = ffi::NativeType<D>;
  const auto lead = leading(numbers->dimensions(), 2);
  const int64_t horizon = numbers->dimensions().back();
  const int64_t n = lengths.dimensions().back();
  const int64_t runs = product(lead);
  const auto seen = in(observations, 3, lead);
  const auto action = in(actions, 2, lead);
  const auto length = in(lengths, 1, lead);
  const auto results = out(numbers, 2, lead);
  if (seen.size != n * horizon * shape.sizes[0]) return refused(PARAMETERS);
  if (!within(actions, 0, shape.sizes.back() - 1) || !within(lengths, 0, horizon))
    return refused(STEPS_TAKEN);
  const int64_t parts = (n + PART - 1) / PART;
  in_parallel(pool, runs * parts, 1 + runs * n * horizon / WORTH_A_THREAD, [&](int64_t unit) {
    const int64_t run = unit / parts;
    const int64_t first = unit % parts * PART;
    const int64_t last = std::min(n, first + PART);
    T* const result = results.at(run);
    std::fill(result + first * horizon, result + last * horizon, T{0});
    each_block(shape, seen.at(run), length.at(run), horizon, first, last,
               [&](Block<T>& block) { write(run, block, action.at(run), result); });
  });
  return ffi::Error::Success();
}

// The log-probability of every live action, and zeros for the others.
template <ffi::DataType D>
ffi::Error LogProbs(ffi::ThreadPool pool, In<D> parameters, In<D> observations,
                    In<ffi::S32> actions, In<ffi::S32> lengths, ffi::Span<const int64_t> sizes,
                    Out<D> log_probs) {
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

// The derivative of the log-probability of every live action along a direction, and zeros for the
// others.
template <ffi::DataType D>
ffi::Error Slopes(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::S32> actions,
                  In<ffi::S32> lengths, In<D> direction, ffi::Span<const int64_t> sizes,
                  Out<D> along) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(along->dimensions(), 2);
  const auto network = in(parameters, 1, lead);
  const auto moved = in(direction, 1, lead);
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
  const int64_t n = lengths.dimensions().back();
  const int64_t runs = product(lead);
  const int64_t size = shape.sizes.back();
  const auto network = in(parameters, 1, lead);
  const auto seen = in(observations, 3, lead);
  const auto length = in(lengths, 1, lead);
  const auto results = out(outputs, 3, lead);
  if (network.size != shape.total || seen.size != n * horizon * shape.sizes[0])
    return refused(PARAMETERS);
  if (!within(lengths, 0, horizon)) return refused(STEPS_TAKEN);
  const int64_t part = std::max(PART, ROWS / horizon);
  const int64_t parts = (n + part - 1) / part;
  const int64_t rows = std::accumulate(lengths.typed_data(),
                                       lengths.typed_data() + lengths.element_count(), int64_t{0});
  in_parallel(pool, runs * parts, 1 + rows / WORTH_A_THREAD, [&](int64_t unit) {
    const int64_t run = unit / parts;
    const int64_t first = unit % parts * part;
    const int64_t last = std::min(n, first + part);
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

template <ffi::DataType D>
auto bind_log_probs() {
  return STEPS(D).template Attr<ffi::Span<const int64_t>>("sizes").template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_outputs() {
  return ROWS_OF(D).template Attr<ffi::Span<const int64_t>>("sizes").template Ret<ffi::Buffer<D>>();
}

}  // namespace network

using namespace network;

XLA_FFI_DEFINE_HANDLER_SYMBOL(network_act_float32, Act<ffi::F32>, bind_act<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_act_float64, Act<ffi::F64>, bind_act<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_log_probs_float32, LogProbs<ffi::F32>,
                              bind_log_probs<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_log_probs_float64, LogProbs<ffi::F64>,
                              bind_log_probs<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_slopes_float32, Slopes<ffi::F32>, bind_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_slopes_float64, Slopes<ffi::F64>, bind_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_outputs_float32, Outputs<ffi::F32>, bind_outputs<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_outputs_float64, Outputs<ffi::F64>, bind_outputs<ffi::F64>());
