// Sampling and estimating for tabular problems with tabular policies, behind XLA's foreign function interface.
//
// A step is one number, its event e = (s * A + a) * K + k: action a in state s had its k-th outcome. A trajectory is the
// list of its events; nothing is kept of the time after its end. With the behaviour policy known, an importance weight
// is a product of entries of a table [S, A], and the gradient of a softmax over a table needs, of each visit, only what
// is still earned from there on: sum_a' c[s, a'] and c[s, a] of these sums give it for all parameters at once.
//
// Every operand may have leading axes, which vmap adds; an axis of length one is shared. Work is cut into parts of
// PART trajectories whose sums are added in order, so results do not depend on the number of threads. Random numbers
// are Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011), keyed by the
// JAX key and counted by (trajectory, step): trajectory i of a key is the same in any batch.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr int64_t PART = 128;           // trajectories in a part
constexpr int64_t WORTH_A_THREAD = 64;  // trajectories that take longer than waking a thread

template <ffi::DataType D>
using In = ffi::Buffer<D>;
template <ffi::DataType D>
using Out = ffi::Result<ffi::Buffer<D>>;

// The place of a lane in an operand: `rank` axes of its own come last, those before are lanes or of length one.
template <typename T>
struct Lanes {
  T* data;
  int64_t size = 1;
  std::vector<std::pair<int64_t, int64_t>> axes;  // length and stride, the innermost first

  Lanes(T* data, ffi::Span<const int64_t> dims, size_t rank, const std::vector<int64_t>& lead) : data(data) {
    const size_t own = dims.size() - rank;
    for (size_t i = own; i < dims.size(); ++i) size *= dims[i];
    int64_t stride = size;
    for (size_t i = own; i-- > 0;) {
      axes.push_back({lead[i], dims[i] == 1 ? 0 : stride});
      stride *= dims[i];
    }
  }

  T* at(int64_t lane) const {
    T* place = data;
    for (const auto& [length, stride] : axes) {
      place += (lane % length) * stride;
      lane /= length;
    }
    return place;
  }
};

template <ffi::DataType D>
Lanes<const ffi::NativeType<D>> in(const In<D>& buffer, size_t rank, const std::vector<int64_t>& lead) {
  return {buffer.typed_data(), buffer.dimensions(), rank, lead};
}

template <ffi::DataType D>
Lanes<ffi::NativeType<D>> out(Out<D>& buffer, size_t rank, const std::vector<int64_t>& lead) {
  return {buffer->typed_data(), buffer->dimensions(), rank, lead};
}

std::vector<int64_t> leading(ffi::Span<const int64_t> dims, size_t rank) {
  return {dims.begin(), dims.begin() + (dims.size() - rank)};
}

int64_t product(const std::vector<int64_t>& lengths) {
  int64_t total = 1;
  for (int64_t length : lengths) total *= length;
  return total;
}

// Runs unit 0 to count - 1, each once. The caller works too, and so never waits for a thread that has not begun.
template <typename Unit>
void run(ffi::ThreadPool pool, int64_t count, int64_t cost, const Unit& unit) {
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
  };
  auto shared = std::make_shared<Shared>();
  auto work = [shared, count, &unit] {
    for (int64_t i; (i = shared->next.fetch_add(1)) < count;) {
      unit(i);
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  const int64_t helpers = std::min({static_cast<int64_t>(pool.num_threads()) - 1, count - 1, cost / WORTH_A_THREAD});
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(std::function<void()>(work));
  work();
  while (shared->done.load(std::memory_order_acquire) < count) {
  }
}

struct Philox {
  uint32_t key[2];
  uint32_t counter[4];
  uint32_t block[4];
  int used = 4;

  Philox(uint32_t key0, uint32_t key1, uint64_t trajectory)
      : key{key0, key1},
        counter{static_cast<uint32_t>(trajectory), static_cast<uint32_t>(trajectory >> 32), 0, 0} {}

  // Uniform on [0, 1), with 32 bits.
  double uniform() {
    if (used == 4) refill();
    return block[used++] * 0x1p-32;
  }

  void refill() {
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t left = uint64_t{0xD2511F53} * x0, right = uint64_t{0xCD9E8D57} * x2;
      x0 = static_cast<uint32_t>(right >> 32) ^ x1 ^ k0;
      x1 = static_cast<uint32_t>(right);
      x2 = static_cast<uint32_t>(left >> 32) ^ x3 ^ k1;
      x3 = static_cast<uint32_t>(left);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    block[0] = x0, block[1] = x1, block[2] = x2, block[3] = x3;
    ++counter[2];
    used = 0;
  }
};

// Trajectories begin to end - 1 of a lane, which are in parts.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  int64_t parts() const { return (end - 1) / PART - begin / PART + 1; }
  Range part(int64_t number) const {
    const int64_t first = (begin / PART + number) * PART;
    return {std::max(begin, first), std::min(end, first + PART)};
  }
};

