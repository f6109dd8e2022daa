// Gradients of what trajectories of tabular problems earn, and their derivatives, behind XLA's
// foreign function interface.

#include <numeric>

#include "tabular.h"

namespace {

// What trajectories earn for a vector of quasi-rewards: at each event, and after the end where a
// state is absorbing.
template <ffi::DataType D>
struct Earned {
  using T = ffi::NativeType<D>;
  const Question<D>& question;
  const bool absorbing;
  const int64_t pairs, S, many;  // of state-action pairs, states and events
  std::vector<double> payoffs, end_payoffs, end_means;

  Earned(const Question<D>& question, const In<D>& probs, const In<ffi::S32>& index,
         const In<D>& value, const In<ffi::S32>& end_index, const In<D>& end_value,
         const In<D>& vector, bool absorbing)
      : question(question),
        absorbing(absorbing),
        pairs(in(probs, 2, question.lead).size),
        S(pairs / probs.dimensions().back()),
        many(pairs << question.shift) {
    const auto& lead = question.lead;
    const auto policy = in(probs, 2, lead);
    const auto indices = in(index, 2, lead);
    const auto end_indices = in(end_index, 2, lead);
    const auto values = in(value, 2, lead);
    const auto end_values = in(end_value, 2, lead);
    const auto vectors = in(vector, 1, lead);
    const int64_t A = probs.dimensions().back();
    const int64_t runs = product(lead);
    const int64_t entries = index.dimensions().back();
    const int64_t end_entries = end_index.dimensions().back();
    payoffs.resize(runs * many);
    end_payoffs.resize(runs * pairs);
    end_means.assign(runs * S, 0.0);
    for (int64_t run = 0; run < runs; ++run) {
      const Features<T> of_events{indices.at(run), values.at(run), entries};
      const Features<T> of_ends{end_indices.at(run), end_values.at(run), end_entries};
      for (int64_t event = 0; event < many; ++event)
        payoffs[run * many + event] = of_events.inner(event, vectors.at(run));
      if (absorbing)
        for (int64_t pair = 0; pair < pairs; ++pair) {
          end_payoffs[run * pairs + pair] = of_ends.inner(pair, vectors.at(run));
          end_means[run * S + pair / A] += policy.at(run)[pair] * end_payoffs[run * pairs + pair];
        }
    }
  }

  // Calls visit(t, event, what is earned from t on, weight at t) for all steps of a part, each
  // trajectory backwards, and absorb(last state, mass left after the end) where one is absorbed.
  template <typename Visit, typename Absorb>
  void backwards(int64_t run, const Range& part, const Visit& visit, const Absorb& absorb) const {
    const T* ratio = question.ratios.at(run);
    const double* pays = payoffs.data() + run * many;
    thread_local std::vector<double> earned;
    thread_local std::vector<double> used;
    earned.resize(question.horizon);
    used.resize(question.horizon);
    question.each(run, part, [&](const int32_t* steps, int64_t length, int64_t last) {
      const double weight =
          question.weigh(ratio, steps, length, [&](int64_t t, int32_t event, double weight) {
            used[t] = weight;
            earned[t] = question.discounts[t] * weight * pays[event];
          });
      double to_go = 0;
      if (absorbing && question.ended(run, last)) {
        const double mass = question.remaining[length] * weight;
        to_go = mass * end_means[run * S + last];
        absorb(last, mass);
      }
      for (int64_t t = length; t-- > 0;) visit(t, steps[t], to_go += earned[t], used[t]);
    });
  }

