// TSIVR-PG for log coverage on a table, with no library around it: what `benchmarks/tabular.py` compares with.
//
// Reads the problem and the settings from a text file, trains every seed for a number of epochs on all cores, and prints
// live environment steps and seconds. Everything is fused and reused as one would by hand: one pass over a trajectory
// answers for both policies.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

struct Problem {
  int S, A, K, horizon, N, B, m, epochs, seeds, threads;
  double discount, sigma, step_size, radius;
  std::vector<int> successors;
  std::vector<float> thresholds;
  std::vector<char> terminal;
  std::vector<double> discounts;
};

struct Random {  // Philox4x32-10
  uint32_t key0, key1, counter, trajectory, block[4];
  int used = 4;
  float uniform() {
    if (used == 4) {
      uint32_t x0 = trajectory, x1 = 0, x2 = counter++, x3 = 0, k0 = key0, k1 = key1;
      for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t{0xD2511F53} * x0, b = uint64_t{0xCD9E8D57} * x2;
        x0 = static_cast<uint32_t>(b >> 32) ^ x1 ^ k0, x1 = static_cast<uint32_t>(b);
        x2 = static_cast<uint32_t>(a >> 32) ^ x3 ^ k1, x3 = static_cast<uint32_t>(a);
        k0 += 0x9E3779B9, k1 += 0xBB67AE85;
      }
      block[0] = x0, block[1] = x1, block[2] = x2, block[3] = x3;
      used = 0;
    }
    return block[used++] * 0x1p-32f;
  }
};

struct Policy {
  std::vector<double> theta, probs, log_probs;
  std::vector<float> cumulative;
  void refresh(const Problem& p) {
    probs.resize(p.S * p.A), log_probs.resize(p.S * p.A), cumulative.resize(p.S * p.A);
    for (int s = 0; s < p.S; ++s) {
      const double* row = &theta[s * p.A];
      const double top = *std::max_element(row, row + p.A);
      double sum = 0, so_far = 0;
      for (int a = 0; a < p.A; ++a) sum += probs[s * p.A + a] = std::exp(row[a] - top);
      for (int a = 0; a < p.A; ++a) {
        probs[s * p.A + a] /= sum;
        log_probs[s * p.A + a] = row[a] - top - std::log(sum);
        cumulative[s * p.A + a] = static_cast<float>(so_far += probs[s * p.A + a]);
      }
    }
  }
};

struct Trainer {
  const Problem& p;
  uint32_t seed, iteration = 0;
  long steps = 0;
  Policy now, then;
  std::vector<double> u, g, r, r_before, ratio, c_now, c_then, earned_now, earned_then;
  std::vector<int> path;

  Trainer(const Problem& p, uint32_t seed) : p(p), seed(seed) {
    now.theta.assign(p.S * p.A, 0.0);
    now.refresh(p);
    then = now;
    u.assign(p.S, 0.0), g.assign(p.S * p.A, 0.0), r = r_before = u;
    ratio = c_now = c_then = g;
    earned_now.resize(p.horizon), earned_then.resize(p.horizon), path.resize(p.horizon);
  }

  int sample(uint32_t trajectory) {
    Random random{seed, iteration, 0, trajectory, {}};
    random.uniform();
    int s = 0, length = 0;
    while (length < p.horizon && !p.terminal[s]) {
      const float x = random.uniform(), y = random.uniform();
      int a = 0, k = 0;
      while (a < p.A - 1 && x >= now.cumulative[s * p.A + a]) ++a;
      const int pair = s * p.A + a;
      while (k < p.K - 1 && y >= p.thresholds[pair * p.K + k]) ++k;
      path[length++] = pair;
      s = p.successors[pair * p.K + k];
    }
    steps += length;
    return length;
  }

  void add_gradient(const std::vector<double>& c, const Policy& policy, double scale) {
    for (int s = 0; s < p.S; ++s) {
      double sum = 0;
      for (int a = 0; a < p.A; ++a) sum += c[s * p.A + a];
      for (int a = 0; a < p.A; ++a) g[s * p.A + a] += scale * (c[s * p.A + a] - policy.probs[s * p.A + a] * sum);
    }
  }

