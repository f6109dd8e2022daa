// Sampling of tabular problems with tabular policies, behind XLA's foreign function interface.

#include <cstring>

#include "random.h"
#include "tabular.h"

namespace {

template <typename T>
struct Table {
  int64_t S, A, horizon, shift;
  const int32_t* successors;
  const T* outcomes;
  const T* initial;
  const T* actions;
  const bool* terminal;
};

// Draws the trajectories of a part, SLOTS of them side by side, because a step waits for the one
// before it. A slot that is free takes the next number, and each trajectory is drawn to its end, so
// none is preferred for being short. They are written as far apart as they may become long, and
// moved together at the end.
template <typename T>
void draw(const Table<T>& table, const uint32_t* key, int64_t first, int64_t stop,
          const Range& part, int32_t* events, int32_t* lengths, int32_t* finals) {
  uint32_t trajectory[SLOTS] = {};
  uint32_t turn[SLOTS] = {};
  uint32_t words[4][SLOTS];
  int64_t place[SLOTS];
  int64_t state[SLOTS];
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
      int32_t const* const begin = events + place[slot] * table.horizon;
      if (turn[slot]++ == 0)
        s = pick(table.initial, table.S, uniform<T>(words[0][slot]));
      else
        for (int half = 0; half < 4 && to < begin + table.horizon && !table.terminal[s];
             half += 2) {
          const int64_t pair = s * table.A + pick(table.actions + s * table.A, table.A,
                                                  uniform<T>(words[half][slot]));
          const int64_t first_outcome = pair << table.shift;
          const T* outcomes = table.outcomes + first_outcome;
          const int64_t event = first_outcome + pick(outcomes, int64_t{1} << table.shift,
                                                     uniform<T>(words[half + 1][slot]));
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
ffi::Error Sample(ffi::ThreadPool pool, In<ffi::S32> successors, In<D> thresholds, In<D> initial,
                  In<ffi::PRED> terminal, In<D> probs, In<ffi::U32> key, In<ffi::S32> numbers,
                  int64_t horizon, int64_t shift, Out<ffi::S32> events, Out<ffi::S32> lengths,
                  Out<ffi::S32> finals) {
  using T = ffi::NativeType<D>;
  const int64_t S = terminal.dimensions().back();
  const int64_t A = probs.dimensions().back();
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
  if (S < 1 || A < 1 || horizon < 1 || following.size != many || outcome.size != many ||
      start.size != S || ends.size != S || policy.size != S * A ||
      all_events.size != range.size() * horizon)
    return refused(
        "the tables of a process must have one entry for each state, action and outcome.");
  if (!within(successors, 0, S - 1))
    return refused("successors must lie in 0..S-1, the numbers of the states.");

  const int64_t runs = product(lead);
  std::vector<T> action_thresholds(runs * S * A);
  for (int64_t run = 0; run < runs; ++run)
    accumulate(policy.at(run), S, A, &action_thresholds[run * S * A]);
  in_parallel(pool, runs * range.parts(), 1 + runs * range.size() / WORTH_A_THREAD,
              [&](int64_t unit) {
                const int64_t run = unit / range.parts();
                const int64_t first = first_and_stop.at(run)[0];
                const int64_t stop = first_and_stop.at(run)[1];
                const Table<T> table{S,
                                     A,
                                     horizon,
                                     shift,
                                     following.at(run),
                                     outcome.at(run),
                                     start.at(run),
                                     &action_thresholds[run * S * A],
                                     ends.at(run)};
                draw(table, keys.at(run), first, stop, range.part(unit % range.parts()),
                     all_events.at(run), all_lengths.at(run), all_finals.at(run));
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

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_sample_float32, Sample<ffi::F32>, bind_sample<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_sample_float64, Sample<ffi::F64>, bind_sample<ffi::F64>());