  // Calls write(run, sums) with the sums over trajectories of what is earned from each step on,
  // then how many take it.
  template <typename Write>
  void sums(ffi::ThreadPool pool, const Write& write) const {
    const int64_t horizon = question.horizon;
    question.answer(
        pool, 2 * horizon,
        [&](int64_t run, const Range& part, double* sums) {
          backwards(
              run, part,
              [&](int64_t t, int32_t, double to_go, double) {
                sums[t] += to_go, ++sums[horizon + t];
              },
              [](int64_t, double) {});
        },
        write);
  }
};

// What the mean baseline of a batch is made of: see Earned::sums. Those of its parts add up.
template <ffi::DataType D>
ffi::Error Earnings(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths,
                    In<ffi::S32> finals, In<ffi::PRED> terminal, In<D> ratios, In<D> probs,
                    In<ffi::S32> index, In<D> value, In<ffi::S32> end_index, In<D> end_value,
                    In<D> vector, int64_t begin, int64_t end, int64_t horizon, int64_t shift,
                    double discount, bool on_policy, bool absorbing, Out<D> earnings) {
  const Question<D> question(events, lengths, finals, terminal, ratios,
                             leading(earnings->dimensions(), 2), {begin, end}, horizon, shift,
                             discount, on_policy);
  const auto results = out(earnings, 2, question.lead);
  if (!features_fit(question, in(probs, 2, question.lead).size, index, end_index,
                    in(vector, 1, question.lead).size))
    return refused(FEATURES);
  const Earned<D> earned(question, probs, index, value, end_index, end_value, vector, absorbing);
  earned.sums(pool, [&](int64_t run, const double* sums) {
    std::copy(sums, sums + 2 * horizon, results.at(run));
  });
  return ffi::Error::Success();
}

enum Baseline : int64_t { NONE, OF_THESE, OF_ALL };

// The sums of the mean baseline of each run: of these trajectories (see Earned::sums), or given by
// the caller for a batch that these trajectories are a part of. Empty without a baseline.
template <ffi::DataType D>
std::vector<double> baseline_sums(ffi::ThreadPool pool, int64_t baseline, const Earned<D>& earned,
                                  const Operand<const ffi::NativeType<D>>& given) {
  if (baseline == NONE) return {};
  const int64_t size = 2 * earned.question.horizon;
  const int64_t runs = product(earned.question.lead);
  std::vector<double> expected(runs * size);
  if (baseline == OF_ALL) {
    for (int64_t run = 0; run < runs; ++run)
      std::copy(given.at(run), given.at(run) + size, expected.begin() + run * size);
    return expected;
  }
  earned.sums(pool, [&](int64_t run, const double* sums) {
    std::copy(sums, sums + size, expected.begin() + run * size);
  });
  return expected;
}

// The mean gradient of <occupancy, vector> with respect to the table of logits. With c[s, a] the
// mean over trajectories of what is earned from the visits of (s, a) on, it is c[s, a] - pi(a|s)
// sum_b c[s, b]; a baseline takes from each visit its weight times what the other trajectories that
// are still live earn from that step on, on average: the others of these trajectories, or of all of
// a batch that these are a part of and whose `earnings` are given.
template <ffi::DataType D>
ffi::Error Gradient(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths,
                    In<ffi::S32> finals, In<ffi::PRED> terminal, In<D> ratios, In<D> probs,
                    In<ffi::S32> index, In<D> value, In<ffi::S32> end_index, In<D> end_value,
                    In<D> vector, In<D> earnings, int64_t begin, int64_t end, int64_t horizon,
                    int64_t shift, double discount, bool on_policy, bool absorbing,
                    int64_t baseline, Out<D> gradient) {
  const Question<D> question(events, lengths, finals, terminal, ratios,
                             leading(gradient->dimensions(), 2), {begin, end}, horizon, shift,
                             discount, on_policy);
  const auto policy = in(probs, 2, question.lead);
  const auto given = in(earnings, 2, question.lead);
  const auto results = out(gradient, 2, question.lead);
  if (!features_fit(question, policy.size, index, end_index, in(vector, 1, question.lead).size))
    return refused(FEATURES);
  const Earned<D> earned(question, probs, index, value, end_index, end_value, vector, absorbing);
  const int64_t A = probs.dimensions().back();
  const int64_t pairs = earned.pairs;
  const int64_t S = earned.S;

  const double rounding =
      100.0 * std::numeric_limits<ffi::NativeType<D>>::epsilon();  // as in estimators.py
  const std::vector<double> expected = baseline_sums(pool, baseline, earned, given);
  question.answer(
      pool, pairs + S,
      [&](int64_t run, const Range& part, double* sums) {
        const double* all = expected.data() + run * 2 * horizon;
        const auto absorb = [&](int64_t state, double mass) { sums[pairs + state] += mass; };
        if (baseline == NONE)
          earned.backwards(
              run, part,
              [&](int64_t, int32_t event, double to_go, double) { sums[event >> shift] += to_go; },
              absorb);
        else
          earned.backwards(
              run, part,
              [&](int64_t t, int32_t event, double to_go, double weight) {
                const double others = (all[t] - to_go) / std::max(all[horizon + t] - 1, 1.0);
                const double gain = to_go - weight * others;
                if (std::abs(gain) > rounding * std::abs(to_go)) sums[event >> shift] += gain;
              },
              absorb);
      },
      [&](int64_t run, const double* sums) {
        const double n = question.range.size();
        for (int64_t s = 0; s < S; ++s) {
          const double row = std::accumulate(sums + s * A, sums + (s + 1) * A, 0.0);
          for (int64_t pair = s * A; pair < (s + 1) * A; ++pair) {
            const double prob = policy.at(run)[pair];
            const double better =
                earned.end_payoffs[run * pairs + pair] - earned.end_means[run * S + s];
            results.at(run)[pair] = (sums[pair] - prob * row + sums[pairs + s] * prob * better) / n;
          }
        }
      });
  return ffi::Error::Success();
}

// The derivatives of the mean occupancy and of the mean gradient of <occupancy, vector> at the
// policy that acted, along a table of logits of which `slopes` has the slopes of the
// log-probabilities: v[s, a] - sum_b pi(b|s) v[s, b]. The weight of step t has the slope D_t, the
// sum of those up to t. Of each visit are summed up what is earned from there on (G), and the same
// with each payment times D (F); that of log pi(a|s) has the derivative -pi(c|s) slopes[s, c]. A
// baseline is taken from G, and D times as much from F.
//
// The sums are the occupancy, F of each pair, G of each state, and for each state the mass that is
// absorbed there times D, and the mass itself.
template <ffi::DataType D>
struct Derivatives {
  using T = ffi::NativeType<D>;
  const Question<D>& question;
  const Earned<D>& earned;
  const Operand<const T> policy;
  const Operand<const T> slopes;
  const std::vector<double>& expected;
  const int64_t A;
  const int64_t d;
  const bool absorbing;

