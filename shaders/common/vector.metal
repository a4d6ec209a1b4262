// Sums of products with few rows, float32 from end to end: they are bound by how fast weights come.

// u = inputs [k, k+8) of a row, zeros past its end.
METAL_FUNC void matvec_inputs(thread float *u, device const float *row, uint k, uint inputs) {
  if (inputs % 4 == 0 && k + 8 <= inputs) { // 16 bytes at a time: a row is whole float4s
    device const float4 *from = (device const float4 *)(row + k);
    const float4 low = from[0], high = from[1];
    for (int i = 0; i < 4; i++) {
      u[i] = low[i];
      u[i + 4] = high[i];
    }
    return;
  }
  for (uint i = 0; i < 8; i++) u[i] = k + i < inputs ? row[k + i] : 0.0f;
}

// How a product with few rows is added up. A run is RUN inputs of an output. LANES lanes of a simdgroup share an output, by
// its inputs alone: lane t of them takes the runs t, t+LANES, ..., ascending, and then the lanes' sums are added up in
// pairs, those half of LANES apart first. Nothing else decides on the order: neither the rows beside a row, nor the outputs
// beside an output.
#define RUN 32

METAL_FUNC uint matvec_lanes(uint inputs) { return inputs >= VECTOR_LONG ? 16 : 4; }

METAL_FUNC bool codes_of_four_bits() { return stored_format == FORMAT_AFFINE && stored_bits == 4; }

// Where float4 number `part` of a run is staged: lanes that read the same part of their runs find them side by side.
template <int LANES>
METAL_FUNC uint matvec_place(uint run, uint part) {
  return (run / LANES * (RUN / 4) + part) * LANES + run % LANES;
}

// Stages inputs [from, from+CHUNK) of ROWS rows, of which `rows` are there, eight a thread, up to the end of the last run.
// A code of 4 bits stands below the units of 2^23 where it is in its word: what it is worth more there its input is worth
// less. whole gets the sum of every eight, for the bias.
template <int ROWS, int LANES, int CHUNK>
METAL_FUNC void matvec_stage(threadgroup float4 *xs, threadgroup float *whole, device const float *x, uint rows, uint from, uint inputs, uint index, uint threads) {
  const uint words = min(uint(CHUNK), (inputs - from + RUN - 1) / RUN * RUN) / 8;
  const bool codes = codes_of_four_bits();
  for (int r = 0; r < ROWS; r++) {
    device const float *row = x + ulong(min(uint(r), rows - 1)) * inputs;
    for (uint word = index; word < words; word += threads) {
      float u[8];
      matvec_inputs(u, row, from + word * 8, inputs);
      whole[r * (CHUNK / 8) + word] = ((u[0] + u[1]) + (u[2] + u[3])) + ((u[4] + u[5]) + (u[6] + u[7]));
      const float one = codes ? 0.0625f : 1.0f, two = one * one, three = two * one;
      threadgroup float4 *to = xs + r * (CHUNK / 4) + matvec_place<LANES>(word / 4, word % 4 * 2);
      to[0] = float4(u[0], u[1] * one, u[2] * two, u[3] * three);
      to[LANES] = float4(u[4], u[5] * one, u[6] * two, u[7] * three);
    }
  }
}

// Four words of codes of 4 bits from p on.
template <bool WIDE>
METAL_FUNC uint4 matvec_words(device const uchar *p) {
  device const uint *words = (device const uint *)p;
  return WIDE ? *(device const uint4 *)words : uint4(words[0], words[1], words[2], words[3]);
}

// What a thread holds of the codes of OUTPUTS outputs: B runs of each, with their scales and biases.
template <int OUTPUTS, int B>
struct CodeRuns {
  uint4 words[OUTPUTS][B];
  float scale[OUTPUTS][B], bias[OUTPUTS][B];
};

// The outputs of a thread: OUTPUTS of them, `apart` rows from one to the next, none from `end` on: the last one instead.
struct OwnOutputs {
  uint first, apart, end;
};
METAL_FUNC uint own_output(OwnOutputs own, int i) { return min(own.first + uint(i) * own.apart, own.end - 1); }