// The trajectories of one lane: part p begins at event p * PART * horizon, and is packed from there on.
struct Taken {
  const int32_t* events;
  const int32_t* lengths;
  const int32_t* finals;  // the last state, or -1 for a trajectory that is not there

  // Calls visit(events, their number, last state) for each trajectory of a part.
  template <typename Visit>
  void each(const Range& part, int64_t horizon, const Visit& visit) const {
    const int64_t first = part.begin / PART * PART;
    const int32_t* steps = events + first * horizon;
    for (int64_t i = first; i < part.end; steps += lengths[i++])
      if (i >= part.begin) visit(steps, static_cast<int64_t>(lengths[i]), static_cast<int64_t>(finals[i]));
  }
};

template <ffi::DataType D>
ffi::Error Sample(ffi::ThreadPool pool, In<ffi::S32> successors, In<D> thresholds, In<D> initial, In<ffi::PRED> terminal,
                  In<D> log_probs, In<ffi::U32> key, In<ffi::S32> numbers, int64_t horizon, Out<ffi::S32> events,
                  Out<ffi::S32> lengths, Out<ffi::S32> finals) {
  using T = ffi::NativeType<D>;
  const auto dims = successors.dimensions();
  const size_t rank = dims.size();
  const int64_t S = dims[rank - 3], A = dims[rank - 2], K = dims[rank - 1];
  const Range range{0, lengths->dimensions().back()};
  const auto lead = leading(lengths->dimensions(), 1);
  const auto following = in(successors, 3, lead);
  const auto outcome = in(thresholds, 3, lead);
  const auto start = in(initial, 1, lead);
  const auto ends = in(terminal, 1, lead);
  const auto policy = in(log_probs, 2, lead);
  const auto keys = in(key, 1, lead);
  const auto first_and_stop = in(numbers, 1, lead);
  const auto all_events = out(events, 1, lead);
  const auto all_lengths = out(lengths, 1, lead);
  const auto all_finals = out(finals, 1, lead);

  const int64_t lanes = product(lead);
  run(pool, lanes * range.parts(), lanes * range.size(), [&](int64_t unit) {
    const int64_t lane = unit / range.parts();
    const Range part = range.part(unit % range.parts());
    const int32_t* next = following.at(lane);
    const T* chances = outcome.at(lane);
    const T* beginning = start.at(lane);
    const bool* over = ends.at(lane);
    const T* log_prob = policy.at(lane);
    const uint32_t* words = keys.at(lane);
    const int32_t first = first_and_stop.at(lane)[0], stop = first_and_stop.at(lane)[1];
    int32_t* step = all_events.at(lane) + part.begin * horizon;
    thread_local std::vector<float> cumulative;  // of the probabilities of actions, filled in when a state is visited
    cumulative.assign(S * A, -1.0f);
    for (int64_t i = part.begin; i < part.end; ++i) {
      all_lengths.at(lane)[i] = 0;
      all_finals.at(lane)[i] = -1;
      if (first + i >= stop) continue;
      Philox random(words[0], words[1], static_cast<uint64_t>(first + i));
      const int32_t* const begin = step;
      int64_t s = std::upper_bound(beginning, beginning + S, static_cast<T>(random.uniform())) - beginning;
      for (int64_t t = 0; t < horizon && !over[s]; ++t) {
        float* row = cumulative.data() + s * A;
        if (row[0] < 0) {
          double sum = 0;
          for (int64_t a = 0; a < A; ++a) row[a] = static_cast<float>(sum += std::exp(double{log_prob[s * A + a]}));
        }
        const float u = static_cast<float>(random.uniform());
        int64_t a = 0;
        while (a < A - 1 && u >= row[a]) ++a;
        const T* chance = chances + (s * A + a) * K;
        const T v = static_cast<T>(random.uniform());
        int64_t k = 0;
        while (k < K - 1 && v >= chance[k]) ++k;
        const int64_t event = (s * A + a) * K + k;
        *step++ = static_cast<int32_t>(event);
        s = next[event];
      }
      all_lengths.at(lane)[i] = static_cast<int32_t>(step - begin);
      all_finals.at(lane)[i] = static_cast<int32_t>(s);
    }
  });
  return ffi::Error::Success();
}

