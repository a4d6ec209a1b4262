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

// How a product with few rows is added up. A unit is UNIT inputs of an output. Some lanes of one simdgroup or of several
// share an output: lane t of n takes the units t, t+n, ..., ascending. Then the sums of a simdgroup's lanes are added up in
// pairs, those furthest apart first, and those of the simdgroups in their order. How many share is said by the matrix alone:
// neither the rows beside a row, nor the outputs beside an output decide on an order.
#define UNIT 16

METAL_FUNC uint matvec_lanes(uint inputs) { return inputs >= VECTOR_LONG ? SIMD_WIDTH : VECTOR_LANES; }

METAL_FUNC bool codes_of_four_bits() { return stored_format == FORMAT_AFFINE && stored_bits == 4; }

// The outputs of a thread: some of them, `apart` rows from one to the next, none from `end` on: the last one instead.
struct OwnOutputs {
  uint first, apart, end;
};
METAL_FUNC uint own_output(OwnOutputs own, int i) { return min(own.first + uint(i) * own.apart, own.end - 1); }

// A unit's codes of OUTPUTS outputs, with their scales and biases.
template <int OUTPUTS>
struct CodeUnit {
  uint2 words[OUTPUTS];
  float scale[OUTPUTS], bias[OUTPUTS];
};

// Where the rows of a thread's outputs begin: the number of their first unit and of their first scale. 32 bits hold both.
template <int OUTPUTS>
struct UnitRows {
  uint unit[OUTPUTS], side[OUTPUTS];
};

// wide: rows begin at multiples of 16 bytes.
template <int OUTPUTS>
METAL_FUNC void unit_load(thread CodeUnit<OUTPUTS> &c, StoredMatrix w, thread const UnitRows<OUTPUTS> &rows, uint unit, bool wide) {
  const uint group = unit * UNIT / stored_group;
  for (int o = 0; o < OUTPUTS; o++) {
    device const uint *from = (device const uint *)w.data + ulong(rows.unit[o] + unit) * 2;
    if (wide) c.words[o] = *(device const uint2 *)from;
    else c.words[o] = uint2(from[0], from[1]);
    c.scale[o] = plain_value(w.scales, stored_side, rows.side[o] + group);
    c.bias[o] = plain_value(w.biases, stored_side, rows.side[o] + group);
  }
}

// sum of code * u over the eight codes of a word. A code stands below the units of 2^23 where it is in its half of the word,
// which takes no conversion: what it is worth more there its input is worth less. units is 2^23's bits.
METAL_FUNC float word_dot(uint word, uint units, thread const float *u) {
  const uint upper = word >> 16;
  float dot = (as_type<float>((word & 15u) | units) - 8388608.0f) * u[0];
  for (int i = 1; i < 4; i++) dot = fma(as_type<float>((word & (15u << (4 * i))) | units) - 8388608.0f, u[i], dot);
  for (int i = 0; i < 4; i++) dot = fma(as_type<float>((upper & (15u << (4 * i))) | units) - 8388608.0f, u[i + 4], dot);
  return dot;
}

// A unit's inputs of a row, and what word_dot makes of them.
struct UnitInputs {
  float4 four[UNIT / 4];
};
struct UnitWorth {
  float u[UNIT], all; // what each input is worth, and their sum
};
METAL_FUNC void unit_inputs(thread UnitInputs &in, device const float *row, uint unit) {
  device const float4 *from = (device const float4 *)(row + ulong(unit) * UNIT); // whole units
  for (int i = 0; i < UNIT / 4; i++) in.four[i] = from[i];
}
METAL_FUNC void unit_worth(thread UnitWorth &w, thread const UnitInputs &in) {
  float whole[UNIT / 4];
  for (int i = 0; i < UNIT / 4; i++) {
    const float4 four = in.four[i];
    whole[i] = (four[0] + four[1]) + (four[2] + four[3]);
    float worth = 1.0f;
    for (int j = 0; j < 4; j++) {
      w.u[4 * i + j] = four[j] * worth;
      worth *= 0.0625f;
    }
  }
  w.all = (whole[0] + whole[1]) + (whole[2] + whole[3]);
}