  void quasi_reward() {
    r_before.swap(r);
    for (int s = 0; s < p.S; ++s) r[s] = 1 / (std::max(u[s], 0.0) + p.sigma);
  }

  void step() {
    double norm = 0;
    for (double x : g) norm += x * x;
    norm = std::sqrt(norm);
    const double eta = std::min(p.step_size, p.radius / std::max(norm, 1e-300));
    then = now;
    for (size_t i = 0; i < g.size(); ++i) now.theta[i] += eta * g[i];
    now.refresh(p);
    ++iteration;
  }

  void snapshot() {
    std::vector<std::vector<int>> paths;
    std::fill(u.begin(), u.end(), 0.0);
    for (int i = 0; i < p.N; ++i) {
      const int length = sample(i);
      for (int t = 0; t < length; ++t) u[path[t] / p.A] += p.discounts[t] / p.N;
      paths.emplace_back(path.begin(), path.begin() + length);
    }
    quasi_reward();
    r_before = r;
    std::fill(c_now.begin(), c_now.end(), 0.0), std::fill(g.begin(), g.end(), 0.0);
    for (const auto& steps_taken : paths) {
      double to_go = 0;
      for (int t = static_cast<int>(steps_taken.size()) - 1; t >= 0; --t)
        c_now[steps_taken[t]] += to_go += p.discounts[t] * r[steps_taken[t] / p.A];
    }
    add_gradient(c_now, now, 1.0 / p.N);
    step();
  }

  void refine() {
    for (size_t i = 0; i < ratio.size(); ++i) ratio[i] = std::exp(then.log_probs[i] - now.log_probs[i]);
    std::fill(c_now.begin(), c_now.end(), 0.0), std::fill(c_then.begin(), c_then.end(), 0.0);
    for (int i = 0; i < p.B; ++i) {
      const int length = sample(i);
      double weight = 1;
      for (int t = 0; t < length; ++t) {
        const int s = path[t] / p.A;
        weight *= ratio[path[t]];
        u[s] += p.discounts[t] * (1 - weight) / p.B;
        earned_now[t] = p.discounts[t] * r[s];
        earned_then[t] = p.discounts[t] * weight * r_before[s];
      }
      double to_go_now = 0, to_go_then = 0;
      for (int t = length - 1; t >= 0; --t) {
        c_now[path[t]] += to_go_now += earned_now[t];
        c_then[path[t]] += to_go_then += earned_then[t];
      }
    }
    add_gradient(c_now, now, 1.0 / p.B), add_gradient(c_then, then, -1.0 / p.B);
    quasi_reward();
    step();
  }

  double run() {
    for (int epoch = 0; epoch < p.epochs; ++epoch) {
      snapshot();
      for (int j = 1; j < p.m; ++j) refine();
    }
    double value = 0;
    for (double x : u) value += std::log(std::max(x, 0.0) + p.sigma);
    return value;
  }
};

int main(int, char** arguments) {
  Problem p;
  std::ifstream file(arguments[1]);
  file >> p.S >> p.A >> p.K >> p.horizon >> p.N >> p.B >> p.m >> p.epochs >> p.seeds >> p.threads >> p.discount >>
      p.sigma >> p.step_size >> p.radius;
  p.successors.resize(p.S * p.A * p.K), p.thresholds.resize(p.S * p.A * p.K), p.terminal.resize(p.S);
  for (int& x : p.successors) file >> x;
  for (float& x : p.thresholds) file >> x;
  for (char& x : p.terminal) {
    int flag;
    file >> flag;
    x = static_cast<char>(flag);
  }
  for (double power = 1; static_cast<int>(p.discounts.size()) < p.horizon; power *= p.discount)
    p.discounts.push_back(power);
  std::vector<Trainer> trainers;
  for (int i = 0; i < p.seeds; ++i) trainers.emplace_back(p, i);
  std::vector<double> values(p.seeds);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < p.threads; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < p.seeds; i += p.threads) values[i] = trainers[i].run();
    });
  for (auto& thread : threads) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  long steps = 0;
  double value = 0;
  for (int i = 0; i < p.seeds; ++i) steps += trainers[i].steps, value += values[i] / p.seeds;
  std::printf("%ld %.6f %.4f\n", steps, took.count(), value);
}