// Importance weights of a target along a trajectory: w(t) after w(t - 1), by a table of ratios.
template <typename T>
class Weights {
 public:
  Weights(const T* target, const T* behaviour, int64_t pairs, bool on_policy, int64_t visits)
      : target_(target), behaviour_(behaviour), on_policy_(on_policy) {
    if (on_policy || visits < pairs) return;
    table_.resize(pairs);
    for (int64_t i = 0; i < pairs; ++i) table_[i] = fresh(i);
  }

  double times(double weight, int64_t pair) const {
    if (on_policy_) return weight;
    return std::min(weight * (table_.empty() ? fresh(pair) : table_[pair]), LARGEST);
  }

  // What is used of a weight; beyond it carries no information, and sums must stay finite.
  static double capped(double weight) { return std::min(weight, CAP); }

 private:
  static inline const double CAP = std::sqrt(static_cast<double>(std::numeric_limits<T>::max()));
  static constexpr double LARGEST = 1e300;

  double fresh(int64_t pair) const {
    return std::exp(static_cast<double>(target_[pair]) - static_cast<double>(behaviour_[pair]));
  }

  const T* target_;
  const T* behaviour_;
  bool on_policy_;
  std::vector<double> table_;
};

// What all estimates are made from.
template <ffi::DataType D>
struct Question {
  using T = ffi::NativeType<D>;
  Range range;
  int64_t horizon, S, A, K;
  std::vector<int64_t> lead;
  Lanes<const int32_t> events, lengths, finals;
  Lanes<const bool> terminal;
  Lanes<const T> target, behaviour;
  bool on_policy;
  std::vector<double> discounts, remaining;  // gamma^t, and (gamma^t - gamma^H) / (1 - gamma)

  Question(const In<ffi::S32>& e, const In<ffi::S32>& l, const In<ffi::S32>& f, const In<ffi::PRED>& over, const In<D>& t,
           const In<D>& b, std::vector<int64_t> lead, Range range, int64_t horizon, int64_t K, double discount,
           bool on_policy)
      : range(range),
        horizon(horizon),
        S(t.dimensions()[t.dimensions().size() - 2]),
        A(t.dimensions().back()),
        K(K),
        lead(lead),
        events(in(e, 1, lead)),
        lengths(in(l, 1, lead)),
        finals(in(f, 1, lead)),
        terminal(in(over, 1, lead)),
        target(in(t, 2, lead)),
        behaviour(in(b, 2, lead)),
        on_policy(on_policy) {
    double power = 1;
    for (int64_t i = 0; i <= horizon; ++i, power *= discount) discounts.push_back(power);
    for (double present : discounts) remaining.push_back((present - discounts.back()) / (1 - discount));
  }

