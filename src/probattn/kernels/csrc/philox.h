// Philox 4x32 with 7 rounds (Salmon et al. 2011), the same numbers as probattn/core/noise.py.
//
// A counter is (block, row, lead, particle + stream * 2^20). A block gives four 32-bit words: four uniform numbers in
// float32, two in float64. Many counters are worked on at once, one to a lane.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace probattn {

#if defined(__AVX512F__)
constexpr int kLanesPerVector = 8;
#else
constexpr int kLanesPerVector = 4;
#endif
constexpr int kLanes = 4 * kLanesPerVector;
constexpr uint32_t kParticlesPerStream = 1u << 20;

// A word sits in the lower half of 64 bits, where the product of two words has room. What is in the upper half does
// not matter to any operation here, so it is never cleared.
typedef uint64_t Words __attribute__((vector_size(8 * kLanesPerVector)));

inline Words product_of_words(Words words, uint32_t multiplier) {
#if defined(__AVX512F__)
  return (Words)_mm512_mul_epu32((__m512i)words, _mm512_set1_epi64(multiplier));
#elif defined(__AVX2__)
  return (Words)_mm256_mul_epu32((__m256i)words, _mm256_set1_epi64x(multiplier));
#else
  return (words & 0xFFFFFFFFull) * static_cast<uint64_t>(multiplier);
#endif
}

struct Counters {
  alignas(64) uint64_t words[4][kLanes];
};

// Random words of all lanes, four for each, lane by lane.
inline void philox(uint64_t seed, const Counters& counters, uint32_t* random) {
  constexpr int kRounds = 7, kVectors = kLanes / kLanesPerVector;
  Words word0[kVectors], word1[kVectors], word2[kVectors], word3[kVectors];
  std::memcpy(word0, counters.words[0], sizeof(word0));
  std::memcpy(word1, counters.words[1], sizeof(word1));
  std::memcpy(word2, counters.words[2], sizeof(word2));
  std::memcpy(word3, counters.words[3], sizeof(word3));
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    for (int vector = 0; vector < kVectors; ++vector) {
      const Words product0 = product_of_words(word0[vector], 0xD2511F53u);
      const Words product1 = product_of_words(word2[vector], 0xCD9E8D57u);
      word0[vector] = (product1 >> 32) ^ word1[vector] ^ static_cast<uint64_t>(key0);
      word1[vector] = product1;
      word2[vector] = (product0 >> 32) ^ word3[vector] ^ static_cast<uint64_t>(key1);
      word3[vector] = product0;
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  uint64_t pairs[2][kLanes];
  for (int vector = 0; vector < kVectors; ++vector) {
    const Words first = (word0[vector] & 0xFFFFFFFFull) | (word1[vector] << 32);
    const Words second = (word2[vector] & 0xFFFFFFFFull) | (word3[vector] << 32);
    std::memcpy(pairs[0] + vector * kLanesPerVector, &first, sizeof(first));
    std::memcpy(pairs[1] + vector * kLanesPerVector, &second, sizeof(second));
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int pair = 0; pair < 2; ++pair) {
      random[4 * lane + 2 * pair] = static_cast<uint32_t>(pairs[pair][lane]);
      random[4 * lane + 2 * pair + 1] = static_cast<uint32_t>(pairs[pair][lane] >> 32);
    }
  }
}

template <typename Number>
constexpr int numbers_per_block() {
  return std::is_same_v<Number, float> ? 4 : 2;
}

// Numbers strictly inside (0, 1) from the words of all lanes.
inline void to_unit_interval(const uint32_t* __restrict random, float* __restrict numbers) {
#pragma omp simd
  for (int number = 0; number < 4 * kLanes; ++number) {
    // A signed conversion is one instruction; the 23 bits have no sign.
    numbers[number] = (static_cast<float>(static_cast<int32_t>(random[number] >> 9)) + 0.5f) * 0x1p-23f;
  }
}

inline void to_unit_interval(const uint32_t* __restrict random, double* __restrict numbers) {
  for (int number = 0; number < 2 * kLanes; ++number) {
    const uint64_t high = random[2 * number], low = random[2 * number + 1];
    numbers[number] = (static_cast<double>(static_cast<int64_t>((high << 20) | (low >> 12))) + 0.5) * 0x1p-52;
  }
}

// Uniform numbers of `count` rows with `columns` numbers each, written one row after the other.
//
// next_row() is called once for each row, in order, and gives its counter: row, lead, particle + stream * 2^20.
template <typename Number, typename NextRow>
void fill_uniform(uint64_t seed, int64_t count, int64_t columns, NextRow&& next_row, Number* out) {
  constexpr int kPerBlock = numbers_per_block<Number>();
  const int64_t blocks = (columns + kPerBlock - 1) / kPerBlock, total = count * blocks;
  const bool is_whole = columns % kPerBlock == 0;
  Counters counters{};
  uint32_t random[4 * kLanes];
  int64_t block = blocks, out_block = 0;
  std::array<uint32_t, 3> row{};
  for (int64_t done = 0; done < total; done += kLanes) {
    const int lanes = static_cast<int>(std::min<int64_t>(total - done, kLanes));
    for (int lane = 0; lane < lanes; ++lane) {
      if (block == blocks) {
        block = 0;
        row = next_row();
      }
      counters.words[0][lane] = static_cast<uint64_t>(block++);
      counters.words[1][lane] = row[0];
      counters.words[2][lane] = row[1];
      counters.words[3][lane] = row[2];
    }
    philox(seed, counters, random);
    if (is_whole && lanes == kLanes) {
      to_unit_interval(random, out);
      out += kLanes * kPerBlock;
      continue;
    }
    Number numbers[kLanes * kPerBlock];
    to_unit_interval(random, numbers);
    for (int lane = 0; lane < lanes; ++lane) {
      const int64_t left = std::min<int64_t>(columns - out_block * kPerBlock, kPerBlock);
      for (int64_t number = 0; number < left; ++number) *out++ = numbers[lane * kPerBlock + number];
      out_block = out_block + 1 == blocks ? 0 : out_block + 1;
    }
  }
}

}  // namespace probattn
