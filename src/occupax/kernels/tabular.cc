// Sampling and estimating for tabular problems with tabular policies, behind XLA's foreign function interface.
//
// A step is one number, its event (s * A + a) * 2^shift + k: action a in state s had its k-th outcome. Tables of events
// are filled up to 2^shift outcomes, because dividing by another number would take as long as drawing an action. A
// trajectory is the list of its events; nothing is kept of the time after its end. With the behaviour policy known, an importance
// weight is a product of entries of a table [S, A], and the gradient of a softmax over a table needs, of each visit,
// only what is still earned from there on: these sums c[s, a] give it for all parameters at once.
//
// Work is cut into parts of PART trajectories whose sums are added in order, so results do not depend on the number of
// threads; random numbers are counted by (trajectory, step), so trajectory i of a key is the same in any batch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "operands.h"
#include "random.h"

namespace {

constexpr int64_t PART = 128;           // trajectories in a part
constexpr int64_t WORTH_A_THREAD = 64;  // trajectories that take longer than waking a thread

// Trajectories begin to end - 1 of a run, which are in parts.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  int64_t parts() const { return (end - 1) / PART - begin / PART + 1; }
  Range part(int64_t number) const {
    const int64_t first = (begin / PART + number) * PART;
    return {std::max(begin, first), std::min(end, first + PART)};
  }
};

// The trajectories of one run: part p begins at event p * PART * horizon, and is packed from there on.
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

template <typename T>
struct Table {
  int64_t S, A, horizon, shift;
  const int32_t* successors;
  const T* outcomes;
  const T* initial;
  const T* actions;
  const bool* terminal;
};

// Draws the trajectories of a part, SLOTS of them side by side, because a step waits for the one before it. A slot that
// is free takes the next number, and each trajectory is drawn to its end, so none is preferred for being short. They
// are written as far apart as they may become long, and moved together at the end.
template <typename T>
void draw(const Table<T>& table, const uint32_t* key, int64_t first, int64_t stop, const Range& part, int32_t* events,
          int32_t* lengths, int32_t* finals) {
  uint32_t trajectory[SLOTS] = {}, turn[SLOTS] = {}, words[4][SLOTS];
  int64_t place[SLOTS], state[SLOTS];
  int32_t* step[SLOTS];
  const int64_t end = std::clamp(stop - first, part.begin, part.end);
  std::fill(lengths + end, lengths + part.end, 0);
  std::fill(finals + end, finals + part.end, -1);
  int64_t next = part.begin;
  const auto take = [&](int slot) {
    place[slot] = next;
    trajectory[slot] = static_cast<uint32_t>(first + next);
    turn[slot] = 0;
    step[slot] = events + next++ * table.horizon;
  };
  int busy = 0;
  while (busy < SLOTS && next < end) take(busy++);
  while (busy > 0) {
    philox(key, trajectory, turn, words);
    for (int slot = busy; slot-- > 0;) {
      int64_t s = state[slot];
      int32_t* to = step[slot];
      int32_t* const begin = events + place[slot] * table.horizon;
      if (turn[slot]++ == 0) s = pick(table.initial, table.S, uniform<T>(words[0][slot]));
      else
        for (int half = 0; half < 4 && to < begin + table.horizon && !table.terminal[s]; half += 2) {
          const int64_t pair = s * table.A + pick(table.actions + s * table.A, table.A, uniform<T>(words[half][slot]));
          const int64_t first_outcome = pair << table.shift;
          const T* outcomes = table.outcomes + first_outcome;
          const int64_t event = first_outcome + pick(outcomes, int64_t{1} << table.shift, uniform<T>(words[half + 1][slot]));
          *to++ = static_cast<int32_t>(event);
          s = table.successors[event];
        }
      step[slot] = to;
      state[slot] = s;
      if (to < begin + table.horizon && !table.terminal[s]) continue;
      lengths[place[slot]] = static_cast<int32_t>(to - begin);
      finals[place[slot]] = static_cast<int32_t>(s);
      if (next < end) {
        take(slot);
      } else if (slot < --busy) {
        place[slot] = place[busy], trajectory[slot] = trajectory[busy], turn[slot] = turn[busy];
        state[slot] = state[busy], step[slot] = step[busy];
      }
    }
  }
  int32_t* packed = events + part.begin * table.horizon;
  for (int64_t i = part.begin; i < end; packed += lengths[i++])
    std::memmove(packed, events + i * table.horizon, lengths[i] * sizeof(int32_t));
}

