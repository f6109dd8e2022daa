// Epochs of PPO behind XLA's foreign function interface: the clipped surrogate of a policy and the
// squared error of a critic, descended by Adam in random minibatches of steps. Policy and critic of
// a run are two units of work, each on one thread from the first minibatch to the last.

#include <array>
#include <cmath>
#include <string_view>

#include "network.h"

namespace network {

constexpr const char* LEARNERS =
    "the operands must be those of networks of these sizes and of steps with these actions.";
constexpr int DIGIT = 11;  // bits by which numbers are sorted at once
constexpr int64_t ENTRIES = 3;

// Sorts the steps by their numbers; equal ones stay in the order of the steps.
inline void sort_by(const uint32_t* numbers, std::vector<int32_t>& steps,
                    std::vector<int32_t>& spare) {
  spare.resize(steps.size());
  for (int shift = 0; shift < 32; shift += DIGIT) {
    std::array<int64_t, (1 << DIGIT) + 1> starts{};
    const auto digit = [&](int32_t t) { return (numbers[t] >> 1 >> shift) & ((1 << DIGIT) - 1); };
    for (int32_t const t : steps) ++starts[digit(t) + 1];
    for (size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
    for (int32_t const t : steps) spare[starts[digit(t)]++] = t;
    std::swap(steps, spare);
  }
}

// Numbers of one call, which all steps of a run share.
template <typename T>
struct Settings {
  T rate, clip, most_divergence, most_norm;
  explicit Settings(const T* from)
      : rate(from[0]), clip(from[1]), most_divergence(from[2]), most_norm(from[3]) {}
};

// A network with the parameters behind it that do not depend on the input, and the moments of Adam.
template <typename T>
struct Learner {
  const Shape& shape;
  int64_t size;
  T *parameters, *first, *second;
  int32_t& steps;
  std::vector<T> gradient, turned;

  Learner(const Shape& shape, int64_t size, const T* from, T* to, const int32_t* from_steps,
          int32_t* to_steps)
      : shape(shape),
        size(size),
        parameters(to),
        first(to + size),
        second(to + 2 * size),
        steps(*to_steps),
        gradient(size),
        turned(shape.all_turned) {
    std::copy(from, from + 3 * size, to);
    steps = *from_steps;
  }

  // The parameters that do not depend on the input.
  T* own() { return parameters + shape.total; }
  T* own_gradient() { return gradient.data() + shape.total; }

  void begin() {
    std::fill(gradient.begin(), gradient.end(), T{0});
    for (int64_t l = 1; l < shape.depth; ++l)
      passes<T>().transpose(parameters + shape.weights[l], shape.sizes[l], shape.sizes[l + 1],
                            shape.widths[l + 1], &turned[shape.turned[l]], shape.widths[l]);
  }

  void finish(const Settings<T>& settings) {
    ++steps;
    const T norm = std::sqrt(passes<T>().squares(size, gradient.data()));
    const T factor = std::min(T{1}, settings.most_norm / (norm > 0 ? norm : T{1}));
    const auto correction = [&](double decay) {
      return static_cast<T>(1 / (1 - std::pow(decay, steps)));
    };
    passes<T>().descend(size, gradient.data(), factor, settings.rate, correction(0.9),
                        correction(0.999), parameters, first, second);
  }
};

// Calls backward(block, row, step, count) for the rows of every minibatch of an epoch, and updates
// the learner behind each.
template <typename T, typename Backward>
void run_epoch(Learner<T>& learner, Block<T>& block, const T* inputs, int64_t most,
               const std::vector<int32_t>& order, const Settings<T>& settings,
               const Backward& backward) {
  const int64_t count = order.size();
  const int64_t number = (count + most - 1) / most;
  const int64_t width = learner.shape.widths.back();
  for (int64_t i = 0; i < number; ++i) {
    const int64_t steps = (count - i + number - 1) / number;
    const T used = static_cast<T>(steps);
    learner.begin();
    for (int64_t place = i; place < count;) {
      block.rows = 0;
      for (; place < count && block.rows < ROWS; place += number)
        block.add(inputs + order[place] * learner.shape.sizes[0], order[place]);
      block.forward(learner.parameters);
      std::fill(block.errors, block.errors + block.rows * width, T{0});
      for (int64_t row = 0; row < block.rows; ++row)
        backward(row, block.place[row], block.errors + row * width, 1 / used);
      block.backward(learner.turned.data(), learner.gradient.data());
    }
    learner.finish(settings);
  }
}

// What the policy of a run learns from.
template <typename T>
struct Surrogate {
  const T *actions, *log_probs, *advantages, *weights;
};

// The slope of the loss in the log-probability of step t, whose sums are counted in `sums`.
template <typename T>
T surrogate_slope(const Surrogate<T>& of, int64_t t, T log_prob, T clip, T* sums) {
  const T log_ratio = log_prob - of.log_probs[t];
  const T ratio = std::exp(log_ratio);
  const T advantage = of.advantages[t];
  sums[0] += ratio - 1 - log_ratio;
  sums[1] += ratio < 1 - clip || ratio > 1 + clip;
  const bool pays = advantage > 0 ? ratio <= 1 + clip : ratio >= 1 - clip;
  return pays ? -of.weights[t] * advantage * ratio : T{0};
}

// Whether all actions of a softmax are numbers of its outputs.
template <typename T>
bool are_numbers(const T* actions, const std::vector<int32_t>& steps, int64_t outputs) {
  return std::all_of(steps.begin(), steps.end(),
                     [&](int32_t t) { return actions[t] >= 0 && actions[t] < outputs; });
}

// Descends the surrogate of a softmax; entry 0 and 1 of the result are the means over the last
// epoch of the divergence and of the clipped ratios, entry 2 is the number of epochs.
template <typename T, typename Epoch>
void run_epochs(int64_t epochs, const Settings<T>& settings, std::vector<int32_t> steps,
                const uint32_t* bits, int64_t all_steps, T* entries, const Epoch& epoch) {
  std::vector<int32_t> spare;
  const std::vector<int32_t> in_order = steps;
  std::fill(entries, entries + ENTRIES, T{0});
  int64_t done = 0;
  while (done < epochs && !in_order.empty() && entries[0] <= settings.most_divergence) {
    steps = in_order;
    sort_by(bits + done++ * all_steps, steps, spare);
    T sums[2] = {};
    epoch(steps, sums);
    for (int j = 0; j < 2; ++j) entries[j] = sums[j] / static_cast<T>(in_order.size());
  }
  entries[2] = static_cast<T>(done);
}

template <typename T>
void softmax_row(Block<T>& block, int64_t row, const Surrogate<T>& of, T clip, T scale, T* error,
                 T* sums) {
  const int64_t t = block.place[row];
  const int64_t action = static_cast<int64_t>(of.actions[t]);
  const T shift = block.softmax(row, error);
  const T slope = scale * surrogate_slope(of, t, block.logits(row)[action] - shift, clip, sums);
  for (int64_t a = 0; a < block.actions(); ++a) error[a] *= -slope;
  error[action] += slope;
}

// The same for a normal law of `size` entries, whose log-deviations are outputs behind the means or
// parameters of their own; constants are left out of its log-probabilities.
template <typename T>
void normal_row(Block<T>& block, int64_t row, const Surrogate<T>& of, int64_t size, const T* own,
                T clip, T scale, T* error, T* own_error, T* sums) {
  const int64_t t = block.place[row];
  const T* const means = block.logits(row);
  const T* const deviations = own ? own : means + size;
  T* const deviation_error = own ? own_error : error + size;
  const T* const z = of.actions + t * size;
  T log_prob = 0;
  for (int64_t i = 0; i < size; ++i) {
    const T away = (z[i] - means[i]) * std::exp(-deviations[i]);
    log_prob -= away * away / 2 + deviations[i];
  }
  const T slope = scale * surrogate_slope(of, t, log_prob, clip, sums);
  for (int64_t i = 0; i < size; ++i) {
    const T precision = std::exp(-deviations[i]);
    const T away = (z[i] - means[i]) * precision;
    error[i] = slope * away * precision;
    deviation_error[i] += slope * (away * away - 1);
  }
}

// The slopes of the squared error of the value and of the mean one of the heads.
template <typename T>
void critic_row(Block<T>& block, int64_t row, const T* targets, const T* head_weights, T scale,
                T* error) {
  const int64_t heads = block.actions();
  const T* const target = targets + block.place[row] * heads;
  T value_error = 0;
  for (int64_t i = 0; i < heads; ++i) {
    error[i] = block.logits(row)[i] - target[i];
    value_error += error[i] * head_weights[i];
  }
  for (int64_t i = 0; i < heads; ++i)
    error[i] = 2 * scale * (value_error * head_weights[i] + error[i] / static_cast<T>(heads));
}

// The operands of a call, and the sizes of its networks and steps.
template <typename T>
struct Training {
  const Shape& shape;
  const Shape& critic_shape;
  int64_t steps, epochs;
  int64_t entries;  // of a Gaussian action, 0 for a softmax
  int64_t most;     // steps of a minibatch
  Operand<const T> policy, critic;
  Operand<const int32_t> count;
  Operand<const T> input, critic_input, action, log_prob, advantage, weight, target, head_weight;
  Operand<const bool> live;
  Operand<const uint32_t> bit;
  Operand<const T> setting;
  Operand<T> new_policy, new_critic;
  Operand<int32_t> new_count;
  Operand<T> sum;

  int64_t outputs() const { return shape.sizes.back(); }
  // Whether the log-deviations of a Gaussian are parameters of their own behind the network.
  bool has_own() const { return entries > 0 && outputs() == entries; }
  int64_t size() const { return shape.total + (has_own() ? entries : 0); }

  bool fits() const {
    const int64_t heads = critic_shape.sizes.back();
    const bool has_entries = entries == 0 || has_own() || outputs() == 2 * entries;
    const bool networks = policy.size == 3 * size() && critic.size == 3 * critic_shape.total &&
                          setting.size == 4 && count.size == 2;
    const bool rows = input.size == steps * shape.sizes[0] &&
                      critic_input.size == steps * critic_shape.sizes[0] &&
                      action.size == steps * std::max<int64_t>(entries, 1);
    const bool losses = log_prob.size == steps && advantage.size == steps && weight.size == steps &&
                        target.size == steps * heads && head_weight.size == heads;
    return has_entries && networks && rows && losses && bit.size == epochs * steps && most > 0;
  }

  std::vector<int32_t> live_steps(int64_t run) const {
    std::vector<int32_t> found;
    for (int64_t t = 0; t < steps; ++t)
      if (live.at(run)[t]) found.push_back(static_cast<int32_t>(t));
    return found;
  }

  void train_policy(int64_t run, const std::vector<int32_t>& live_steps) const {
    const Settings<T> own(setting.at(run));
    Learner<T> learner(shape, size(), policy.at(run), new_policy.at(run), count.at(run),
                       new_count.at(run));
    Block<T> block(shape);
    const Surrogate<T> of{action.at(run), log_prob.at(run), advantage.at(run), weight.at(run)};
    const auto epoch = [&](const std::vector<int32_t>& order, T* totals) {
      const auto row = [&](int64_t r, int64_t, T* error, T scale) {
        if (entries == 0)
          softmax_row(block, r, of, own.clip, scale, error, totals);
        else
          normal_row(block, r, of, entries, has_own() ? learner.own() : nullptr, own.clip, scale,
                     error, learner.own_gradient(), totals);
      };
      run_epoch(learner, block, input.at(run), most, order, own, row);
    };
    run_epochs(epochs, own, live_steps, bit.at(run), steps, sum.at(run), epoch);
  }

  void train_critic(int64_t run, const std::vector<int32_t>& live_steps) const {
    const Settings<T> own(setting.at(run));
    Learner<T> learner(critic_shape, critic_shape.total, critic.at(run), new_critic.at(run),
                       count.at(run) + 1, new_count.at(run) + 1);
    Block<T> block(critic_shape);
    const auto epoch = [&](const std::vector<int32_t>& order, T*) {
      const auto row = [&](int64_t r, int64_t, T* error, T scale) {
        critic_row(block, r, target.at(run), head_weight.at(run), scale, error);
      };
      run_epoch(learner, block, critic_input.at(run), most, order, own, row);
    };
    T totals[ENTRIES];  // no divergence ends the epochs of a critic
    run_epochs(epochs, own, live_steps, bit.at(run), steps, totals, epoch);
  }
};

template <ffi::DataType D>
ffi::Error Train(ffi::ThreadPool pool, In<D> policies, In<D> critics, In<ffi::S32> counts,
                 In<D> inputs, In<D> critic_inputs, In<D> actions, In<D> log_probs,
                 In<D> advantages, In<D> weights, In<D> targets, In<D> head_weights,
                 In<ffi::PRED> live, In<ffi::U32> bits, In<D> settings,
                 ffi::Span<const int64_t> sizes, ffi::Span<const int64_t> critic_sizes,
                 int64_t entries, int64_t most, Out<D> new_policies, Out<D> new_critics,
                 Out<ffi::S32> new_counts, Out<D> sums) {
  const Shape shape(sizes);
  const Shape critic_shape(critic_sizes);
  const auto lead = leading(sums->dimensions(), 1);
  const int64_t runs = product(lead);
  const Training<ffi::NativeType<D>> training{shape,
                                              critic_shape,
                                              live.dimensions().back(),
                                              bits.dimensions()[bits.dimensions().size() - 2],
                                              entries,
                                              most,
                                              in(policies, 2, lead),
                                              in(critics, 2, lead),
                                              in(counts, 1, lead),
                                              in(inputs, 2, lead),
                                              in(critic_inputs, 2, lead),
                                              in(actions, 2, lead),
                                              in(log_probs, 1, lead),
                                              in(advantages, 1, lead),
                                              in(weights, 1, lead),
                                              in(targets, 2, lead),
                                              in(head_weights, 1, lead),
                                              in(live, 1, lead),
                                              in(bits, 2, lead),
                                              in(settings, 1, lead),
                                              out(new_policies, 2, lead),
                                              out(new_critics, 2, lead),
                                              out(new_counts, 1, lead),
                                              out(sums, 1, lead)};
  if (!training.fits()) return refused(LEARNERS);
  std::vector<std::vector<int32_t>> live_steps(runs);
  for (int64_t run = 0; run < runs; ++run) {
    live_steps[run] = training.live_steps(run);
    if (entries == 0 && !are_numbers(training.action.at(run), live_steps[run], training.outputs()))
      return refused(LEARNERS);
  }
  in_parallel(pool, 2 * runs, 2 * runs, [&](int64_t unit) {
    const int64_t run = unit / 2;
    if (unit % 2 == 0)
      training.train_policy(run, live_steps[run]);
    else
      training.train_critic(run, live_steps[run]);
  });
  return ffi::Error::Success();
}

template <ffi::DataType D>
auto bind_train() {
  return ffi::Ffi::Bind()
      .template Ctx<ffi::ThreadPool>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<ffi::S32>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<ffi::PRED>>()
      .template Arg<In<ffi::U32>>()
      .template Arg<In<D>>()
      .template Attr<ffi::Span<const int64_t>>("sizes")
      .template Attr<ffi::Span<const int64_t>>("critic_sizes")
      .template Attr<int64_t>("entries")
      .template Attr<int64_t>("minibatch")
      .template Ret<ffi::Buffer<D>>()
      .template Ret<ffi::Buffer<D>>()
      .template Ret<ffi::Buffer<ffi::S32>>()
      .template Ret<ffi::Buffer<D>>();
}

}  // namespace network

using namespace network;

XLA_FFI_DEFINE_HANDLER_SYMBOL(network_train_float32, Train<ffi::F32>, bind_train<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(network_train_float64, Train<ffi::F64>, bind_train<ffi::F64>());
