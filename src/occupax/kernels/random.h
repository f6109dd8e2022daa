// Random numbers: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
// as 1, 2, 3", 2011), keyed by the JAX key and counted by trajectory and turn, and choices made
// with them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#if defined(__x86_64__) && defined(__GNUC__)
#define VECTORS
#include <immintrin.h>
#endif

namespace {

constexpr int SLOTS = 8;  // counters at once

// Philox4x32-10 for SLOTS counters (trajectory, 0, turn, 0) at once.
void plain_philox(const uint32_t* key, const uint32_t* trajectory, const uint32_t* turn,
                  uint32_t (&words)[4][SLOTS]) {
  for (int i = 0; i < SLOTS; ++i) {
    uint32_t x0 = trajectory[i];
    uint32_t x1 = 0;
    uint32_t x2 = turn[i];
    uint32_t x3 = 0;
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const uint64_t left = uint64_t{0xD2511F53} * x0;
      const uint64_t right = uint64_t{0xCD9E8D57} * x2;
      x0 = static_cast<uint32_t>(right >> 32) ^ x1 ^ k0;
      x1 = static_cast<uint32_t>(right);
      x2 = static_cast<uint32_t>(left >> 32) ^ x3 ^ k1;
      x3 = static_cast<uint32_t>(left);
    }
    words[0][i] = x0, words[1][i] = x1, words[2][i] = x2, words[3][i] = x3;
  }
}

#ifdef VECTORS
// The same, with the words in the lower halves of 64 bits; what is in the upper halves does not
// matter.
__attribute__((target("avx2"))) void wide_philox(const uint32_t* key, const uint32_t* trajectory,
                                                 const uint32_t* turn,
                                                 uint32_t (&words)[4][SLOTS]) {
  constexpr int MANY = SLOTS / 4;
  const __m256i first = _mm256_set1_epi64x(0xD2511F53);
  const __m256i second = _mm256_set1_epi64x(0xCD9E8D57);
  __m256i x[4][MANY] = {};
  for (int i = 0; i < MANY; ++i) {
    x[0][i] = _mm256_cvtepu32_epi64(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(trajectory + 4 * i)));
    x[2][i] =
        _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(turn + 4 * i)));
  }
  uint32_t k0 = key[0];
  uint32_t k1 = key[1];
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    const __m256i key0 = _mm256_set1_epi64x(k0);
    const __m256i key1 = _mm256_set1_epi64x(k1);
    for (int i = 0; i < MANY; ++i) {
      const __m256i left = _mm256_mul_epu32(x[0][i], first);
      const __m256i right = _mm256_mul_epu32(x[2][i], second);
      x[0][i] = _mm256_srli_epi64(right, 32) ^ x[1][i] ^ key0;
      x[1][i] = right;
      x[2][i] = _mm256_srli_epi64(left, 32) ^ x[3][i] ^ key1;
      x[3][i] = left;
    }
  }
  const __m256i lower = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < MANY; ++i)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(words[j] + 4 * i),
                       _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(x[j][i], lower)));
}
const auto philox = __builtin_cpu_supports("avx2") ? wide_philox : plain_philox;
#else
const auto philox = plain_philox;
#endif

// On [0, 1): with as many bits as T has, at most 32.
template <typename T>
T uniform(uint32_t word) {
  constexpr int spare = std::max(0, 32 - std::numeric_limits<T>::digits);
  return static_cast<T>(word >> spare) * static_cast<T>(1.0 / (uint64_t{1} << (32 - spare)));
}

// How many of `size` thresholds, which rise above 1 at last, are not above u. Comparing with all of
// a few is fastest: the branches of a search are guessed wrong half of the time.
template <typename T>
int64_t pick(const T* thresholds, int64_t size, T u) {
  if (size > 16) return std::upper_bound(thresholds, thresholds + size - 1, u) - thresholds;
  int64_t chosen = 0;
  if (size == 4) {  // known to the compiler, as it is for most tables
    for (int i = 0; i < 4; ++i) chosen += u >= thresholds[i];
  } else {
    for (int64_t i = 0; i < size - 1; ++i) chosen += u >= thresholds[i];
  }
  return chosen;
}

// The thresholds of rows of A probabilities; that of the last possible one is above 1, so that
// rounding cannot pass it.
template <typename T>
void accumulate(const T* probs, int64_t rows, int64_t A, T* thresholds) {
  for (int64_t row = 0; row < rows; ++row, probs += A, thresholds += A) {
    std::partial_sum(probs, probs + A, thresholds);
    for (int64_t a = A - 1; a >= 0 && (a == A - 1 || !(probs[a + 1] > 0)); --a) thresholds[a] = 2;
  }
}

}  // namespace