template <ffi::DataType D>
ffi::Error Sample(ffi::ThreadPool pool, In<ffi::S32> successors, In<D> thresholds, In<D> initial, In<ffi::PRED> terminal,
                  In<D> probs, In<ffi::U32> key, In<ffi::S32> numbers, int64_t horizon, int64_t shift,
                  Out<ffi::S32> events, Out<ffi::S32> lengths, Out<ffi::S32> finals) {
  using T = ffi::NativeType<D>;
  const int64_t S = terminal.dimensions().back(), A = probs.dimensions().back();
  const Range range{0, lengths->dimensions().back()};
  const auto lead = leading(lengths->dimensions(), 1);
  const auto following = in(successors, 1, lead);
  const auto outcome = in(thresholds, 1, lead);
  const auto start = in(initial, 1, lead);
  const auto ends = in(terminal, 1, lead);
  const auto policy = in(probs, 2, lead);
  const auto keys = in(key, 1, lead);
  const auto first_and_stop = in(numbers, 1, lead);
  const auto all_events = out(events, 1, lead);
  const auto all_lengths = out(lengths, 1, lead);
  const auto all_finals = out(finals, 1, lead);

  const int64_t many = (S * A) << shift;
  if (S < 1 || A < 1 || horizon < 1 || following.size != many || outcome.size != many || start.size != S ||
      ends.size != S || policy.size != S * A || all_events.size != range.size() * horizon)
    return refused("the tables of a process must have one entry for each state, action and outcome.");
  if (!within(successors, 0, S - 1)) return refused("successors must lie in 0..S-1, the numbers of the states.");

  const int64_t runs = product(lead);
  std::vector<T> action_thresholds(runs * S * A);
  for (int64_t run = 0; run < runs; ++run) accumulate(policy.at(run), S, A, &action_thresholds[run * S * A]);
  in_parallel(pool, runs * range.parts(), 1 + runs * range.size() / WORTH_A_THREAD, [&](int64_t unit) {
    const int64_t run = unit / range.parts();
    const int64_t first = first_and_stop.at(run)[0], stop = first_and_stop.at(run)[1];
    const Table<T> table{S, A, horizon, shift, following.at(run), outcome.at(run), start.at(run),
                         &action_thresholds[run * S * A], ends.at(run)};
    draw(table, keys.at(run), first, stop, range.part(unit % range.parts()), all_events.at(run),
         all_lengths.at(run), all_finals.at(run));
  });
  return ffi::Error::Success();
}

// What all estimates are made from. Weights are products of `ratios`, target over behaviour, unless `on_policy`.
template <ffi::DataType D>
struct Question {
  using T = ffi::NativeType<D>;
  Range range;
  int64_t horizon, shift;
  std::vector<int64_t> lead;
  Operand<const int32_t> events, lengths, finals;
  Operand<const bool> terminal;
  Operand<const T> ratios;
  bool on_policy;
  std::vector<double> discounts, remaining;  // gamma^t, and (gamma^t - gamma^H) / (1 - gamma)

  // Beyond it a weight carries no information, and sums must stay finite.
  static inline const double CAP = std::sqrt(static_cast<double>(std::numeric_limits<T>::max()));