  int64_t size() const { return d + earned.pairs + 3 * earned.S; }

  // The mean over the actions in a state of slope times end payoff.
  double end_slope(int64_t run, int64_t state) const {
    double slope = 0;
    for (int64_t pair = state * A; pair < (state + 1) * A; ++pair)
      slope += policy.at(run)[pair] * slopes.at(run)[pair] *
               earned.end_payoffs[run * earned.pairs + pair];
    return slope;
  }

  // Adds the trajectories of a part to the sums.
  void gather(int64_t run, const Range& part, const Features<T>& of_events, double* sums) const {
    const int64_t shift = question.shift;
    double* first = sums + d;
    double* second = first + earned.pairs;
    double* drifted = second + earned.S;
    double* absorbed = drifted + earned.S;
    const double* pays = earned.payoffs.data() + run * earned.many;
    const double* all = expected.data() + run * 2 * question.horizon;
    thread_local std::vector<double> drift;
    drift.resize(question.horizon);
    question.each(run, part, [&](const int32_t* steps, int64_t length, int64_t last) {
      double sum = 0;
      double to_go = 0;
      double moved = 0;
      for (int64_t t = 0; t < length; ++t) {
        sum += slopes.at(run)[steps[t] >> shift];
        drift[t] = sum;
        of_events.add(steps[t], question.discounts[t] * sum, sums);
      }
      if (absorbing && question.ended(run, last)) {
        const double mass = question.remaining[length];
        to_go = mass * earned.end_means[run * earned.S + last];
        moved = to_go * sum + mass * end_slope(run, last);
        drifted[last] += mass * sum;
        absorbed[last] += mass;
      }
      for (int64_t t = length; t-- > 0;) {
        const double earns = question.discounts[t] * pays[steps[t]];
        to_go += earns;
        moved += earns * drift[t];
        double others = 0.0;
        if (!expected.empty())
          others = (all[t] - to_go) / std::max(all[question.horizon + t] - 1, 1.0);
        const int64_t pair = steps[t] >> shift;
        first[pair] += moved - others * drift[t];
        second[pair / A] += to_go - others;
      }
    });
  }

