// Philox 4x32 with 7 rounds (Salmon et al. 2011), the same numbers as probattn/core/noise.py.
//
// A counter is (block, row, lead, particle + stream * 2^20). A block gives four 32-bit words: four uniform numbers in
// float32, two in float64. Many counters are worked on at once, one to a lane, so that a compiler can use vectors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

namespace probattn {

constexpr int kLanes = 32;
constexpr uint32_t kParticlesPerStream = 1u << 20;

struct Counters {
  uint32_t words[4][kLanes];
};

// Overwrites counters with random words.
inline void philox(uint64_t seed, Counters& counters) {
  constexpr int kRounds = 7;
  uint32_t* __restrict word0 = counters.words[0];
  uint32_t* __restrict word1 = counters.words[1];
  uint32_t* __restrict word2 = counters.words[2];
  uint32_t* __restrict word3 = counters.words[3];
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t product0 = static_cast<uint64_t>(word0[lane]) * 0xD2511F53u;
      const uint64_t product1 = static_cast<uint64_t>(word2[lane]) * 0xCD9E8D57u;
      const uint32_t next0 = static_cast<uint32_t>(product1 >> 32) ^ word1[lane] ^ key0;
      const uint32_t next2 = static_cast<uint32_t>(product0 >> 32) ^ word3[lane] ^ key1;
      word0[lane] = next0;
      word1[lane] = static_cast<uint32_t>(product1);
      word2[lane] = next2;
      word3[lane] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

template <typename Number>
constexpr int numbers_per_block() {
  return std::is_same_v<Number, float> ? 4 : 2;
}

// The numbers of one lane, strictly inside (0, 1).
inline void to_unit_interval(const Counters& random, int lane, float* numbers) {
  for (int word = 0; word < 4; ++word) {
    // A signed conversion is one instruction; the 23 bits have no sign.
    numbers[word] = (static_cast<float>(static_cast<int32_t>(random.words[word][lane] >> 9)) + 0.5f) * 0x1p-23f;
  }
}

inline void to_unit_interval(const Counters& random, int lane, double* numbers) {
  for (int half = 0; half < 2; ++half) {
    const uint64_t high = random.words[2 * half][lane], low = random.words[2 * half + 1][lane];
    const auto bits = static_cast<int64_t>((high << 20) | (low >> 12));
    numbers[half] = (static_cast<double>(bits) + 0.5) * 0x1p-52;
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
  int64_t block = blocks, out_block = 0;
  std::array<uint32_t, 3> row{};
  for (int64_t done = 0; done < total; done += kLanes) {
    const int lanes = static_cast<int>(std::min<int64_t>(total - done, kLanes));
    for (int lane = 0; lane < lanes; ++lane) {
      if (block == blocks) {
        block = 0;
        row = next_row();
      }
      counters.words[0][lane] = static_cast<uint32_t>(block++);
      counters.words[1][lane] = row[0];
      counters.words[2][lane] = row[1];
      counters.words[3][lane] = row[2];
    }
    philox(seed, counters);
    if (is_whole) {
      for (int lane = 0; lane < lanes; ++lane) to_unit_interval(counters, lane, out + lane * kPerBlock);
      out += lanes * kPerBlock;
      continue;
    }
    for (int lane = 0; lane < lanes; ++lane) {
      Number numbers[kPerBlock];
      to_unit_interval(counters, lane, numbers);
      const int64_t left = std::min<int64_t>(columns - out_block * kPerBlock, kPerBlock);
      for (int64_t number = 0; number < left; ++number) *out++ = numbers[number];
      out_block = out_block + 1 == blocks ? 0 : out_block + 1;
    }
  }
}

}  // namespace probattn