  Question(const In<ffi::S32>& e, const In<ffi::S32>& l, const In<ffi::S32>& f, const In<ffi::PRED>& over, const In<D>& r,
           std::vector<int64_t> lead, Range range, int64_t horizon, int64_t shift, double discount, bool on_policy)
      : range(range),
        horizon(horizon),
        shift(shift),
        lead(lead),
        events(in(e, 1, lead)),
        lengths(in(l, 1, lead)),
        finals(in(f, 1, lead)),
        terminal(in(over, 1, lead)),
        ratios(in(r, 2, lead)),
        on_policy(on_policy) {
    double power = 1;
    for (int64_t i = 0; i <= horizon; ++i, power *= discount) discounts.push_back(power);
    for (double present : discounts) remaining.push_back((present - discounts.back()) / (1 - discount));
  }

  // Calls visit(t, event, weight) for each step of a trajectory, and returns the last weight.
  template <typename Visit>
  double weigh(const T* ratio, const int32_t* steps, int64_t length, const Visit& visit) const {
    double weight = 1, used = 1;
    for (int64_t t = 0; t < length; ++t) {
      if (!on_policy) {
        weight = std::min(weight * ratio[steps[t] >> shift], 1e300);
        used = std::min(weight, CAP);
      }
      visit(t, steps[t], used);
    }
    return used;
  }

  // Calls visit(events, their number, last state) for each trajectory of a part.
  template <typename Visit>
  void each(int64_t run, const Range& part, const Visit& visit) const {
    Taken{events.at(run), lengths.at(run), finals.at(run)}.each(part, horizon, visit);
  }

  bool ended(int64_t run, int64_t state) const { return state >= 0 && terminal.at(run)[state]; }

  // Calls add(run, part, sums) for every part, with `size` sums that begin at zero, and then write(run, sums) for
  // every run. Consecutive parts share their sums, which bounds memory, and these are added up in order.
  template <typename Add, typename Write>
  void answer(ffi::ThreadPool pool, int64_t size, const Add& add, const Write& write) const {
    const int64_t runs = product(lead), parts = range.parts();
    const int64_t each = (parts + MOST_SUMS - 1) / MOST_SUMS, slices = (parts + each - 1) / each;
    thread_local std::vector<double> sums;
    sums.assign(runs * slices * size, 0.0);
    double* const all = sums.data();
    in_parallel(pool, runs * slices, 1 + runs * range.size() / WORTH_A_THREAD, [&](int64_t unit) {
      const int64_t first = unit % slices * each;
      for (int64_t part = first; part < std::min(parts, first + each); ++part)
        add(unit / slices, range.part(part), all + unit * size);
    });
    for (int64_t run = 0; run < runs; ++run) {
      double* total = all + run * slices * size;
      for (int64_t slice = 1; slice < slices; ++slice)
        for (int64_t i = 0; i < size; ++i) total[i] += total[slice * size + i];
      write(run, total);
    }
  }
};

// The features of things, a few entries each.
template <typename T>
struct Features {
  const int32_t* index;
  const T* value;
  int64_t entries;

  double inner(int64_t i, const T* vector) const {
    double total = 0;
    for (int64_t j = i * entries; j < (i + 1) * entries; ++j) total += static_cast<double>(vector[index[j]]) * value[j];
    return total;
  }

  void add(int64_t i, double mass, double* vector) const {
    for (int64_t j = i * entries; j < (i + 1) * entries; ++j) vector[index[j]] += mass * value[j];
  }
};

constexpr const char* FEATURES = "features must be entries of the occupancy, for each event and each end.";

// Whether there are features for every event and every end, and all of them are entries of a vector of `size`.
template <ffi::DataType D>
bool features_fit(const Question<D>& question, int64_t pairs, const In<ffi::S32>& index, const In<ffi::S32>& end_index,
                  int64_t size) {
  const int64_t events = in(index, 2, question.lead).size, ends = in(end_index, 2, question.lead).size;
  return question.ratios.size == pairs && events == (pairs << question.shift) * index.dimensions().back() &&
         ends == pairs * end_index.dimensions().back() && within(index, 0, size - 1) && within(end_index, 0, size - 1);
}

