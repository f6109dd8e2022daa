// Tabular problems with tabular policies: their trajectories, and what all questions about these
// share.
//
// A step is one number, its event (s * A + a) * 2^shift + k: action a in state s had its k-th
// outcome. Tables of events are filled up to 2^shift outcomes, because dividing by another number
// would take as long as drawing an action. A trajectory is the list of its events; nothing is kept
// of the time after its end. With the behaviour policy known, an importance weight is a product of
// entries of a table [S, A], and the gradient of a softmax over a table needs, of each visit, only
// what is still earned from there on: these sums c[s, a] give it for all parameters at once.
//
// Work is cut into parts of PART trajectories whose sums are added in order, so results do not
// depend on the number of threads; random numbers are counted by (trajectory, step), so trajectory
// i of a key is the same in any batch.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "operands.h"

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

// The trajectories of one run: part p begins at event p * PART * horizon, and is packed from there
// on.
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
      if (i >= part.begin)
        visit(steps, static_cast<int64_t>(lengths[i]), static_cast<int64_t>(finals[i]));
  }
};

// What all estimates are made from. Weights are products of `ratios`, target over behaviour, unless
// `on_policy`.
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
  std::vector<double> discounts, remaining;  // gamma^t, and gamma^t + ... + gamma^(H-1)

  // Beyond it a weight carries no information, and sums must stay finite.
  static inline const double CAP = std::sqrt(static_cast<double>(std::numeric_limits<T>::max()));

  Question(const In<ffi::S32>& e, const In<ffi::S32>& l, const In<ffi::S32>& f,
           const In<ffi::PRED>& over, const In<D>& r, const std::vector<int64_t>& lead, Range range,
           int64_t horizon, int64_t shift, double discount, bool on_policy)
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
    for (int64_t i = 0; i <= horizon; ++i) {
      const double mass = discounts[i] - discounts[horizon];
      remaining.push_back(discount == 1 ? static_cast<double>(horizon - i) : mass / (1 - discount));
    }
  }

  // Calls visit(t, event, weight) for each step of a trajectory, and returns the last weight.
  template <typename Visit>
  double weigh(const T* ratio, const int32_t* steps, int64_t length, const Visit& visit) const {
    double weight = 1;
    double used = 1;
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

  // Calls add(run, part, sums) for every part, with `size` sums that begin at zero, and then
  // write(run, sums) for every run. Consecutive parts share their sums, which bounds memory, and
  // these are added up in order.
  template <typename Add, typename Write>
  void answer(ffi::ThreadPool pool, int64_t size, const Add& add, const Write& write) const {
    const int64_t runs = product(lead);
    const int64_t parts = range.parts();
    const int64_t each = (parts + MOST_SUMS - 1) / MOST_SUMS;
    const int64_t slices = (parts + each - 1) / each;
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
    for (int64_t j = i * entries; j < (i + 1) * entries; ++j)
      total += static_cast<double>(vector[index[j]]) * value[j];
    return total;
  }

  void add(int64_t i, double mass, double* vector) const {
    for (int64_t j = i * entries; j < (i + 1) * entries; ++j) vector[index[j]] += mass * value[j];
  }
};

constexpr const char* FEATURES =
    "features must be entries of the occupancy, for each event and each end.";

// Whether there are features for every event and every end, and all of them are entries of a vector
// of `size`.
template <ffi::DataType D>
bool features_fit(const Question<D>& question, int64_t pairs, const In<ffi::S32>& index,
                  const In<ffi::S32>& end_index, int64_t size) {
  const int64_t events = in(index, 2, question.lead).size;
  const int64_t ends = in(end_index, 2, question.lead).size;
  return question.ratios.size == pairs &&
         events == (pairs << question.shift) * index.dimensions().back() &&
         ends == pairs * end_index.dimensions().back() && within(index, 0, size - 1) &&
         within(end_index, 0, size - 1);
}

// What every question begins with, and how it is put; a binding cannot be handed from function to
// function.
#define QUESTION(D)                    \
  ffi::Ffi::Bind()                     \
      .template Ctx<ffi::ThreadPool>() \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::S32>>()    \
      .template Arg<In<ffi::PRED>>()   \
      .template Arg<In<D>>()           \
      .template Arg<In<D>>()
#define FEATURES(D)                 \
  template Arg<In<ffi::S32>>()      \
      .template Arg<In<D>>()        \
      .template Arg<In<ffi::S32>>() \
      .template Arg<In<D>>()
#define SETTINGS                         \
  template Attr<int64_t>("begin")        \
      .template Attr<int64_t>("end")     \
      .template Attr<int64_t>("horizon") \
      .template Attr<int64_t>("shift")   \
      .template Attr<double>("discount") \
      .template Attr<bool>("on_policy")

}  // namespace