  Weights<T> weights(int64_t lane, const Range& part) const {
    const int32_t* length = lengths.at(lane);
    int64_t visits = 0;
    for (int64_t i = part.begin; i < part.end; ++i) visits += length[i];
    return {target.at(lane), behaviour.at(lane), S * A, on_policy, visits};
  }

  // Calls visit(events, their number, last state) for each trajectory of a part.
  template <typename Visit>
  void each(int64_t lane, const Range& part, const Visit& visit) const {
    Taken{events.at(lane), lengths.at(lane), finals.at(lane)}.each(part, horizon, visit);
  }

  bool ended(int64_t lane, int64_t state) const { return state >= 0 && terminal.at(lane)[state]; }

  // Calls add(lane, part, sums) for every part, with `size` sums that begin at zero, and then write(lane, sums) for
  // every lane, with the parts added up in order.
  template <typename Add, typename Write>
  void answer(ffi::ThreadPool pool, int64_t size, const Add& add, const Write& write) const {
    const int64_t lanes = product(lead), parts = range.parts();
    thread_local std::vector<double> sums;
    sums.assign(lanes * parts * size, 0.0);
    double* const all = sums.data();
    run(pool, lanes * parts, lanes * range.size(),
        [&](int64_t unit) { add(unit / parts, range.part(unit % parts), all + unit * size); });
    for (int64_t lane = 0; lane < lanes; ++lane) {
      double* total = all + lane * parts * size;
      for (int64_t part = 1; part < parts; ++part)
        for (int64_t i = 0; i < size; ++i) total[i] += total[part * size + i];
      write(lane, total);
    }
  }
};

template <ffi::DataType D>
ffi::Error Occupancy(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths, In<ffi::S32> finals,
                     In<ffi::PRED> terminal, In<D> target, In<D> behaviour, int64_t begin, int64_t end,
                     int64_t horizon, int64_t outcomes, double discount, bool on_policy, bool absorbing, Out<D> mass,
                     Out<D> tail) {
  const Question<D> question(events, lengths, finals, terminal, target, behaviour, leading(mass->dimensions(), 1),
                             {begin, end}, horizon, outcomes, discount, on_policy);
  const auto [S, A, K] = std::tuple(question.S, question.A, question.K);
  const auto masses = out(mass, 1, question.lead);
  const auto tails = out(tail, 1, question.lead);
  const int64_t many = S * A * K;
  question.answer(
      pool, many + S,
      [&, K = K](int64_t lane, const Range& part, double* sums) {
        const auto weights = question.weights(lane, part);
        question.each(lane, part, [&](const int32_t* steps, int64_t length, int64_t last) {
          double weight = 1;
          for (int64_t t = 0; t < length; ++t) {
            weight = weights.times(weight, steps[t] / K);
            sums[steps[t]] += question.discounts[t] * weights.capped(weight);
          }
          if (absorbing && question.ended(lane, last))
            sums[many + last] += question.remaining[length] * weights.capped(weight);
        });
      },
      [&, S = S](int64_t lane, const double* sums) {
        for (int64_t e = 0; e < many; ++e) masses.at(lane)[e] = sums[e] / question.range.size();
        for (int64_t s = 0; s < S; ++s) tails.at(lane)[s] = sums[many + s] / question.range.size();
      });
  return ffi::Error::Success();
}