// The mean occupancy of the features; `probs` is the target's, which goes on acting where it is absorbed.
template <ffi::DataType D>
ffi::Error Occupancy(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths, In<ffi::S32> finals,
                     In<ffi::PRED> terminal, In<D> ratios, In<D> probs, In<ffi::S32> index, In<D> value,
                     In<ffi::S32> end_index, In<D> end_value, int64_t begin, int64_t end, int64_t horizon,
                     int64_t shift, double discount, bool on_policy, bool absorbing, Out<D> occupancy) {
  using T = ffi::NativeType<D>;
  const Question<D> question(events, lengths, finals, terminal, ratios, leading(occupancy->dimensions(), 1),
                             {begin, end}, horizon, shift, discount, on_policy);
  const auto& lead = question.lead;
  const auto policy = in(probs, 2, lead);
  const auto indices = in(index, 2, lead), end_indices = in(end_index, 2, lead);
  const auto values = in(value, 2, lead), end_values = in(end_value, 2, lead);
  const auto results = out(occupancy, 1, lead);
  const int64_t A = probs.dimensions().back(), pairs = policy.size, S = pairs / A, many = pairs << shift;
  const int64_t entries = index.dimensions().back(), end_entries = end_index.dimensions().back();
  if (!features_fit(question, pairs, index, end_index, results.size)) return refused(FEATURES);
  question.answer(
      pool, many + S,
      [&](int64_t run, const Range& part, double* sums) {
        const T* ratio = question.ratios.at(run);
        question.each(run, part, [&](const int32_t* steps, int64_t length, int64_t last) {
          const double weight = question.weigh(ratio, steps, length, [&](int64_t t, int32_t event, double weight) {
            sums[event] += question.discounts[t] * weight;
          });
          if (absorbing && question.ended(run, last)) sums[many + last] += question.remaining[length] * weight;
        });
      },
      [&](int64_t run, const double* sums) {
        const Features<T> of_events{indices.at(run), values.at(run), entries};
        const Features<T> of_ends{end_indices.at(run), end_values.at(run), end_entries};
        std::vector<double> total(results.size, 0.0);
        for (int64_t event = 0; event < many; ++event) of_events.add(event, sums[event], total.data());
        if (absorbing)
          for (int64_t pair = 0; pair < pairs; ++pair)
            of_ends.add(pair, policy.at(run)[pair] * sums[many + pair / A], total.data());
        for (int64_t i = 0; i < results.size; ++i) results.at(run)[i] = total[i] / question.range.size();
      });
  return ffi::Error::Success();
}

// What trajectories earn for a vector of quasi-rewards: at each event, and after the end where a state is absorbing.
template <ffi::DataType D>
struct Earned {
  using T = ffi::NativeType<D>;
  const Question<D>& question;
  const bool absorbing;
  const int64_t pairs, S, many;  // of state-action pairs, states and events
  std::vector<double> payoffs, end_payoffs, end_means;

  Earned(const Question<D>& question, const In<D>& probs, const In<ffi::S32>& index, const In<D>& value,
         const In<ffi::S32>& end_index, const In<D>& end_value, const In<D>& vector, bool absorbing)
      : question(question),
        absorbing(absorbing),
        pairs(in(probs, 2, question.lead).size),
        S(pairs / probs.dimensions().back()),
        many(pairs << question.shift) {
    const auto& lead = question.lead;
    const auto policy = in(probs, 2, lead);
    const auto indices = in(index, 2, lead), end_indices = in(end_index, 2, lead);
    const auto values = in(value, 2, lead), end_values = in(end_value, 2, lead);
    const auto vectors = in(vector, 1, lead);
    const int64_t A = probs.dimensions().back(), runs = product(lead);
    const int64_t entries = index.dimensions().back(), end_entries = end_index.dimensions().back();
    payoffs.resize(runs * many);
    end_payoffs.resize(runs * pairs);
    end_means.assign(runs * S, 0.0);
    for (int64_t run = 0; run < runs; ++run) {
      const Features<T> of_events{indices.at(run), values.at(run), entries};
      const Features<T> of_ends{end_indices.at(run), end_values.at(run), end_entries};
      for (int64_t event = 0; event < many; ++event) payoffs[run * many + event] = of_events.inner(event, vectors.at(run));
      if (absorbing)
        for (int64_t pair = 0; pair < pairs; ++pair) {
          end_payoffs[run * pairs + pair] = of_ends.inner(pair, vectors.at(run));
          end_means[run * S + pair / A] += policy.at(run)[pair] * end_payoffs[run * pairs + pair];
        }
    }
  }

