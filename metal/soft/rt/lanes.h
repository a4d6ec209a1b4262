// Where threads meet: simdgroup functions and barriers. All live lanes of a simdgroup must come to the same
// simdgroup function, and all threads of a group to the same barrier; lenient launches let the ones that came
// go on instead.
#pragma once
#include "fiber.h"

static bool lenient(Context *c) { return c->launch->flags & FLAG_LENIENT; }

// The lanes that wait at the same simdgroup function as the lowest waiting one.
static uint32_t same_function(Simdgroup &s) {
  int first = __builtin_ctz(s.at_simd);
  uint32_t same = 0;
  for (uint32_t w = s.at_simd; w; w &= w - 1) {
    int l = __builtin_ctz(w);
    if (s.line[l] == s.line[first] && s.op[l] == s.op[first]) same |= 1u << l;
  }
  return same;
}

// Says whether all lanes have taken down the same products.
static bool same_products(Context *c, Simdgroup &s) {
  const msl_pending *lane = &c->pending[(&s - c->simd) * LANES], &first = lane[0];
  bool same = s.live == ~0u;
  for (int l = 1; same && l < LANES; l++) same = lane[l].count == first.count;
  for (unsigned k = 0; same && k < first.count; k++)
    for (int l = 1; same && l < LANES; l++) same = first.rows[k].run[l] == first.rows[k].run[0] && first.rows[k].line[l] == first.rows[k].line[0];
  return same;
}

// Computes the products that the lanes of a simdgroup have taken down.
static void settle(Context *c, Simdgroup &s) {
  msl_pending *lane = &c->pending[(&s - c->simd) * LANES];
  if (!same_products(c, s)) {
    int l = 0; // one that has a product
    while (l < LANES - 1 && !((s.live >> l & 1) && lane[l].count)) l++;
    const msl_pending &p = lane[l];
    const msl_product *last = &p.rows[p.count ? p.count - 1 : 0];
    fail(c, 0, "simdgroup matrices need all 32 lanes, and those of simdgroup %d of threadgroup %u multiply different ones, lane %d last at %s:%d",
         (int)(&s - c->simd), c->group, l, last->file, last->line[l]);
    return;
  }
  for (unsigned k = 0; k < lane[0].count; k++) lane[0].rows[k].run[0](&lane[0].rows[k]);
  for (int l = 0; l < LANES; l++) lane[l].count = 0, lane[l].epoch++;
}

static bool has_products(Context *c, Simdgroup &s) {
  const msl_pending *lane = &c->pending[(&s - c->simd) * LANES];
  for (uint32_t live = s.live; live; live &= live - 1)
    if (lane[__builtin_ctz(live)].count) return true;
  return false;
}

static void settle_lanes(void **, unsigned) {
  Context *c = here;
  settle(c, c->simd[c->current >> 5]);
}

static void run_collective(Context *c, Simdgroup &s, uint32_t lanes) {
  c->collective++;
  s.op[__builtin_ctz(lanes)](s.payload, lanes);
  c->collective--;
  s.at_simd &= ~lanes;
  make_ready(c, s, lanes);
}

static void fail_divergent(Context *c, Simdgroup &s, uint32_t lanes) {
  int a = __builtin_ctz(lanes), b = __builtin_ctz(s.at_simd & ~lanes);
  fail(c, 0, "divergent simdgroup functions in simdgroup %d of threadgroup %u: lane %d is at %s:%d, lane %d at %s:%d",
       (int)(&s - c->simd), c->group, a, s.file[a], s.line[a], b, s.file[b], s.line[b]);
}

// All live lanes of s wait at simdgroup functions: runs the one they agree on.
static void meet(Context *c, Simdgroup &s) {
  uint32_t same = same_function(s);
  if (same == s.at_simd || lenient(c)) run_collective(c, s, same);
  else fail_divergent(c, s, same);
}

extern "C" __attribute__((visibility("default"))) void msl_rt_simd(msl_collective op, void *payload, const char *file, int line) {
  Context *c = here;
  int lane = c->current & 31;
  uint32_t bit = 1u << lane;
  Simdgroup &s = c->simd[c->current >> 5];
  s.payload[lane] = payload, s.op[lane] = op, s.file[lane] = file, s.line[lane] = line;
  s.at_simd |= bit;
  make_waiting(c, s, bit);
  if (s.at_simd == s.live) {
    meet(c, s);
    if (!c->failed && (s.ready & bit) && c->launch->seed == SEED_FORWARD) return;
  }
  park(c);
}

