// Bellman backups of sparse tables, called with pointers of NumPy arrays.
//
// A table has rows s * A + a in CSR: `starts`, `columns` and `data`. Blocks of states are computed
// by several threads. The results do not depend on the threads' timing, and those of `backup` and
// `apply` not on their number either.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

namespace {

constexpr int64_t SMALLEST_BLOCK = 50000;  // non-zeros that are worth a thread

struct Table {
  int64_t states;
  int64_t actions;
  const int64_t* starts;
  const int32_t* columns;
  const double* data;

  double expectation(int64_t row, const double* values) const {
    double total = 0.0;
    for (int64_t k = starts[row]; k < starts[row + 1]; ++k) total += data[k] * values[columns[k]];
    return total;
  }
};

using Block = std::function<void(int64_t block, int64_t begin, int64_t end)>;

int64_t blocks_of(const Table& table, int64_t threads) {
  const int64_t nonzeros = table.starts[table.states * table.actions];
  return std::clamp<int64_t>(nonzeros / SMALLEST_BLOCK, 1, threads);
}

void run(const Table& table, int64_t blocks, const Block& work) {
  std::vector<std::thread> others;
  for (int64_t block = 1; block < blocks; ++block)
    others.emplace_back(work, block, table.states * block / blocks,
                        table.states * (block + 1) / blocks);
  work(0, 0, table.states / blocks);
  for (auto& other : others) other.join();
}

}  // namespace

extern "C" {

// The greedy policy of `values` and its Bellman residual. The action in `actions` is kept unless
// another one is better by more than `margin`; a negative one stands for none. `extremes` has the
// smallest residual of the policy, the largest of any action, and the smallest and largest sum of
// a row.
void planning_backup(int64_t states, int64_t num_actions, const int64_t* starts,
                     const int32_t* columns, const double* data, const double* reward,
                     const double* values, double discount, double margin, int64_t threads,
                     int32_t* actions, double* residual, double* extremes) {
  const Table table{states, num_actions, starts, columns, data};
  const int64_t blocks = blocks_of(table, threads);
  std::vector<double> lowest(blocks), highest(blocks), smallest(blocks), largest(blocks);
  run(table, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    double least = low;
    double most = high;
    for (int64_t s = begin; s < end; ++s) {
      const int64_t row = s * num_actions;
      double best = -std::numeric_limits<double>::infinity();
      double kept = best;
      int32_t choice = 0;
      for (int32_t a = 0; a < num_actions; ++a) {
        double sum = 0.0;
        double next = 0.0;
        for (int64_t k = starts[row + a]; k < starts[row + a + 1]; ++k) {
          sum += data[k];
          next += data[k] * values[columns[k]];
        }
        least = std::min(least, sum);
        most = std::max(most, sum);
        const double value = reward[row + a] + discount * next;
        if (value > best) {
          best = value;
          choice = a;
        }
        if (a == actions[s]) kept = value;
      }
      high = std::max(high, best - values[s]);
      if (kept >= best - margin) {
        choice = actions[s];
        best = kept;
      }
      actions[s] = choice;
      residual[s] = best - values[s];
      low = std::min(low, residual[s]);
    }
    lowest[block] = low;
    highest[block] = high;
    smallest[block] = least;
    largest[block] = most;
  });
  extremes[0] = *std::min_element(lowest.begin(), lowest.end());
  extremes[1] = *std::max_element(highest.begin(), highest.end());
  extremes[2] = *std::min_element(smallest.begin(), smallest.end());
  extremes[3] = *std::max_element(largest.begin(), largest.end());
}

// One Gauss-Seidel sweep of value iteration, in place, from the last state if `reverse`. Each of
// the blocks sees the new values of its own states and the old values of the others.
void planning_sweep(int64_t states, int64_t num_actions, const int64_t* starts,
                    const int32_t* columns, const double* data, const double* reward,
                    double* values, double discount, int64_t reverse, int64_t threads) {
  const Table table{states, num_actions, starts, columns, data};
  const int64_t blocks = blocks_of(table, threads);
  const std::vector<double> old(blocks > 1 ? values : nullptr,
                                blocks > 1 ? values + states : nullptr);
  run(table, blocks, [&](int64_t, int64_t begin, int64_t end) {
    std::vector<double> own;
    double* current = values;
    if (blocks > 1) {
      own = old;
      current = own.data();
    }
    for (int64_t i = begin; i < end; ++i) {
      const int64_t s = reverse ? begin + end - 1 - i : i;
      const int64_t row = s * num_actions;
      double best = -std::numeric_limits<double>::infinity();
      for (int64_t a = 0; a < num_actions; ++a)
        best = std::max(best, reward[row + a] + discount * table.expectation(row + a, current));
      current[s] = best;
    }
    if (blocks > 1) std::copy(current + begin, current + end, values + begin);
  });
}

// result = vector - discount * P_pi vector, for the policy of `actions`.
void planning_apply(int64_t states, int64_t num_actions, const int64_t* starts,
                    const int32_t* columns, const double* data, const int32_t* actions,
                    const double* vector, double discount, int64_t threads, double* result) {
  const Table table{states, num_actions, starts, columns, data};
  const int64_t blocks = blocks_of(table, threads);
  run(table, blocks, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s)
      result[s] =
          vector[s] - discount * table.expectation(s * num_actions + actions[s], vector);
  });
}
}