  // Calls visit(t, event, what is earned from t on, weight at t) for all steps of a part, each trajectory backwards, and
  // absorb(last state, mass left after the end) where one is absorbed.
  template <typename Visit, typename Absorb>
  void backwards(int64_t run, const Range& part, const Visit& visit, const Absorb& absorb) const {
    const T* ratio = question.ratios.at(run);
    const double* pays = payoffs.data() + run * many;
    thread_local std::vector<double> earned, used;
    earned.resize(question.horizon);
    used.resize(question.horizon);
    question.each(run, part, [&](const int32_t* steps, int64_t length, int64_t last) {
      const double weight = question.weigh(ratio, steps, length, [&](int64_t t, int32_t event, double weight) {
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

  // Calls write(run, sums) with the sums over trajectories of what is earned from each step on, then how many take it.
  template <typename Write>
  void sums(ffi::ThreadPool pool, const Write& write) const {
    const int64_t horizon = question.horizon;
    question.answer(
        pool, 2 * horizon,
        [&](int64_t run, const Range& part, double* sums) {
          backwards(
              run, part, [&](int64_t t, int32_t, double to_go, double) { sums[t] += to_go, ++sums[horizon + t]; },
              [](int64_t, double) {});
        },
        write);
  }
};

// What the mean baseline of a batch is made of: see Earned::sums. Those of its parts add up.
template <ffi::DataType D>
ffi::Error Earnings(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths, In<ffi::S32> finals,
                    In<ffi::PRED> terminal, In<D> ratios, In<D> probs, In<ffi::S32> index, In<D> value,
                    In<ffi::S32> end_index, In<D> end_value, In<D> vector, int64_t begin, int64_t end, int64_t horizon,
                    int64_t shift, double discount, bool on_policy, bool absorbing, Out<D> earnings) {
  const Question<D> question(events, lengths, finals, terminal, ratios, leading(earnings->dimensions(), 2),
                             {begin, end}, horizon, shift, discount, on_policy);
  const auto results = out(earnings, 2, question.lead);
  if (!features_fit(question, in(probs, 2, question.lead).size, index, end_index, in(vector, 1, question.lead).size))
    return refused(FEATURES);
  const Earned<D> earned(question, probs, index, value, end_index, end_value, vector, absorbing);
  earned.sums(pool, [&](int64_t run, const double* sums) { std::copy(sums, sums + 2 * horizon, results.at(run)); });
  return ffi::Error::Success();
}

enum Baseline : int64_t { NONE, OF_THESE, OF_ALL };

// The mean gradient of <occupancy, vector> with respect to the table of logits. With c[s, a] the mean over trajectories
// of what is earned from the visits of (s, a) on, it is c[s, a] - pi(a|s) sum_b c[s, b]; a baseline takes from each visit
// its weight times what the other trajectories that are still live earn from that step on, on average: the others of
// these trajectories, or of all of a batch that these are a part of and whose `earnings` are given.
template <ffi::DataType D>
ffi::Error Gradient(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths, In<ffi::S32> finals,
                    In<ffi::PRED> terminal, In<D> ratios, In<D> probs, In<ffi::S32> index, In<D> value,
                    In<ffi::S32> end_index, In<D> end_value, In<D> vector, In<D> earnings, int64_t begin, int64_t end,
                    int64_t horizon, int64_t shift, double discount, bool on_policy, bool absorbing, int64_t baseline,
                    Out<D> gradient) {
  const Question<D> question(events, lengths, finals, terminal, ratios, leading(gradient->dimensions(), 2),
                             {begin, end}, horizon, shift, discount, on_policy);
  const auto policy = in(probs, 2, question.lead);
  const auto given = in(earnings, 2, question.lead);
  const auto results = out(gradient, 2, question.lead);
  if (!features_fit(question, policy.size, index, end_index, in(vector, 1, question.lead).size))
    return refused(FEATURES);
  const Earned<D> earned(question, probs, index, value, end_index, end_value, vector, absorbing);
  const int64_t A = probs.dimensions().back(), pairs = earned.pairs, S = earned.S;

  const double rounding = 100.0 * std::numeric_limits<ffi::NativeType<D>>::epsilon();  // as in estimators.py
  std::vector<double> expected(baseline == NONE ? 0 : product(question.lead) * 2 * horizon);
  if (baseline == OF_THESE)
    earned.sums(pool, [&](int64_t run, const double* sums) {
      std::copy(sums, sums + 2 * horizon, expected.begin() + run * 2 * horizon);
    });
  else if (baseline == OF_ALL)
    for (int64_t run = 0; run < product(question.lead); ++run)
      std::copy(given.at(run), given.at(run) + 2 * horizon, expected.begin() + run * 2 * horizon);
  question.answer(
      pool, pairs + S,
      [&](int64_t run, const Range& part, double* sums) {
        const double* all = expected.data() + run * 2 * horizon;
        const auto absorb = [&](int64_t state, double mass) { sums[pairs + state] += mass; };
        if (baseline == NONE)
          earned.backwards(
              run, part, [&](int64_t, int32_t event, double to_go, double) { sums[event >> shift] += to_go; }, absorb);
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
            const double better = earned.end_payoffs[run * pairs + pair] - earned.end_means[run * S + s];
            results.at(run)[pair] = (sums[pair] - prob * row + sums[pairs + s] * prob * better) / n;
          }
        }
      });
  return ffi::Error::Success();
}

// The derivatives of the mean occupancy and of the mean gradient of <occupancy, vector> at the policy that acted, along a
// table of logits of which `along` has the slopes of the log-probabilities: v[s, a] - sum_b pi(b|s) v[s, b]. The weight of
// step t has the slope D_t, the sum of those up to t. Of each visit are summed up what is earned from there on (G), and
// the same with each payment times D (F); that of log pi(a|s) has the derivative -pi(c|s) along[s, c]. A baseline is taken
// from G, and D times as much from F.
template <ffi::DataType D>
ffi::Error Product(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths, In<ffi::S32> finals,
                   In<ffi::PRED> terminal, In<D> ratios, In<D> probs, In<ffi::S32> index, In<D> value,
                   In<ffi::S32> end_index, In<D> end_value, In<D> vector, In<D> earnings, In<D> along, int64_t begin,
                   int64_t end, int64_t horizon, int64_t shift, double discount, bool on_policy, bool absorbing,
                   int64_t baseline, Out<D> occupancy, Out<D> product_) {
  using T = ffi::NativeType<D>;
  const Question<D> question(events, lengths, finals, terminal, ratios, leading(product_->dimensions(), 2),
                             {begin, end}, horizon, shift, discount, on_policy);
  const auto& lead = question.lead;
  const auto policy = in(probs, 2, lead), slopes = in(along, 2, lead), given = in(earnings, 2, lead);
  const auto indices = in(index, 2, lead), end_indices = in(end_index, 2, lead);
  const auto values = in(value, 2, lead), end_values = in(end_value, 2, lead);
  const auto occupancies = out(occupancy, 1, lead);
  const auto products = out(product_, 2, lead);
  const Earned<D> earned(question, probs, index, value, end_index, end_value, vector, absorbing);
  const int64_t A = probs.dimensions().back(), pairs = earned.pairs, S = earned.S;
  const int64_t d = occupancy->dimensions().back(), entries = index.dimensions().back();
  const int64_t end_entries = end_index.dimensions().back();

  std::vector<double> expected(baseline == NONE ? 0 : product(lead) * 2 * horizon);
  if (baseline == OF_THESE)
    earned.sums(pool, [&](int64_t run, const double* sums) {
      std::copy(sums, sums + 2 * horizon, expected.begin() + run * 2 * horizon);
    });
  else if (baseline == OF_ALL)
    for (int64_t run = 0; run < product(lead); ++run)
      std::copy(given.at(run), given.at(run) + 2 * horizon, expected.begin() + run * 2 * horizon);
  // sums: the occupancy, F of each pair, G of each state, mass that is absorbed there, once times D
  question.answer(
      pool, d + pairs + 3 * S,
      [&](int64_t run, const Range& part, double* sums) {
        double *first = sums + d, *second = first + pairs, *drifted = second + S, *absorbed = drifted + S;
        const Features<T> of_events{indices.at(run), values.at(run), entries};
        const double* pays = earned.payoffs.data() + run * earned.many;
        const double* all = expected.data() + run * 2 * horizon;
        thread_local std::vector<double> drift;
        drift.resize(horizon);
        question.each(run, part, [&](const int32_t* steps, int64_t length, int64_t last) {
          double sum = 0, to_go = 0, moved = 0;
          for (int64_t t = 0; t < length; ++t) {
            drift[t] = sum += slopes.at(run)[steps[t] >> shift];
            of_events.add(steps[t], question.discounts[t] * sum, sums);
          }
          if (absorbing && question.ended(run, last)) {
            const double mass = question.remaining[length];
            double slope = 0;
            for (int64_t pair = last * A; pair < (last + 1) * A; ++pair)
              slope += policy.at(run)[pair] * slopes.at(run)[pair] * earned.end_payoffs[run * pairs + pair];
            to_go = mass * earned.end_means[run * S + last];
            moved = to_go * sum + mass * slope;
            drifted[last] += mass * sum;
            absorbed[last] += mass;
          }
          for (int64_t t = length; t-- > 0;) {
            const double earns = question.discounts[t] * pays[steps[t]];
            to_go += earns;
            moved += earns * drift[t];
            const double others =
                baseline == NONE ? 0.0 : (all[t] - to_go) / std::max(all[horizon + t] - 1, 1.0);
            const int64_t pair = steps[t] >> shift;
            first[pair] += moved - others * drift[t];
            second[pair / A] += to_go - others;
          }
        });
      },
      [&](int64_t run, double* sums) {
        const double n = question.range.size();
        const double *first = sums + d, *second = first + pairs, *drifted = second + S, *absorbed = drifted + S;
        const Features<T> of_ends{end_indices.at(run), end_values.at(run), end_entries};
        for (int64_t s = 0; s < S; ++s) {
          const double row = std::accumulate(first + s * A, first + (s + 1) * A, 0.0);
          const double mean = earned.end_means[run * S + s];
          double slope = 0;
          for (int64_t pair = s * A; pair < (s + 1) * A; ++pair)
            slope += policy.at(run)[pair] * slopes.at(run)[pair] * earned.end_payoffs[run * pairs + pair];
          for (int64_t pair = s * A; pair < (s + 1) * A; ++pair) {
            const double prob = policy.at(run)[pair], by = slopes.at(run)[pair];
            const double pay = earned.end_payoffs[run * pairs + pair];
            const double after = drifted[s] * (pay - mean) + absorbed[s] * (by * (pay - mean) - slope);
            products.at(run)[pair] = (first[pair] - prob * row - prob * by * second[s] + prob * after) / n;
            if (absorbing) of_ends.add(pair, prob * (drifted[s] + absorbed[s] * by), sums);
          }
        }
        for (int64_t i = 0; i < d; ++i) occupancies.at(run)[i] = sums[i] / n;
      });
  return ffi::Error::Success();
}

// Sums over the trajectories that took a step: return, discounted return, weight, squared weight; and the largest weight
// of any step.
template <ffi::DataType D>
ffi::Error Tally(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths, In<ffi::S32> finals,
                 In<ffi::PRED> terminal, In<D> ratios, In<D> rewards, int64_t begin, int64_t end, int64_t horizon,
                 int64_t shift, double discount, bool on_policy, double largest_squared, Out<D> totals) {
  using T = ffi::NativeType<D>;
  const Question<D> question(events, lengths, finals, terminal, ratios, leading(totals->dimensions(), 1), {begin, end},
                             horizon, shift, discount, on_policy);
  const auto pays = in(rewards, 1, question.lead);
  const auto results = out(totals, 1, question.lead);
  const int64_t parts = question.range.parts(), runs = product(question.lead);
  std::vector<double> largest(runs * parts, 0.0);
  question.answer(
      pool, 4,
      [&](int64_t run, const Range& part, double* sums) {
        const T* ratio = question.ratios.at(run);
        const T* pay = pays.at(run);
        double& most = largest[run * parts + part.begin / PART - begin / PART];
        question.each(run, part, [&](const int32_t* steps, int64_t length, int64_t) {
          if (length == 0) return;
          double largest_weight = 0, earned = 0, discounted = 0;
          const double last = question.weigh(ratio, steps, length, [&](int64_t t, int32_t event, double weight) {
            largest_weight = std::max(largest_weight, weight);
            earned += pay[event];
            discounted += question.discounts[t] * pay[event];
          });
          const double bounded = std::min(last, largest_squared);
          most = std::max(most, largest_weight);
          sums[0] += earned;
          sums[1] += discounted;
          sums[2] += bounded;
          sums[3] += bounded * bounded;
        });
      },
      [&](int64_t run, const double* sums) {
        std::copy(sums, sums + 4, results.at(run));
        const double* most = largest.data() + run * parts;
        results.at(run)[4] = *std::max_element(most, most + parts);
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
      .template Attr<int64_t>("shift")
      .template Ret<ffi::Buffer<ffi::S32>>()
      .template Ret<ffi::Buffer<ffi::S32>>()
      .template Ret<ffi::Buffer<ffi::S32>>();
}

// What every question begins with, and how it is put; a binding cannot be handed from function to function.
#define QUESTION(D)                    \
  ffi::Ffi::Bind()                     \
      .template Ctx<ffi::ThreadPool>() \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::PRED>>()   \
      .template Arg<In<D>>()           \
      .template Arg<In<D>>()
#define FEATURES(D)                    \
  template Arg<In<ffi::S32>>()         \
      .template Arg<In<D>>()           \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<D>>()
#define SETTINGS                       \
  template Attr<int64_t>("begin")      \
      .template Attr<int64_t>("end")   \
      .template Attr<int64_t>("horizon") \
      .template Attr<int64_t>("shift") \
      .template Attr<double>("discount") \
      .template Attr<bool>("on_policy")

template <ffi::DataType D>
auto bind_occupancy() {
  return QUESTION(D).FEATURES(D).SETTINGS.template Attr<bool>("absorbing").template Ret<ffi::Buffer<D>>();
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
auto bind_earnings() {
  return QUESTION(D)
      .FEATURES(D)
      .template Arg<In<D>>()
      .SETTINGS.template Attr<bool>("absorbing")
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

template <ffi::DataType D>
auto bind_tally() {
  return QUESTION(D).SETTINGS.template Attr<double>("largest_squared").template Ret<ffi::Buffer<D>>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_sample_float32, Sample<ffi::F32>, bind_sample<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_sample_float64, Sample<ffi::F64>, bind_sample<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_occupancy_float32, Occupancy<ffi::F32>, bind_occupancy<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_occupancy_float64, Occupancy<ffi::F64>, bind_occupancy<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_gradient_float32, Gradient<ffi::F32>, bind_gradient<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_gradient_float64, Gradient<ffi::F64>, bind_gradient<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_earnings_float32, Earnings<ffi::F32>, bind_earnings<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_earnings_float64, Earnings<ffi::F64>, bind_earnings<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_product_float32, Product<ffi::F32>, bind_product<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_product_float64, Product<ffi::F64>, bind_product<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_tally_float32, Tally<ffi::F32>, bind_tally<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_tally_float64, Tally<ffi::F64>, bind_tally<ffi::F64>());