// Loads what lane t has of a batch of runs: those from `base` on of the chunk from input `from` on, which has `runs`.
template <int OUTPUTS, int LANES, int B, bool WIDE>
METAL_FUNC void matvec_load(thread CodeRuns<OUTPUTS, B> &c, StoredMatrix w, OwnOutputs own, uint from, uint base, uint runs, uint t) {
  for (int o = 0; o < OUTPUTS; o++) {
    const uint output = own_output(own, o);
    device const uchar *row = w.data + ulong(output) * (w.in / 2) + from / 2;
    const ulong side = ulong(output) * (w.in / stored_group);
    for (int i = 0; i < B; i++) {
      const uint run = min(base + uint(i) * LANES + t, runs - 1);
      c.words[o][i] = matvec_words<WIDE>(row + run * (RUN / 2));
      c.scale[o][i] = plain_value(w.scales, stored_side, side + (from + run * RUN) / stored_group);
      c.bias[o][i] = plain_value(w.biases, stored_side, side + (from + run * RUN) / stored_group);
    }
  }
}

// sum of (scale code + bias) u = scale (sum of code u) + bias (sum of u), run after run.
template <int ROWS, int OUTPUTS, int LANES, int CHUNK, int B>
METAL_FUNC void matvec_add_codes(thread float *sums, thread const CodeRuns<OUTPUTS, B> &c, threadgroup const float4 *xs, threadgroup const float *whole, uint base, uint runs, uint t) {
  for (int i = 0; i < B; i++) {
    const uint run = base + uint(i) * LANES + t;
    if (run >= runs) continue;
    for (int r = 0; r < ROWS; r++) {
      float dot[OUTPUTS][4];
      threadgroup const float4 *u = xs + r * (CHUNK / 4) + (base / LANES + uint(i)) * (RUN / 4) * LANES + t;
      for (int word = 0; word < 4; word++) {
        const float4 low = u[word * 2 * LANES], high = u[(word * 2 + 1) * LANES];
        for (int o = 0; o < OUTPUTS; o++) {
          const uint codes = c.words[o][i][word], upper = codes >> 16;
          float d = (as_type<float>((codes & 15u) | 0x4b000000u) - 8388608.0f) * low[0];
          for (int j = 1; j < 4; j++) d = fma(as_type<float>((codes & (15u << (4 * j))) | 0x4b000000u) - 8388608.0f, low[j], d);
          for (int j = 0; j < 4; j++) d = fma(as_type<float>((upper & (15u << (4 * j))) | 0x4b000000u) - 8388608.0f, high[j], d);
          dot[o][word] = d;
        }
      }
      threadgroup const float *eights = whole + r * (CHUNK / 8) + run * 4;
      const float all = (eights[0] + eights[1]) + (eights[2] + eights[3]);
      for (int o = 0; o < OUTPUTS; o++)
        sums[r * OUTPUTS + o] = fma(c.scale[o][i], (dot[o][0] + dot[o][1]) + (dot[o][2] + dot[o][3]), fma(c.bias[o][i], all, sums[r * OUTPUTS + o]));
    }
  }
}

// The same for every other format: eight values at a time.
template <int ROWS, int OUTPUTS, int LANES, int CHUNK, bool WIDE>
METAL_FUNC void matvec_add_values(thread float *sums, StoredMatrix w, OwnOutputs own, uint from, threadgroup const float4 *xs, uint runs, uint t) {
  for (uint run = t; run < runs; run += LANES)
    for (int o = 0; o < OUTPUTS; o++)
      for (uint word = 0; word < 4; word++) {
        float v[8];
        stored_eight<WIDE>(v, w, own_output(own, o), from + run * RUN + word * 8);
        for (int r = 0; r < ROWS; r++) {
          threadgroup const float4 *u = xs + r * (CHUNK / 4) + matvec_place<LANES>(run, word * 2);
          const float4 low = u[0], high = u[LANES];
          float d = v[0] * low[0];
          for (int j = 1; j < 4; j++) d = fma(v[j], low[j], d);
          for (int j = 0; j < 4; j++) d = fma(v[j + 4], high[j], d);
          sums[r * OUTPUTS + o] += d;
        }
      }
}

