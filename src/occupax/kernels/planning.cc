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

constexpr int64_t SMALLEST_BLOCK = 1000000;  // non-zeros that are worth a thread

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

int64_t blocks_of(const Table& table, int64_t threads, int64_t share = 1) {
  const int64_t nonzeros = table.starts[table.states * table.actions] / share;
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

// result = vector - discount * P_pi vector, for the policy of `actions`.
void apply(const Table& table, const int32_t* actions, const double* vector, double discount,
           int64_t threads, double* result) {
  const int64_t blocks = blocks_of(table, threads, table.actions);
  run(table, blocks, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s)
      result[s] = vector[s] - discount * table.expectation(s * table.actions + actions[s], vector);
  });
}

using Vector = std::vector<double>;

// Four partial sums, which the compiler may keep in one register.
double inner(const Vector& one, const Vector& other) {
  double sums[4] = {};
  const size_t whole = one.size() / 4 * 4;
  for (size_t i = 0; i < whole; i += 4)
    for (size_t k = 0; k < 4; ++k) sums[k] += one[i + k] * other[i + k];
  for (size_t i = whole; i < one.size(); ++i) sums[0] += one[i] * other[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
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
  std::vector<double> lowest(blocks);
  std::vector<double> highest(blocks);
  std::vector<double> smallest(blocks);
  std::vector<double> largest(blocks);
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

void planning_apply(int64_t states, int64_t num_actions, const int64_t* starts,
                    const int32_t* columns, const double* data, const int32_t* actions,
                    const double* vector, double discount, int64_t threads, double* result) {
  const Table table{states, num_actions, starts, columns, data};
  apply(table, actions, vector, discount, threads, result);
}

// BiCGStab for (I - discount * P_pi) x = right, from x = right. `solution` is the iterate with the
// smallest residual. Returns the norm of its residual relative to that of `right`.
double planning_solve(int64_t states, int64_t num_actions, const int64_t* starts,
                      const int32_t* columns, const double* data, const int32_t* actions,
                      const double* right, double discount, double accuracy, int64_t products,
                      int64_t threads, double* solution) {
  const Table table{states, num_actions, starts, columns, data};
  const auto multiply = [&](const Vector& vector, Vector& result) {
    apply(table, actions, vector.data(), discount, threads, result.data());
  };
  Vector x(right, right + states);
  Vector moved(states);
  Vector image(states);
  multiply(x, image);
  Vector residual(states);
  for (int64_t s = 0; s < states; ++s) residual[s] = right[s] - image[s];
  const Vector shadow = residual;
  Vector direction = residual;
  const double norm = std::sqrt(inner(x, x));
  double product = inner(shadow, residual);
  double best = std::sqrt(product);
  std::copy(x.begin(), x.end(), solution);
  for (int64_t step = 0; step < products / 2 && best > accuracy * norm; ++step) {
    multiply(direction, moved);
    const double length = product / inner(shadow, moved);
    for (int64_t s = 0; s < states; ++s) residual[s] -= length * moved[s];
    multiply(residual, image);
    const double omega = inner(image, residual) / inner(image, image);
    for (int64_t s = 0; s < states; ++s) {
      x[s] += length * direction[s] + omega * residual[s];
      residual[s] -= omega * image[s];
    }
    const double size = std::sqrt(inner(residual, residual));
    if (!std::isfinite(size)) break;
    if (size < best) {
      best = size;
      std::copy(x.begin(), x.end(), solution);
    }
    const double next = inner(shadow, residual);
    const double momentum = next / product * length / omega;
    if (!std::isfinite(momentum)) break;
    for (int64_t s = 0; s < states; ++s)
      direction[s] = residual[s] + momentum * (direction[s] - omega * moved[s]);
    product = next;
  }
  return norm > 0.0 ? best / norm : 0.0;
}
}
