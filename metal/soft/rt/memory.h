// Threadgroup memory: every array of a group ends at a guard page, holds NaNs before the group writes it,
// and counts against the device's limit.
#pragma once
#include "fiber.h"

static size_t array_stride() { return ARRAY_BYTES + PAGE_BYTES; }

static void *place_array(Context *c, int slot, const char *name, size_t bytes, size_t align) {
  Array &a = c->array[slot];
  if (a.p) return a.p;
  c->threadgroup_bytes += (bytes + 15) & ~(size_t)15;
  if (c->threadgroup_bytes > THREADGROUP_LIMIT) {
    fail(c, 0, "threadgroup memory of %zu bytes, with array %s, is beyond the limit of %zu", c->threadgroup_bytes, name, THREADGROUP_LIMIT);
    return nullptr;
  }
  a.p = c->array_base + slot * array_stride() + ((ARRAY_BYTES - bytes) & ~(align - 1));
  a.bytes = bytes, a.name = name;
  memset(a.p, 0xff, bytes);
  return a.p;
}

extern "C" __attribute__((visibility("default"))) void *msl_rt_array(int slot, const char *name, unsigned long bytes, unsigned long align) {
  Context *c = here;
  if (void *p = c->array[slot].p) return p;
  if (void *p = place_array(c, slot, name, bytes, align)) return p;
  abandon(c);
}

extern "C" __attribute__((visibility("default"))) void msl_rt_short_binding(int index, unsigned long have, unsigned long need) {
  Context *c = here;
  if (have == 0) fail(c, 0, "nothing is bound at buffer %d", index);
  else fail(c, 0, "buffer %d holds %lu bytes, and the kernel's argument has %lu", index, have, need);
  abandon(c);
}

extern "C" __attribute__((visibility("default"))) void msl_rt_missing_constant(const char *name, int index) {
  Context *c = here;
  fail(c, 0, "function constant %d (%s) has no value in this pipeline", index, name + sizeof "msl_constant_" - 1);
  abandon(c);
}

static Context *new_context() {
  Context *c = (Context *)calloc(1, sizeof(Context));
  if (!c) return nullptr;
  c->fiber = (Fiber *)calloc(MAX_THREADS, sizeof(Fiber));
  const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *stacks = mmap(nullptr, MAX_THREADS * stack_stride(), protection, flags, -1, 0);
  void *arrays = mmap(nullptr, ARRAYS * array_stride(), protection, flags, -1, 0);
  void *products = mmap(nullptr, MAX_SIMDGROUPS * MSL_PRODUCTS * sizeof(msl_product), protection, flags, -1, 0);
  if (!c->fiber || stacks == MAP_FAILED || arrays == MAP_FAILED || products == MAP_FAILED) return nullptr;
  c->products = (msl_product *)products;
  c->stack_base = (char *)stacks, c->array_base = (char *)arrays;
  for (int i = 0; i < ARRAYS; i++) mprotect(c->array_base + i * array_stride() + ARRAY_BYTES, PAGE_BYTES, PROT_NONE);
  return c;
}

// Contexts are kept: one costs milliseconds to make.
static Context *idle[256];
static int idle_count, idle_lock;
static void lock_idle() {
  while (__atomic_exchange_n(&idle_lock, 1, __ATOMIC_ACQUIRE)) {}
}
static void unlock_idle() { __atomic_store_n(&idle_lock, 0, __ATOMIC_RELEASE); }
static Context *take_context() {
  lock_idle();
  Context *c = idle_count ? idle[--idle_count] : nullptr;
  unlock_idle();
  return c ? c : new_context();
}
static void give_context(Context *c) {
  lock_idle();
  if (idle_count < (int)(sizeof idle / sizeof *idle)) idle[idle_count++] = c;
  unlock_idle();
}