// For each pair (s, a), the mean over trajectories of what is earned from its visits on; with a baseline, less the
// weight of the visit times what the other trajectories that are still live earn from that step on, on average.
template <ffi::DataType D>
ffi::Error Gradient(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths, In<ffi::S32> finals,
                    In<ffi::PRED> terminal, In<D> target, In<D> behaviour, In<D> payoff, In<D> tail_payoff,
                    int64_t begin, int64_t end, int64_t horizon, int64_t outcomes, double discount, bool on_policy, bool absorbing, bool baseline,
                    Out<D> coefficients, Out<D> tail) {
  const Question<D> question(events, lengths, finals, terminal, target, behaviour,
                             leading(coefficients->dimensions(), 1), {begin, end}, horizon, outcomes, discount,
                             on_policy);
  const auto payoffs = in(payoff, 1, question.lead);
  const auto tail_payoffs = in(tail_payoff, 1, question.lead);
  const auto results = out(coefficients, 1, question.lead);
  const auto tails = out(tail, 1, question.lead);
  const int64_t S = question.S, K = question.K, pairs = S * question.A;

  // Calls visit(t, pair, what is earned from t on, weight at t) for all steps of a part, each trajectory backwards, and
  // absorb(last state, mass left after the end) where one is absorbed.
  const auto backwards = [&](int64_t lane, const Range& part, const auto& visit, const auto& absorb) {
    const auto weights = question.weights(lane, part);
    const auto* pays = payoffs.at(lane);
    thread_local std::vector<double> earned, used;
    earned.resize(horizon);
    used.resize(horizon);
    question.each(lane, part, [&](const int32_t* steps, int64_t length, int64_t last) {
      double weight = 1, to_go = 0;
      for (int64_t t = 0; t < length; ++t) {
        weight = weights.times(weight, steps[t] / K);
        used[t] = weights.capped(weight);
        earned[t] = question.discounts[t] * used[t] * pays[steps[t]];
      }
      if (absorbing && question.ended(lane, last)) {
        const double mass = question.remaining[length] * weights.capped(weight);
        to_go = mass * tail_payoffs.at(lane)[last];
        absorb(last, mass);
      }
      for (int64_t t = length; t-- > 0;) visit(t, steps[t] / K, to_go += earned[t], used[t]);
    });
  };

  std::vector<double> expected;  // by lane: the sum over trajectories of what is earned from t on, then how many live
  if (baseline) {
    expected.resize(product(question.lead) * 2 * horizon);
    question.answer(
        pool, 2 * horizon,
        [&](int64_t lane, const Range& part, double* sums) {
          backwards(
              lane, part,
              [&](int64_t t, int64_t, double to_go, double) { sums[t] += to_go, ++sums[horizon + t]; },
              [](int64_t, double) {});
        },
        [&](int64_t lane, const double* sums) {
          std::copy(sums, sums + 2 * horizon, expected.begin() + lane * 2 * horizon);
        });
  }
  question.answer(
      pool, pairs + S,
      [&](int64_t lane, const Range& part, double* sums) {
        const double* all = expected.data() + lane * 2 * horizon;
        backwards(
            lane, part,
            [&](int64_t t, int64_t pair, double to_go, double weight) {
              const double others = baseline ? (all[t] - to_go) / std::max(all[horizon + t] - 1, 1.0) : 0.0;
              sums[pair] += to_go - weight * others;
            },
            [&](int64_t state, double mass) { sums[pairs + state] += mass; });
      },
      [&](int64_t lane, const double* sums) {
        for (int64_t i = 0; i < pairs; ++i) results.at(lane)[i] = sums[i] / question.range.size();
        for (int64_t s = 0; s < S; ++s) tails.at(lane)[s] = sums[pairs + s] / question.range.size();
      });
  return ffi::Error::Success();
}

