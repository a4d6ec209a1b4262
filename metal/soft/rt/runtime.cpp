// The runtime's one translation unit: run_groups and what the host calls.
#include "fault.h"
#include "lanes.h"
#if defined(MSL_RACE)
#include "race.h"
#endif
#include "undefined.h"

// The group that runs as number i of the dispatch, in the schedule's order.
static uint32_t group_at(const msl_launch *l, uint32_t i, uint32_t groups) {
  if (l->seed == SEED_FORWARD) return i;
  if (l->seed == SEED_REVERSE) return groups - 1 - i;
  return (uint32_t)((i + l->seed * 2654435761u) % groups);
}

static void start_group(Context *c, uint32_t group) {
  const msl_launch *l = c->launch;
  c->group = group;
  c->live = c->threads, c->waiting = 0, c->barrier_flags = 0, c->ready = 0;
  c->current = LANES - 1; // so that the forward schedule begins with thread 0
  c->random = (l->seed * 0x9e3779b97f4a7c15ull + group) * 0xbf58476d1ce4e5b9ull | 1;
  c->threadgroup_bytes = 0;
  for (Array &a : c->array) a.p = nullptr;
  for (int i = 0; i < MSL_BINDINGS; i++) {
    if (!l->threadgroup_bytes[i]) continue;
    c->args.threadgroup_memory[i] = place_array(c, DECLARED_ARRAYS + i, "argument", l->threadgroup_bytes[i], 16);
  }
  for (int s = 0; s < c->simdgroups; s++) {
    int lanes = c->threads - s * LANES;
    Simdgroup &q = c->simd[s];
    q.live = lanes >= LANES ? ~0u : (1u << lanes) - 1;
    q.ready = 0;
    make_ready(c, q, q.live);
    q.at_simd = q.at_barrier = 0;
    q.epoch[0] = q.epoch[1] = 0;
  }
  const uint32_t gx = group % l->groups[0], gy = group / l->groups[0] % l->groups[1], gz = group / l->groups[0] / l->groups[1];
  const uint32_t at[3] = {gx, gy, gz};
  uint32_t i = 0, p[3];
  for (p[2] = 0; p[2] < l->threads[2]; p[2]++)
    for (p[1] = 0; p[1] < l->threads[1]; p[1]++)
      for (p[0] = 0; p[0] < l->threads[0]; p[0]++, i++) {
        Fiber &f = c->fiber[i];
        f.stack = nullptr;
        c->stack_pointer[i] = nullptr;
        c->pending[i] = msl_pending{0, 1, c->products + i / LANES * MSL_PRODUCTS};
        msl_thread &t = f.id;
        for (int k = 0; k < 3; k++) {
          t.position_in_group[k] = p[k];
          t.group_position[k] = at[k];
          t.position_in_grid[k] = at[k] * l->threads[k] + p[k];
        }
        t.index[0] = i, t.simdgroup[0] = i / LANES, t.lane[0] = i % LANES;
      }
#if defined(MSL_RACE)
  prepare_race(c);
#endif
}

// What is the same in all groups of a dispatch.
static void prepare_threads(Context *c) {
  const msl_launch *l = c->launch;
  for (int i = 0; i < c->threads; i++) {
    msl_thread &t = c->fiber[i].id;
    memset(&t, 0, sizeof t);
    for (int k = 0; k < 3; k++) t.groups[k] = l->groups[k], t.threads[k] = l->threads[k], t.grid[k] = l->groups[k] * l->threads[k];
    t.simdgroups[0] = (uint32_t)c->simdgroups;
  }
}

static void run_group(Context *c) {
  while (c->live > 0 && !c->failed) {
    int next = pick(c);
    if (next >= 0) enter(c, next, &c->scheduler);
    else unlock_or_fail(c);
  }
}

static void run_groups(Context *c, uint32_t first, uint32_t last) {
  const uint32_t *g = c->launch->groups;
  int signal_number = sigsetjmp(c->fault.back, 0);
  if (signal_number) {
    report_fault(c, signal_number);
    return;
  }
  c->fault.armed = true;
  for (uint32_t i = first; i < last && !c->failed; i++) {
    start_group(c, group_at(c->launch, i, g[0] * g[1] * g[2]));
    run_group(c);
    if (c->threadgroup_bytes > c->report->threadgroup_bytes) c->report->threadgroup_bytes = (uint32_t)c->threadgroup_bytes;
  }
}

// Runs the groups [first, last) of a launch on the calling OS thread. Returns 0, or -1 with the report's text.
extern "C" __attribute__((visibility("default"))) int msl_run(const msl_launch *launch, uint32_t first, uint32_t last, msl_report *report) {
  Context *c = take_context();
  if (!c) {
    snprintf(report->text, sizeof report->text, "no memory for the stacks of a threadgroup");
    return -1;
  }
  msl_install_handlers();
  here = c;
  msl_now.constants = launch->constants;
  c->launch = launch, c->report = report, c->args = launch->args;
  c->failed = false, c->collective = 0, c->switches = 0, c->object_last = 0;
  c->threads = (int)(launch->threads[0] * launch->threads[1] * launch->threads[2]);
  c->simdgroups = (c->threads + LANES - 1) / LANES;
  c->free_stacks = 0; // after an error, stacks are still held by threads that never ended
  for (int i = c->stacks - 1; i >= 0; i--) c->free_stack[c->free_stacks++] = c->stack_base + (size_t)i * stack_stride() + PAGE_BYTES;
  prepare_threads(c);
  run_groups(c, first, last);
  c->fault.armed = false;
  here = nullptr;
  report->switches = c->switches;
  bool failed = c->failed;
  give_context(c);
  return failed ? -1 : 0;
}

// The sizes that the host's mirrors of the structs must have.
extern "C" __attribute__((visibility("default"))) uint32_t msl_launch_bytes(void) { return sizeof(msl_launch); }
extern "C" __attribute__((visibility("default"))) uint32_t msl_report_bytes(void) { return sizeof(msl_report); }

// The size of a shadow cell, for the host that allocates shadows.
extern "C" __attribute__((visibility("default"))) uint32_t msl_cell_bytes(void) {
#if defined(MSL_RACE)
  return sizeof(Cell);
#else
  return 0;
#endif
}

// float to bfloat, to the nearest even: clang calls it where the processor has no instruction for it, and
// older libgcc lacks it.
extern "C" __attribute__((visibility("default"))) __bf16 __truncsfbf2(float f) {
  uint32_t u = __builtin_bit_cast(uint32_t, f);
  bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  uint16_t r = nan ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
  return __builtin_bit_cast(__bf16, r);
}
