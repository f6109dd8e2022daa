// Networks of tanh layers behind XLA's foreign function interface, sums of gradients over live
// steps: of log-probabilities of softmax policies, and of their slopes along a direction; of normal
// laws; for all others through the outputs.

#include <memory>

#include "network.h"

namespace network {

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

// The sum over live steps of gradients; add(run, block, sum) adds those of a block, whose errors
// are zeros.
template <ffi::DataType D, typename Add>
ffi::Error sum_gradients(ffi::ThreadPool pool, const Shape& shape, In<D> observations,
                         In<ffi::S32> lengths, const std::vector<int64_t>& lead, Out<D> gradient,
                         const Add& add) {
  using T = ffi::NativeType<D>;
  const int64_t horizon = observations.dimensions()[observations.dimensions().size() - 2];
  const int64_t n = lengths.dimensions().back();
  const int64_t runs = product(lead);
  const auto seen = in(observations, 3, lead);
  const auto length = in(lengths, 1, lead);
  const auto results = out(gradient, 1, lead);
  if (seen.size != n * horizon * shape.sizes[0]) return refused(PARAMETERS);
  if (!within(lengths, 0, horizon)) return refused(STEPS_TAKEN);
  const int64_t most = (n + PART - 1) / PART;
  const int64_t parts = std::min(most, MOST_SUMS);
  const int64_t each = (n + parts - 1) / parts;
  const std::unique_ptr<T[]> others(new T[runs * (parts - 1) * shape.total]);
  const auto sum_of = [&](int64_t run, int64_t part) {  // that of the first part becomes the result
    return part == 0 ? results.at(run) : &others[(run * (parts - 1) + part - 1) * shape.total];
  };
  const int64_t threads = 1 + runs * n * horizon / WORTH_A_THREAD;
  in_parallel(pool, runs * parts, threads, [&](int64_t unit) {
    const int64_t run = unit / parts;
    const int64_t part = unit % parts;
    const int64_t first = std::min(n, part * each);
    const int64_t last = std::min(n, first + each);
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

// The sum over live steps of their coefficient times the gradient of the log-probability of their
// action.
template <ffi::DataType D>
ffi::Error Gradient(ffi::ThreadPool pool, In<D> parameters, In<D> observations,
                    In<ffi::S32> actions, In<ffi::S32> lengths, In<D> coefficients,
                    ffi::Span<const int64_t> sizes, Out<D> gradient) {
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

// The same, and the sum of a second coefficient times the gradient of the slope of the
// log-probability along a direction.
template <ffi::DataType D>
ffi::Error SlopeGradient(ffi::ThreadPool pool, In<D> parameters, In<D> observations,
                         In<ffi::S32> actions, In<ffi::S32> lengths, In<D> direction,
                         In<D> coefficients, In<D> slope_coefficients,
                         ffi::Span<const int64_t> sizes, Out<D> gradient) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(gradient->dimensions(), 1);
  const auto network = in(parameters, 1, lead);
  const auto moved = in(direction, 1, lead);
  const auto action = in(actions, 2, lead);
  const auto coefficient = in(coefficients, 2, lead);
  const auto of_slope = in(slope_coefficients, 2, lead);
  if (network.size != shape.total || moved.size != shape.total) return refused(PARAMETERS);
  if (!within(actions, 0, shape.sizes.back() - 1)) return refused(STEPS_TAKEN);
  const auto turned = turned_weights(shape, network, product(lead));
  const auto turned_direction = turned_weights(shape, moved, product(lead));
  const auto add = [&](int64_t run, Block<T>& block, T* sum) {
    block.forward_along(network.at(run), moved.at(run));
    std::fill(block.bends, block.bends + block.rows * shape.widths.back(), T{0});
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t t = block.place[row];
      const int64_t chosen = action.at(run)[t];
      const T weight = coefficient.at(run)[t];
      const T slope_weight = of_slope.at(run)[t];
      const T* const slopes = block.logit_slopes(row);
      T* const error = block.errors + row * shape.widths.back();
      T* const bend = block.bends + row * shape.widths.back();
      const T mean = block.expected_slope(row, error);
      for (int64_t a = 0; a < block.actions(); ++a) {
        bend[a] = -slope_weight * error[a];
        error[a] *= -weight - slope_weight * (slopes[a] - mean);
      }
      bend[chosen] += slope_weight;
      error[chosen] += weight;
    }
    block.backward_along(&turned[run * shape.all_turned], &turned_direction[run * shape.all_turned],
                         sum);
  };
  return sum_gradients<D>(pool, shape, observations, lengths, lead, gradient, add);
}

// The same for normal laws, of which the network returns the means and behind them the logarithms
// of the deviations.
template <ffi::DataType D>
ffi::Error Normal(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<D> values,
                  In<ffi::S32> lengths, In<D> coefficients, ffi::Span<const int64_t> sizes,
                  Out<D> gradient) {
  using T = ffi::NativeType<D>;
  const Shape shape(sizes);
  const auto lead = leading(gradient->dimensions(), 1);
  const auto network = in(parameters, 1, lead);
  const auto value = in(values, 3, lead);
  const auto coefficient = in(coefficients, 2, lead);
  const int64_t size = shape.sizes.back() / 2;
  if (network.size != shape.total || value.size != coefficient.size * size)
    return refused(PARAMETERS);
  const auto turned = turned_weights(shape, network, product(lead));
  const auto add = [&](int64_t run, Block<T>& block, T* sum) {
    block.forward(network.at(run));
    for (int64_t row = 0; row < block.rows; ++row) {
      const T weight = coefficient.at(run)[block.place[row]];
      const T* const drawn = value.at(run) + block.place[row] * size;
      const T* const means = block.logits(row);
      T* const error = block.errors + row * shape.widths.back();
      for (int64_t i = 0; i < size; ++i) {
        const T precision = std::exp(-means[size + i]);
        const T away = (drawn[i] - means[i]) * precision;
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
ffi::Error Through(ffi::ThreadPool pool, In<D> parameters, In<D> observations, In<ffi::S32> lengths,
                   In<D> errors, ffi::Span<const int64_t> sizes, Out<D> gradient) {
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
auto bind_through() {
  return ROWS_OF(D)
      .template Arg<In<D>>()
      .template Attr<ffi::Span<const int64_t>>("sizes")
      .template Ret<ffi::Buffer<D>>();
}

}  // namespace network

using namespace network;

XLA_FFI_DEFINE_HANDLER_SYMBOL(network_gradient_float32, Gradient<ffi::F32>,
                              bind_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_gradient_float64, Gradient<ffi::F64>,
                              bind_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_slope_gradient_float32, SlopeGradient<ffi::F32>,
                              bind_slope_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_slope_gradient_float64, SlopeGradient<ffi::F64>,
                              bind_slope_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_normal_float32, Normal<ffi::F32>, bind_normal<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_normal_float64, Normal<ffi::F64>, bind_normal<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_through_float32, Through<ffi::F32>, bind_through<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_through_float64, Through<ffi::F64>, bind_through<ffi::F64>());