// Sums over the trajectories that took a step: return, discounted return, weight, squared weight; and the largest weight
// of any step.
template <ffi::DataType D>
ffi::Error Tally(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths, In<ffi::S32> finals,
                 In<ffi::PRED> terminal, In<D> target, In<D> behaviour, In<D> rewards, int64_t begin,
                 int64_t end, int64_t horizon, int64_t outcomes, double discount, bool on_policy, double largest_squared, Out<D> sums_out) {
  const Question<D> question(events, lengths, finals, terminal, target, behaviour, leading(sums_out->dimensions(), 1),
                             {begin, end}, horizon, outcomes, discount, on_policy);
  const int64_t parts = question.range.parts(), K = question.K;
  const auto pays = in(rewards, 1, question.lead);
  const auto results = out(sums_out, 1, question.lead);
  const int64_t lanes = product(question.lead);
  std::vector<double> largest(lanes * parts, 0.0);
  question.answer(
      pool, 4,
      [&](int64_t lane, const Range& part, double* sums) {
        const auto weights = question.weights(lane, part);
        const auto* pay = pays.at(lane);
        double& most = largest[lane * parts + part.begin / PART - begin / PART];
        question.each(lane, part, [&](const int32_t* steps, int64_t length, int64_t) {
          double weight = 1;
          for (int64_t t = 0; t < length; ++t) {
            weight = weights.times(weight, steps[t] / K);
            most = std::max(most, weights.capped(weight));
            sums[0] += pay[steps[t]];
            sums[1] += question.discounts[t] * pay[steps[t]];
          }
          if (length == 0) return;
          const double last = std::min(weights.capped(weight), largest_squared);
          sums[2] += last;
          sums[3] += last * last;
        });
      },
      [&](int64_t lane, const double* sums) {
        std::copy(sums, sums + 4, results.at(lane));
        const double* most = largest.data() + lane * parts;
        results.at(lane)[4] = *std::max_element(most, most + parts);
      });
  return ffi::Error::Success();
}

template <ffi::DataType D>
auto bind_sample() {
  return ffi::Ffi::Bind()
      .template Ctx<ffi::ThreadPool>()
      .template Arg<In<ffi::S32>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<ffi::PRED>>()
      .template Arg<In<D>>()
      .template Arg<In<ffi::U32>>()
      .template Arg<In<ffi::S32>>()
      .template Attr<int64_t>("horizon")
      .template Ret<ffi::Buffer<ffi::S32>>()
      .template Ret<ffi::Buffer<ffi::S32>>()
      .template Ret<ffi::Buffer<ffi::S32>>();
}

// What every question begins with, and how it is put; a binding cannot be handed from function to function.
#define QUESTION(D)                 \
  ffi::Ffi::Bind()                  \
      .template Ctx<ffi::ThreadPool>() \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::PRED>>()   \
      .template Arg<In<D>>()           \
      .template Arg<In<D>>()
#define SETTINGS                            \
  template Attr<int64_t>("begin")           \
      .template Attr<int64_t>("end")        \
      .template Attr<int64_t>("horizon")    \
      .template Attr<int64_t>("outcomes")   \
      .template Attr<double>("discount")    \
      .template Attr<bool>("on_policy")

template <ffi::DataType D>
auto bind_occupancy() {
  return QUESTION(D)
      .SETTINGS.template Attr<bool>("absorbing")
      .template Ret<ffi::Buffer<D>>()
      .template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_gradient() {
  return QUESTION(D)
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .SETTINGS.template Attr<bool>("absorbing")
      .template Attr<bool>("baseline")
      .template Ret<ffi::Buffer<D>>()
      .template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_tally() {
  return QUESTION(D)
      .template Arg<In<D>>()
      .SETTINGS.template Attr<double>("largest_squared")
      .template Ret<ffi::Buffer<D>>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(sample_float32, Sample<ffi::F32>, bind_sample<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(sample_float64, Sample<ffi::F64>, bind_sample<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(occupancy_float32, Occupancy<ffi::F32>, bind_occupancy<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(occupancy_float64, Occupancy<ffi::F64>, bind_occupancy<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(gradient_float32, Gradient<ffi::F32>, bind_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(gradient_float64, Gradient<ffi::F64>, bind_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tally_float32, Tally<ffi::F32>, bind_tally<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tally_float64, Tally<ffi::F64>, bind_tally<ffi::F64>());
