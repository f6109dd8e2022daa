// Occupancies and statistics of trajectories of tabular problems, behind XLA's foreign function
// interface.

#include "tabular.h"

namespace {

// The mean occupancy of the features; `probs` is the target's, which goes on acting where it is
// absorbed.
template <ffi::DataType D>
ffi::Error Occupancy(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths,
                     In<ffi::S32> finals, In<ffi::PRED> terminal, In<D> ratios, In<D> probs,
                     In<ffi::S32> index, In<D> value, In<ffi::S32> end_index, In<D> end_value,
                     int64_t begin, int64_t end, int64_t horizon, int64_t shift, double discount,
                     bool on_policy, bool absorbing, Out<D> occupancy) {
  using T = ffi::NativeType<D>;
  const Question<D> question(events, lengths, finals, terminal, ratios,
                             leading(occupancy->dimensions(), 1), {begin, end}, horizon, shift,
                             discount, on_policy);
  const auto& lead = question.lead;
  const auto policy = in(probs, 2, lead);
  const auto indices = in(index, 2, lead);
  const auto end_indices = in(end_index, 2, lead);
  const auto values = in(value, 2, lead);
  const auto end_values = in(end_value, 2, lead);
  const auto results = out(occupancy, 1, lead);
  const int64_t A = probs.dimensions().back();
  const int64_t pairs = policy.size;
  const int64_t S = pairs / A;
  const int64_t many = pairs << shift;
  const int64_t entries = index.dimensions().back();
  const int64_t end_entries = end_index.dimensions().back();
  if (!features_fit(question, pairs, index, end_index, results.size)) return refused(FEATURES);
  question.answer(
      pool, many + S,
      [&](int64_t run, const Range& part, double* sums) {
        const T* ratio = question.ratios.at(run);
        question.each(run, part, [&](const int32_t* steps, int64_t length, int64_t last) {
          const double weight =
              question.weigh(ratio, steps, length, [&](int64_t t, int32_t event, double weight) {
                sums[event] += question.discounts[t] * weight;
              });
          if (absorbing && question.ended(run, last))
            sums[many + last] += question.remaining[length] * weight;
        });
      },
      [&](int64_t run, const double* sums) {
        const Features<T> of_events{indices.at(run), values.at(run), entries};
        const Features<T> of_ends{end_indices.at(run), end_values.at(run), end_entries};
        std::vector<double> total(results.size, 0.0);
        for (int64_t event = 0; event < many; ++event)
          of_events.add(event, sums[event], total.data());
        if (absorbing)
          for (int64_t pair = 0; pair < pairs; ++pair)
            of_ends.add(pair, policy.at(run)[pair] * sums[many + pair / A], total.data());
        for (int64_t i = 0; i < results.size; ++i)
          results.at(run)[i] = total[i] / question.range.size();
      });
  return ffi::Error::Success();
}

// Sums over the trajectories that took a step: return, discounted return, weight, squared weight;
// and the largest weight of any step.
template <ffi::DataType D>
ffi::Error Tally(ffi::ThreadPool pool, In<ffi::S32> events, In<ffi::S32> lengths,
                 In<ffi::S32> finals, In<ffi::PRED> terminal, In<D> ratios, In<D> rewards,
                 int64_t begin, int64_t end, int64_t horizon, int64_t shift, double discount,
                 bool on_policy, double largest_squared, Out<D> totals) {
  using T = ffi::NativeType<D>;
  const Question<D> question(events, lengths, finals, terminal, ratios,
                             leading(totals->dimensions(), 1), {begin, end}, horizon, shift,
                             discount, on_policy);
  const auto pays = in(rewards, 1, question.lead);
  const auto results = out(totals, 1, question.lead);
  const int64_t parts = question.range.parts();
  const int64_t runs = product(question.lead);
  std::vector<double> largest(runs * parts, 0.0);
  question.answer(
      pool, 4,
      [&](int64_t run, const Range& part, double* sums) {
        const T* ratio = question.ratios.at(run);
        const T* pay = pays.at(run);
        double& most = largest[run * parts + part.begin / PART - begin / PART];
        question.each(run, part, [&](const int32_t* steps, int64_t length, int64_t) {
          if (length == 0) return;
          double largest_weight = 0;
          double earned = 0;
          double discounted = 0;
          const double last =
              question.weigh(ratio, steps, length, [&](int64_t t, int32_t event, double weight) {
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
auto bind_occupancy() {
  return QUESTION(D)
      .FEATURES(D)
      .SETTINGS.template Attr<bool>("absorbing")
      .template Ret<ffi::Buffer<D>>();
}

template <ffi::DataType D>
auto bind_tally() {
  return QUESTION(D)
      .SETTINGS.template Attr<double>("largest_squared")
      .template Ret<ffi::Buffer<D>>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_occupancy_float32, Occupancy<ffi::F32>,
                              bind_occupancy<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_occupancy_float64, Occupancy<ffi::F64>,
                              bind_occupancy<ffi::F64>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_tally_float32, Tally<ffi::F32>, bind_tally<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(tabular_tally_float64, Tally<ffi::F64>, bind_tally<ffi::F64>());