// sums += sum of (scale code + bias) u = scale (sum of code u) + bias (sum of u) for a unit.
template <int OUTPUTS>
METAL_FUNC void unit_add(thread float *sums, thread const CodeUnit<OUTPUTS> &c, thread const UnitWorth &w, uint units) {
  for (int o = 0; o < OUTPUTS; o++)
    sums[o] = fma(c.scale[o], word_dot(c.words[o][0], units, w.u) + word_dot(c.words[o][1], units, w.u + 8), fma(c.bias[o], w.all, sums[o]));
}

// 2^23's bits, as word_dot wants them: a compiler that knows them takes two instructions to put a code there.
METAL_FUNC uint unit_bits(uint inputs) { return 0x4b000000u | inputs >> 31; }

// The units of a thread: `first` and every step'th behind it.
struct OwnUnits {
  uint first, step;
};

// A thread's units of codes of 4 bits: the next one is on its way while one is added. The loop is short on purpose: a kernel
// that runs for microseconds waits for its own instructions too.
template <int ROWS, int OUTPUTS>
METAL_FUNC void units_of_codes(thread float *sums, StoredMatrix w, OwnOutputs outputs, device const float *x, uint rows, OwnUnits own, bool wide) {
  UnitRows<OUTPUTS> begin;
  for (int o = 0; o < OUTPUTS; o++) {
    begin.unit[o] = own_output(outputs, o) * (w.in / UNIT);
    begin.side[o] = own_output(outputs, o) * (w.in / stored_group);
  }
  const uint units = w.in / UNIT, bits = unit_bits(w.in);
  if (own.first >= units) return;
  CodeUnit<OUTPUTS> c;
  UnitInputs in;
  const bool early = ROWS == 1 && OUTPUTS <= 2; // so few need registers for inputs too
  unit_load<OUTPUTS>(c, w, begin, own.first, wide);
  if (early) unit_inputs(in, x, own.first);
  for (uint unit = own.first; unit < units; unit += own.step) {
    const uint after = unit + own.step;
    CodeUnit<OUTPUTS> next = c;
    UnitInputs then = in;
    if (after < units) {
      unit_load<OUTPUTS>(next, w, begin, after, wide);
      if (early) unit_inputs(then, x, after);
    }
    for (int r = 0; r < ROWS; r++) {
      UnitWorth worth;
      if (!early) unit_inputs(in, x + ulong(min(uint(r), rows - 1)) * w.in, unit);
      unit_worth(worth, in);
      unit_add<OUTPUTS>(sums + r * OUTPUTS, c, worth, bits);
    }
    c = next;
    in = then;
  }
}

// The same for two matrices of the same rows at once, and one row of inputs.
template <int OUTPUTS>
METAL_FUNC void units_of_two(thread float *one, thread float *two, StoredMatrix w, StoredMatrix v, OwnOutputs outputs, device const float *x, OwnUnits own, bool wide) {
  UnitRows<OUTPUTS> begin;
  for (int o = 0; o < OUTPUTS; o++) {
    begin.unit[o] = own_output(outputs, o) * (w.in / UNIT);
    begin.side[o] = own_output(outputs, o) * (w.in / stored_group);
  }
  const uint units = w.in / UNIT, bits = unit_bits(w.in);
  if (own.first >= units) return;
  CodeUnit<OUTPUTS> c, d;
  unit_load<OUTPUTS>(c, w, begin, own.first, wide);
  unit_load<OUTPUTS>(d, v, begin, own.first, wide);
  for (uint unit = own.first; unit < units; unit += own.step) {
    const uint after = unit + own.step;
    CodeUnit<OUTPUTS> next = c, beside = d;
    UnitInputs in;
    unit_inputs(in, x, unit);
    if (after < units) {
      unit_load<OUTPUTS>(next, w, begin, after, wide);
      unit_load<OUTPUTS>(beside, v, begin, after, wide);
    }
    UnitWorth worth;
    unit_worth(worth, in);
    unit_add<OUTPUTS>(one, c, worth, bits);
    unit_add<OUTPUTS>(two, d, worth, bits);
    c = next;
    d = beside;
  }
}