extern "C" __attribute__((visibility("default"))) void msl_rt_settle(const char *file, int line) { msl_rt_simd(settle_lanes, nullptr, file, line); }

static void simd_barrier_none(void **, unsigned) {}
static void simd_barrier_device(void **, unsigned) { here->simd[here->current >> 5].epoch[0]++; }
static void simd_barrier_threadgroup(void **, unsigned) { here->simd[here->current >> 5].epoch[1]++; }
static void simd_barrier_both(void **, unsigned) {
  simd_barrier_device(nullptr, 0);
  simd_barrier_threadgroup(nullptr, 0);
}

extern "C" __attribute__((visibility("default"))) void msl_rt_simd_barrier(int flags, const char *file, int line) {
  static const msl_collective op[4] = {simd_barrier_none, simd_barrier_device, simd_barrier_threadgroup, simd_barrier_both};
  msl_rt_simd(op[flags & 3], nullptr, file, line);
}

static void open_barrier(Context *c) {
  for (int i = 0; i < c->simdgroups; i++) {
    if (c->simd[i].at_barrier == c->simd[i].live && has_products(c, c->simd[i])) settle(c, c->simd[i]);
    make_ready(c, c->simd[i], c->simd[i].at_barrier);
    c->simd[i].at_barrier = 0;
  }
  c->waiting = 0;
  for (int i = 0; i < 2; i++)
    if (c->barrier_flags >> i & 1) c->epoch[i]++;
  c->barrier_flags = 0;
}

// All threads that are left wait at barriers: opens them, if they are one and nobody has left before.
static void meet_at_barrier(Context *c) {
  const char *file = nullptr;
  int line = 0;
  for (int i = 0; i < c->simdgroups && !lenient(c); i++)
    for (uint32_t w = c->simd[i].at_barrier; w; w &= w - 1) {
      int l = __builtin_ctz(w);
      if (!file) file = c->simd[i].file[l], line = c->simd[i].line[l];
      if (c->simd[i].line[l] != line) {
        fail(c, 0, "threads of threadgroup %u wait at different barriers: %s:%d and %s:%d", c->group, file, line, c->simd[i].file[l], c->simd[i].line[l]);
        return;
      }
    }
  if (c->live != c->threads && !lenient(c)) {
    fail(c, 0, "threadgroup_barrier at %s:%d reached by %d of %d threads of threadgroup %u: the others have returned", file, line, c->live, c->threads, c->group);
    return;
  }
  open_barrier(c);
}

extern "C" __attribute__((visibility("default"))) void msl_rt_barrier(int flags, const char *file, int line) {
  Context *c = here;
  int lane = c->current & 31;
  Simdgroup &s = c->simd[c->current >> 5];
  s.at_barrier |= 1u << lane;
  make_waiting(c, s, 1u << lane);
  s.file[lane] = file, s.line[lane] = line;
  c->waiting++, c->barrier_flags |= flags;
  if (c->waiting == c->live) {
    meet_at_barrier(c);
    if (!c->failed && c->launch->seed == SEED_FORWARD) return;
  }
  park(c);
}

// A thread has returned: whoever waited only for it goes on, or is an error.
static void thread_ended(Context *c) {
  Simdgroup &s = c->simd[c->current >> 5];
  uint32_t bit = 1u << (c->current & 31);
  s.live &= ~bit;
  make_waiting(c, s, bit);
  c->live--;
  if (s.at_simd && s.at_simd == s.live) meet(c, s);
  if (!c->failed && c->waiting && c->waiting == c->live) meet_at_barrier(c);
}

// No thread is ready and the group is not done: some wait for lanes that wait elsewhere.
static void unlock_or_fail(Context *c) {
  for (int i = 0; i < c->simdgroups; i++) {
    Simdgroup &s = c->simd[i];
    if (!s.at_simd) continue;
    if (lenient(c)) {
      run_collective(c, s, same_function(s));
      return;
    }
    int l = __builtin_ctz(s.at_simd);
    fail(c, 0, "simdgroup function at %s:%d reached by %d of %d lanes of simdgroup %d of threadgroup %u%s", s.file[l], s.line[l],
         __builtin_popcount(s.at_simd), __builtin_popcount(s.live), i, c->group, s.at_barrier ? ": others wait at a barrier" : "");
    return;
  }
  fail(c, 0, "threadgroup %u is stuck: a barrier is not reached by all threads", c->group);
}