  // Writes the means of a run; the features after the end are added to the sums first.
  void write(int64_t run, const Features<T>& of_ends, double* sums, T* occupancy,
             T* product) const {
    const double n = question.range.size();
    const double* first = sums + d;
    const double* second = first + earned.pairs;
    const double* drifted = second + earned.S;
    const double* absorbed = drifted + earned.S;
    for (int64_t s = 0; s < earned.S; ++s) {
      const double row = std::accumulate(first + s * A, first + (s + 1) * A, 0.0);
      const double mean = earned.end_means[run * earned.S + s];
      const double slope = end_slope(run, s);
      for (int64_t pair = s * A; pair < (s + 1) * A; ++pair) {
        const double prob = policy.at(run)[pair];
        const double by = slopes.at(run)[pair];
        const double pay = earned.end_payoffs[run * earned.pairs + pair];
        const double after = drifted[s] * (pay - mean) + absorbed[s] * (by * (pay - mean) - slope);
        product[pair] = (first[pair] - prob * row - prob * by * second[s] + prob * after) / n;
        if (absorbing) of_ends.add(pair, prob * (drifted[s] + absorbed[s] * by), sums);
      }
    }
    for (int64_t i = 0; i < d; ++i) occupancy[i] = sums[i] / n;
  }
};

// See Derivatives.
template <ffi::DataType D>
ffi::Error Product(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths,
                   In<ffi::S32> finals, In<ffi::PRED> terminal, In<D> ratios, In<D> probs,
                   In<ffi::S32> index, In<D> value, In<ffi::S32> end_index, In<D> end_value,
                   In<D> vector, In<D> earnings, In<D> along, int64_t begin, int64_t end,
                   int64_t horizon, int64_t shift, double discount, bool on_policy, bool absorbing,
                   int64_t baseline, Out<D> occupancy, Out<D> product_) {
  using T = ffi::NativeType<D>;
  const Question<D> question(events, lengths, finals, terminal, ratios,
                             leading(product_->dimensions(), 2), {begin, end}, horizon, shift,
                             discount, on_policy);
  const auto& lead = question.lead;
  const auto indices = in(index, 2, lead);
  const auto end_indices = in(end_index, 2, lead);
  const auto values = in(value, 2, lead);
  const auto end_values = in(end_value, 2, lead);
  const auto occupancies = out(occupancy, 1, lead);
  const auto products = out(product_, 2, lead);
  const int64_t entries = index.dimensions().back();
  const int64_t end_entries = end_index.dimensions().back();
  const Earned<D> earned(question, probs, index, value, end_index, end_value, vector, absorbing);
  const std::vector<double> expected = baseline_sums(pool, baseline, earned, in(earnings, 2, lead));
  const Derivatives<D> derivatives{question,
                                   earned,
                                   in(probs, 2, lead),
                                   in(along, 2, lead),
                                   expected,
                                   probs.dimensions().back(),
                                   occupancy->dimensions().back(),
                                   absorbing};
  question.answer(
      pool, derivatives.size(),
      [&](int64_t run, const Range& part, double* sums) {
        const Features<T> of_events{indices.at(run), values.at(run), entries};
        derivatives.gather(run, part, of_events, sums);
      },
      [&](int64_t run, double* sums) {
        const Features<T> of_ends{end_indices.at(run), end_values.at(run), end_entries};
        derivatives.write(run, of_ends, sums, occupancies.at(run), products.at(run));
      });
  return ffi::Error::Success();
}

template <ffi::DataType D>
auto bind_earnings() {
  return QUESTION(D)
      .FEATURES(D)
      .template Arg<In<D>>()
      .SETTINGS.template Attr<bool>("absorbing")
      .template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_gradient() {
  return QUESTION(D)
      .FEATURES(D)
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .SETTINGS.template Attr<bool>("absorbing")
      .template Attr<int64_t>("baseline")
      .template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_product() {
  return QUESTION(D)
      .FEATURES(D)
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .template Arg<In<D>>()
      .SETTINGS.template Attr<bool>("absorbing")
      .template Attr<int64_t>("baseline")
      .template Ret<ffi::Buffer<D>>()
      .template Ret<ffi::Buffer<D>>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_gradient_float32, Gradient<ffi::F32>,
                              bind_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_gradient_float64, Gradient<ffi::F64>,
                              bind_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_earnings_float32, Earnings<ffi::F32>,
                              bind_earnings<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_earnings_float64, Earnings<ffi::F64>,
                              bind_earnings<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_product_float32, Product<ffi::F32>, bind_product<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_product_float64, Product<ffi::F64>, bind_product<ffi::F64>());
