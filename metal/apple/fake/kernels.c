// The kernels of metaltest/kernels.metal, in C, by name.
#include "fake.h"

static void *bound(struct step *s, int i) {
  if (s->buffer[i]) return (char *)s->buffer[i]->memory + s->offset[i];
  if (!s->block[i]) die("kernel %s: nothing at buffer %d", s->pipeline->text, i);
  return s->block[i];
}

static void geometry(struct step *s) {
  uint32_t *out = bound(s, 0);
  MTLSize g = s->groups, t = s->threads;
  NSUInteger gx = g.width * t.width, gy = g.height * t.height, gz = g.depth * t.depth;
  for (NSUInteger z = 0; z < gz; z++)
    for (NSUInteger y = 0; y < gy; y++)
      for (NSUInteger x = 0; x < gx; x++) {
        uint32_t *o = out + ((z * gy + y) * gx + x) * 12;
        NSUInteger lx = x % t.width, ly = y % t.height, lz = z % t.depth;
        o[0] = x / t.width | y / t.height << 8 | z / t.depth << 16;
        o[1] = lx | ly << 8 | lz << 16;
        o[2] = o[3] = (lz * t.height + ly) * t.width + lx;
        o[4] = g.width | g.height << 8 | g.depth << 16;
        o[5] = t.width | t.height << 8 | t.depth << 16;
        o[6] = (t.width * t.height * t.depth + 31) / 32;
        o[7] = x | y << 8 | z << 16;
      }
}

static void constants(struct step *s) {
  float *out = bound(s, 0), f;
  const uint32_t *c = s->pipeline->constant;
  memcpy(&f, &c[5], 4);
  out[0] = c[0], out[1] = (int32_t)c[1], out[2] = c[2], out[3] = f, out[4] = c[2] + 1;
}

static void tile(struct step *s) {
  const _Float16 *a = bound(s, 0), *b = bound(s, 1);
  float *c = bound(s, 2);
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) {
      float sum = 0;
      for (int k = 0; k < 8; k++) sum += (float)a[i * 8 + k] * (float)b[k * 8 + j];
      c[i * 8 + j] = sum;
    }
}

void run_kernel(struct step *s) {
  const char *name = s->pipeline->text;
  NSUInteger groups = s->groups.width * s->groups.height * s->groups.depth, size = s->threads.width * s->threads.height * s->threads.depth;
  NSUInteger total = groups * size;
  if (!strcmp(name, "suite_geometry")) geometry(s);
  else if (!strcmp(name, "suite_constants")) constants(s);
  else if (!strcmp(name, "suite_tile")) tile(s);
  else if (!strcmp(name, "suite_step")) {
    uint32_t *x = bound(s, 0), *p = bound(s, 1);
    for (NSUInteger i = 0; i < total && i < p[0]; i++) x[i] = x[i] * p[1] + p[2];
  } else if (!strcmp(name, "suite_copy")) {
    uint32_t *in = bound(s, 0), *out = bound(s, 3), n = *(uint32_t *)bound(s, 7);
    for (NSUInteger i = 0; i < total && i < n; i++) out[i] = in[i] + 1;
  } else if (!strcmp(name, "suite_reverse")) {
    uint32_t *x = bound(s, 0), v;
    if (s->threadgroup_bytes[0] < size * 4) die("suite_reverse: %lu bytes of threadgroup memory", (unsigned long)s->threadgroup_bytes[0]);
    for (NSUInteger g = 0; g < groups; g++)
      for (NSUInteger i = 0; i < size / 2; i++) v = x[g * size + i], x[g * size + i] = x[g * size + size - 1 - i], x[g * size + size - 1 - i] = v;
  } else if (!strcmp(name, "suite_sum")) {
    float *in = bound(s, 0), *out = bound(s, 1);
    for (NSUInteger g = 0; g < groups; g++) {
      out[g] = 0;
      for (int i = 0; i < 256; i++) out[g] += in[g * 256 + i];
    }
  } else if (!strcmp(name, "suite_block")) {
    uint32_t *out = bound(s, 0), *block = bound(s, 1);
    for (NSUInteger i = 0; i < total; i++) out[i] = block[i];
  } else if (!strcmp(name, "suite_count")) {
    *(uint32_t *)bound(s, 0) += total;
  } else if (!strcmp(name, "suite_fill_half")) {
    _Float16 *out = bound(s, 0);
    for (NSUInteger i = 0; i < total; i++) out[i] = (_Float16) * (float *)bound(s, 1);
  } else {
    die("the fake device does not know kernel %s", name);
  }
}