// The same for every other format: eight values at a time.
template <int ROWS, int OUTPUTS, bool WIDE>
METAL_FUNC void units_of_values(thread float *sums, StoredMatrix w, OwnOutputs outputs, device const float *x, uint rows, OwnUnits own) {
  for (uint k = own.first * UNIT; k < w.in; k += own.step * UNIT)
    for (uint half_unit = k; half_unit < k + UNIT; half_unit += 8) {
      if (half_unit >= w.in) break;
      float u[ROWS][8];
      for (uint r = 0; r < ROWS; r++) matvec_inputs(u[r], x + ulong(min(r, rows - 1)) * w.in, half_unit, w.in);
      for (int o = 0; o < OUTPUTS; o++) {
        float v[8];
        stored_eight<WIDE>(v, w, own_output(outputs, o), half_unit);
        for (int r = 0; r < ROWS; r++) {
          float dot = v[0] * u[r][0];
          for (int i = 1; i < 8; i++) dot = fma(v[i], u[r][i], dot);
          sums[r * OUTPUTS + o] += dot;
        }
      }
    }
}

// Adds up what `lanes` neighbours have: all of them get the sums.
template <int N>
METAL_FUNC void lanes_sum(thread float *sums, uint lanes) {
  for (int i = 0; i < N; i++)
    for (uint apart = SIMD_WIDTH / 2; apart > 0; apart /= 2) {
      const float other = simd_shuffle_xor(sums[i], ushort(apart));
      sums[i] += apart < lanes ? other : 0.0f;
    }
}

// The sums of a thread's outputs for ROWS rows from x on, of which `rows` are there: sums [ROWS][OUTPUTS]. All lanes of a
// simdgroup call it; `lanes` neighbours share outputs and all get the sums of theirs, over the units that fall to their
// simdgroup, one of `parts`.
template <int ROWS, int OUTPUTS>
METAL_FUNC void matvec_sums(thread float *sums, StoredMatrix w, OwnOutputs own, device const float *x, uint rows, uint lanes, uint part, uint parts, uint lane) {
  OwnUnits units;
  units.first = part * lanes + lane % lanes;
  units.step = parts * lanes;
  const bool codes = codes_of_four_bits(), wide = stored_wide(w);
  for (int i = 0; i < ROWS * OUTPUTS; i++) sums[i] = 0.0f;
  if (codes) units_of_codes<ROWS, OUTPUTS>(sums, w, own, x, rows, units, wide);
  else if (wide) units_of_values<ROWS, OUTPUTS, true>(sums, w, own, x, rows, units);
  else units_of_values<ROWS, OUTPUTS, false>(sums, w, own, x, rows, units);
  lanes_sum<ROWS * OUTPUTS>(sums, lanes);
}

// The sums of a thread's outputs of two matrices with the same shape and storage, for one row: as matvec_sums.
template <int OUTPUTS>
METAL_FUNC void matvec_sums_of_two(thread float *one, thread float *two, StoredMatrix w, StoredMatrix v, OwnOutputs own, device const float *x, uint lanes, uint lane) {
  if (!codes_of_four_bits()) {
    matvec_sums<1, OUTPUTS>(one, w, own, x, 1, lanes, 0, 1, lane);
    matvec_sums<1, OUTPUTS>(two, v, own, x, 1, lanes, 0, 1, lane);
    return;
  }
  OwnUnits units;
  units.first = lane % lanes;
  units.step = lanes;
  for (int i = 0; i < OUTPUTS; i++) one[i] = two[i] = 0.0f;
  units_of_two<OUTPUTS>(one, two, w, v, own, x, units, stored_wide(w) && stored_wide(v));
  lanes_sum<OUTPUTS>(one, lanes);
  lanes_sum<OUTPUTS>(two, lanes);
}
