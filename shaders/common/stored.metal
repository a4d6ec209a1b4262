// Reading stored matrices. A matrix [out, in] is float32, bfloat16 or half values, or MLX affine codes: value =
// scale*code + bias, a scale and a bias for every `group` inputs, a row one little-endian bit stream. A row of affine
// codes is whole words, since a group has at least 32. How a matrix is stored is the pipeline's constants.

constant uint stored_format [[function_constant(CONSTANT_FORMAT)]];
constant uint stored_bits [[function_constant(CONSTANT_BITS)]];
constant uint stored_group [[function_constant(CONSTANT_GROUP)]];
constant uint stored_side [[function_constant(CONSTANT_SIDE)]];

// A stored matrix. Codes, scales and biases begin at multiples of 4 bytes. Plain formats have no scales and biases.
struct StoredMatrix {
  device const uchar *data;   // [out, in] or the codes
  device const uchar *scales; // [out, in/group]
  device const uchar *biases; // [out, in/group]
  uint in;
};

// Whether rows of m begin at multiples of 16 bytes and it pays to know it.
METAL_FUNC bool stored_wide(StoredMatrix m) {
  const uint bits = stored_format == FORMAT_AFFINE ? stored_bits : stored_format == FORMAT_F32 ? 32 : 16;
  return m.in * bits % 128 == 0 && loads_wide(m.data);
}

// Says that rows [first, first+n) of m will be read: some lanes of a simdgroup do, all of which call it.
METAL_FUNC void stored_ahead(StoredMatrix m, uint first, uint n, uint lane) {
  if (stored_format != FORMAT_AFFINE) {
    const uint row = m.in * (stored_format == FORMAT_F32 ? 4 : 2);
    if (lane == 0 && n > 0) fetch_ahead(m.data + ulong(first) * row, n * row);
    return;
  }
  const uint row = m.in / 8 * stored_bits, side = m.in / stored_group * (stored_side == FORMAT_F32 ? 4 : 2);
  if (lane < 3 && n > 0) {
    const uint each = lane == 0 ? row : side;
    fetch_ahead((lane == 0 ? m.data : lane == 1 ? m.scales : m.biases) + ulong(first) * each, n * each);
  }
}

METAL_FUNC float bfloat_bits(ushort v) { return as_type<float>(uint(v) << 16); }

// Number i of a run of plain numbers.
METAL_FUNC float plain_value(device const uchar *data, uint format, ulong i) {
  if (format == FORMAT_F32) return ((device const float *)data)[i];
  if (format == FORMAT_F16) return float(((device const half *)data)[i]);
  return bfloat_bits(((device const ushort *)data)[i]);
}

// Eight codes from `codes` on, as one number of 8*stored_bits bits.
METAL_FUNC ulong eight_codes(device const uchar *codes) {
  device const ushort *halves = (device const ushort *)codes;
  device const uint *words = (device const uint *)codes;
  if (stored_bits == 8) return ulong(words[0]) | ulong(words[1]) << 32;
  if (stored_bits == 2) return ulong(halves[0]);
  if (stored_bits == 6) return ulong(halves[0]) | ulong(halves[1]) << 16 | ulong(halves[2]) << 32;
  return ulong(codes[0]) | ulong(codes[1]) << 8 | ulong(codes[2]) << 16; // 3
}

// The values of eight codes of 4 bits. A code is put below the units of 2^23 where it stands, which takes no conversion:
// what it is worth more there, a power of two, its scale is worth less, so that the values are those of scale*code+bias.
METAL_FUNC void four_bits(thread float *v, uint word, float scale, float bias) {
  float worth = 1.0f;
  for (int i = 0; i < 4; i++) {
    const uint mask = 15u << (4 * i);
    v[i] = fma(scale * worth, as_type<float>((word & mask) | 0x4b000000u) - 8388608.0f, bias);
    v[i + 4] = fma(scale * worth, as_type<float>(((word >> 16) & mask) | 0x4b000000u) - 8388608.0f, bias);
    worth *= 0.0625f;
  }
}

// Writes the values of inputs [first, first+8) of a row to v; inputs past the row's end are 0. first is a multiple of 8.
// WIDE: rows begin at multiples of 16 bytes.
template <bool WIDE>
METAL_FUNC void stored_eight(thread float *v, StoredMatrix m, uint row, uint first) {
  if (stored_format == FORMAT_AFFINE) {
    const uint groups = m.in / stored_group;
    const ulong side = ulong(row) * groups + first / stored_group;
    const float scale = plain_value(m.scales, stored_side, side);
    const float bias = plain_value(m.biases, stored_side, side);
    const uint bits = stored_bits, mask = (1u << bits) - 1;
    device const uchar *from = m.data + ulong(row) * (m.in / 8 * bits) + first / 8 * bits;
    if (bits == 4) {
      four_bits(v, *(device const uint *)from, scale, bias);
      return;
    }
    ulong codes = eight_codes(from);
    for (int i = 0; i < 8; i++) {
      v[i] = fma(scale, float(uint(codes) & mask), bias);
      codes >>= bits;
    }
    return;
  }
  const ulong at = ulong(row) * m.in + first;
  if (stored_format != FORMAT_F32 && m.in % 2 == 0 && first + 8 <= m.in) { // two numbers a load
    device const uint *pairs = (device const uint *)(m.data + at * 2);
    const uint4 words = WIDE ? *(device const uint4 *)pairs : uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    for (uint i = 0; i < 4; i++) {
      const uint two = words[i];
      v[2 * i] = stored_format == FORMAT_F16 ? float(as_type<half>(ushort(two & 0xffffu))) : as_type<float>(two << 16);
      v[2 * i + 1] = stored_format == FORMAT_F16 ? float(as_type<half>(ushort(two >> 16))) : as_type<float>(two & 0xffff0000u);
    }
    return;
  }
  for (uint i = 0; i < 8; i++) v[i] = first + i < m.in ? plain_value(m.data, stored_format, at + i) : 0.0f;
}