// Who stages: `threads` threads, of which this is number index; ALONE: a simdgroup by itself.
template <bool ALONE>
METAL_FUNC void matvec_barrier() {
  if (ALONE) simdgroup_barrier(mem_flags::mem_threadgroup);
  else threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The sums of a thread's outputs for ROWS rows from x on, of which `rows` are there: sums [ROWS][OUTPUTS]; all LANES lanes
// of the outputs get them. xs [ROWS*CHUNK/4] and whole [ROWS*CHUNK/8] are shared by those who stage, all of whom call this.
// staged: xs holds these rows already, which are no longer than CHUNK. B is how many runs a lane has under way.
template <int ROWS, int OUTPUTS, int LANES, int CHUNK, int B, bool ALONE>
METAL_FUNC void matvec_sums(thread float *sums, StoredMatrix w, OwnOutputs own, device const float *x, uint rows, threadgroup float4 *xs,
                            threadgroup float *whole, bool staged, uint index, uint threads) {
  static_assert(CHUNK % (RUN * LANES) == 0, "a chunk is as many runs for every lane");
  const uint t = index % LANES;
  const bool codes = codes_of_four_bits(), wide = stored_wide(w);
  for (int i = 0; i < ROWS * OUTPUTS; i++) sums[i] = 0.0f;
  for (uint from = 0; from < w.in; from += CHUNK) {
    const uint runs = min(uint(CHUNK), w.in - from + RUN - 1) / RUN;
    CodeRuns<OUTPUTS, B> c;
    if (codes && wide) matvec_load<OUTPUTS, LANES, B, true>(c, w, own, from, 0, runs, t); // under way while inputs are staged
    else if (codes) matvec_load<OUTPUTS, LANES, B, false>(c, w, own, from, 0, runs, t);
    if (!staged) {
      matvec_barrier<ALONE>();
      matvec_stage<ROWS, LANES, CHUNK>(xs, whole, x, rows, from, w.in, index, threads);
      matvec_barrier<ALONE>();
    }
    if (codes)
      for (uint base = 0; base < runs; base += B * LANES) {
        if (base > 0 && wide) matvec_load<OUTPUTS, LANES, B, true>(c, w, own, from, base, runs, t);
        else if (base > 0) matvec_load<OUTPUTS, LANES, B, false>(c, w, own, from, base, runs, t);
        matvec_add_codes<ROWS, OUTPUTS, LANES, CHUNK, B>(sums, c, xs, whole, base, runs, t);
      }
    else if (wide) matvec_add_values<ROWS, OUTPUTS, LANES, CHUNK, true>(sums, w, own, from, xs, runs, t);
    else matvec_add_values<ROWS, OUTPUTS, LANES, CHUNK, false>(sums, w, own, from, xs, runs, t);
  }
  for (int i = 0; i < ROWS * OUTPUTS; i++)
    for (ushort apart = LANES / 2; apart > 0; apart /= 2) sums[i] += simd_shuffle_xor(sums[i], apart);
}

// Sums over codes of 4 bits for many inputs, without a value of its own for each code: a group's scale and bias multiply whole
// runs, sum of (scale code + bias) u = scale (sum of code u) + bias (sum of u). A code stands below the units of 2^23
// where it is in its word, and what it is worth more there its input is worth less. A lane takes WORDS words at a time, of
// one group.
template <int ROWS, int OUTPUTS, int SIMDS, int WORDS>
METAL_FUNC void long_four_bits(thread float *sums, StoredMatrix w, uint first, uint outputs, device const float *x, uint rows, uint sg, uint lane) {
  const uint words = w.in / 8, groups = w.in / stored_group;
  for (uint k = (sg * SIMD_WIDTH + lane) * WORDS; k < words; k += SIMDS * SIMD_WIDTH * WORDS) {
    uint codes[OUTPUTS][WORDS];
    float scale[OUTPUTS], bias[OUTPUTS];
    for (uint o = 0; o < OUTPUTS; o++) {
      const uint row = first + min(o, outputs - 1);
      device const uint *from = (device const uint *)w.data + (ulong(row) * words + k);
      for (uint i = 0; i < WORDS; i++) codes[o][i] = from[i];
      const ulong side = ulong(row) * groups + k * 8 / stored_group;
      scale[o] = plain_value(w.scales, stored_side, side);
      bias[o] = plain_value(w.biases, stored_side, side);
    }
    for (uint word = 0; word < WORDS; word++) {
      float u[ROWS][8], whole[ROWS];
      for (uint r = 0; r < ROWS; r++) {
        matvec_inputs(u[r], x + ulong(min(r, rows - 1)) * w.in, (k + word) * 8, w.in);
        whole[r] = ((u[r][0] + u[r][1]) + (u[r][2] + u[r][3])) + ((u[r][4] + u[r][5]) + (u[r][6] + u[r][7]));
        float worth = 1.0f;
        for (int i = 0; i < 4; i++) {
          u[r][i] *= worth;
          u[r][i + 4] *= worth;
          worth *= 0.0625f;
        }
      }
      for (uint o = 0; o < OUTPUTS; o++) {
        float code[8];
        for (int i = 0; i < 4; i++) {
          const uint mask = 15u << (4 * i);
          code[i] = as_type<float>((codes[o][word] & mask) | 0x4b000000u) - 8388608.0f;
          code[i + 4] = as_type<float>(((codes[o][word] >> 16) & mask) | 0x4b000000u) - 8388608.0f;
        }
        for (int r = 0; r < ROWS; r++) {
          float dot = code[0] * u[r][0];
          for (int i = 1; i < 8; i++) dot = fma(code[i], u[r][i], dot);
          sums[r * OUTPUTS + o] = fma(scale[o], dot, fma(bias[o], whole[r], sums[r * OUTPUTS + o]));
        }
      }
    }
  }
}

// Products of Linear with at least VECTOR_LONG inputs add up in another way: the simdgroups of a threadgroup share an
// output's inputs, so that few outputs are enough to keep a device busy.
//
// The sums of a simdgroup: of OUTPUTS outputs from `first` on, of which `outputs` are there, and ROWS rows, of which
// `rows` are. A lane takes every 32nd run of eight inputs of the runs that fall to its simdgroup, every SIMDS'th 32 of
// them, and decodes a run once for all rows. Every row adds up by itself, in one order.
template <int ROWS, int OUTPUTS, int SIMDS, bool WIDE>
METAL_FUNC void long_sums(thread float *sums, StoredMatrix w, uint first, uint outputs, device const float *x, uint rows, uint sg, uint lane) {
  for (int i = 0; i < ROWS * OUTPUTS; i++) sums[i] = 0.0f;
  const bool codes = stored_format == FORMAT_AFFINE && stored_bits == 4;
  if (codes && w.in >= VECTOR_TWO_WORDS) long_four_bits<ROWS, OUTPUTS, SIMDS, 2>(sums, w, first, outputs, x, rows, sg, lane);
  else if (codes) long_four_bits<ROWS, OUTPUTS, SIMDS, 1>(sums, w, first, outputs, x, rows, sg, lane);
  else for (uint k = (sg * SIMD_WIDTH + lane) * 8; k < w.in; k += SIMDS * SIMD_WIDTH * 8) {
    float u[ROWS][8];
    for (uint r = 0; r < ROWS; r++) matvec_inputs(u[r], x + ulong(min(r, rows - 1)) * w.in, k, w.in);
    for (uint o = 0; o < OUTPUTS; o++) {
      float v[8];
      stored_eight<WIDE>(v, w, first + min(o, outputs - 1), k);
      for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 8; i++) sums[r * OUTPUTS + o] = fma(v[i], u[r][i], sums[r * OUTPUTS + o]);
    }
  }
  for (int i = 0; i < ROWS * OUTPUTS; i++) sums[i] = simd_sum(sums[i]);
}
