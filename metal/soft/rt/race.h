// The race detector. Kernels are compiled with -fsanitize=thread, which calls the hooks below before every
// access to memory; the sanitizer's own runtime is not linked. An access is ordered after an earlier one of
//
//   the same thread;
//   the same threadgroup, if a threadgroup_barrier on that kind of memory lies between;
//   the same simdgroup, if a simdgroup_barrier on that kind of memory lies between;
//   an earlier launch, if queues and events order the launches.
//
// Two unordered accesses to one byte, one of them a write, are a race, whether or not they went wrong. Of
// several readers of a byte the last is remembered, and that there were others.
#pragma once
#include "fault.h"

// One access: who and when. Threads of several OS threads write cells of the same memory without a lock:
// where that matters the accesses race, and the finding is right whichever of them it names.
struct Access {
  uint32_t launch;  // queue << 26 | number of the launch in the queue; 0 is none
  uint32_t group;
  uint32_t barrier; // epochs of the group
  uint16_t thread;  // its index in the group
  uint16_t detail;  // low bits of the simdgroup's epoch << 2 | which of the two bytes
};
// A cell covers two bytes. Accesses to one byte of it do not disturb those to the other.
struct Cell {
  Access write, read;
  uint32_t readers; // another thread has read in the same launch, group and epoch
};

enum { DEVICE_MEMORY = 0, THREADGROUP_MEMORY = 1, LAUNCH_BITS = 26, CELL_SPAN = 2 };

// An access of the running thread, of no byte yet.
static Access access_now(Context *c, int kind) {
  unsigned t = (unsigned)c->current;
  return Access{c->launch->queue << LAUNCH_BITS | c->launch->launch, c->group, c->epoch[kind], (uint16_t)t,
                (uint16_t)(c->simd[t >> 5].epoch[kind] << 2)};
}

// Says whether an earlier access is not ordered before this one.
static bool unordered(Context *c, const Access &before, const Access &now, int kind) {
  if (!before.launch || !(before.detail & now.detail & 3)) return false;
  bool other_group = before.launch != now.launch || before.group != now.group;
  if (kind == THREADGROUP_MEMORY && other_group) return false; // it was another group's memory then
  if (before.launch != now.launch) {
    uint32_t queue = before.launch >> LAUNCH_BITS, number = before.launch & ((1u << LAUNCH_BITS) - 1);
    return queue != c->launch->queue && number > c->launch->visible[queue];
  }
  if (before.group != now.group) return true;
  if (before.barrier != now.barrier || before.thread == now.thread) return false;
  bool same_simdgroup = before.thread >> 5 == now.thread >> 5;
  return !(same_simdgroup && before.detail >> 2 != now.detail >> 2);
}

// Says whether a kept access was in the same span between barriers as this one.
static bool same_span(const Access &a, const Access &b) {
  return a.launch == b.launch && a.group == b.group && a.barrier == b.barrier && a.detail >> 2 == b.detail >> 2;
}

// What is accessed, for a message.
struct Target {
  const char *array; // its name, or null for a buffer
  int buffer;
  long offset;
};

static const char *describe(const Target &at, char *text, size_t bytes) {
  if (at.array) snprintf(text, bytes, "threadgroup array %s at offset %ld", at.array, at.offset);
  else snprintf(text, bytes, "buffer %d at offset %ld", at.buffer, at.offset);
  return text;
}

static void fail_race(Context *c, const Access &before, const char *did, const char *does, const Target &target, uintptr_t pc) {
  char thread_name[96], at[96];
  who(c, thread_name, sizeof thread_name);
  describe(target, at, sizeof at);
  if (before.launch != (c->launch->queue << LAUNCH_BITS | c->launch->launch)) {
    fail(c, pc, "race on %s: launch %u of queue %u %s it, %s %s it with no event between", at,
         before.launch & ((1u << LAUNCH_BITS) - 1), before.launch >> LAUNCH_BITS, did, thread_name, does);
    return;
  }
  if (before.group != c->group) {
    fail(c, pc, "race on %s: thread %u of threadgroup %u %s it, %s %s it, and nothing orders threadgroups", at,
         before.thread, before.group, did, thread_name, does);
    return;
  }
  fail(c, pc, "race on %s: thread %u %s it, %s %s it with no barrier between", at, before.thread, did, thread_name, does);
}

static void check_cell(Context *c, Cell *cell, int kind, Access now, bool writes, const Target &at, uintptr_t pc) {
  const char *does = writes ? "writes" : "reads";
  if (unordered(c, cell->write, now, kind)) {
    fail_race(c, cell->write, "wrote", does, at, pc);
    abandon(c);
  }
  bool kept = same_span(cell->read, now);
  if (!writes) {
    cell->readers = kept && (cell->readers || cell->read.thread != now.thread);
    if (kept) now.detail |= cell->read.detail & 3;
    cell->read = now;
    return;
  }
  bool shared = kept && cell->readers && (cell->read.detail & now.detail & 3);
  if (shared || unordered(c, cell->read, now, kind)) {
    fail_race(c, cell->read, "read", does, at, pc);
    abandon(c);
  }
  if (same_span(cell->write, now) && cell->write.thread == now.thread) now.detail |= cell->write.detail & 3;
  cell->write = now;
  cell->read.launch = 0, cell->readers = 0;
}

// Checks the cells of an access; shadow is the cell that holds the byte at origin.
static void check_cells(Context *c, Cell *shadow, uintptr_t origin, uintptr_t at, size_t bytes, int kind, bool writes, Target target, uintptr_t pc) {
  origin &= ~(uintptr_t)(CELL_SPAN - 1);
  Access now = access_now(c, kind);
  for (size_t k = 0; k < bytes;) {
    unsigned odd = (at + k) % CELL_SPAN, n = odd || bytes - k == 1 ? 1 : 2;
    Access part = now;
    part.detail |= n == 2 ? 3 : 1 << odd;
    check_cell(c, &shadow[(at + k - origin) / CELL_SPAN], kind, part, writes, target, pc);
    k += n, target.offset += n;
  }
}

static void check_array(Context *c, uintptr_t at, size_t bytes, bool writes, uintptr_t pc) {
  size_t offset = at - (uintptr_t)c->array_base;
  Array &a = c->array[offset / array_stride()];
  long inside = (long)(at - (uintptr_t)a.p);
  if (!a.p || inside < 0 || inside + bytes > a.bytes) {
    char thread_name[96];
    fail(c, pc, "out of bounds: %s %s %zu bytes at offset %ld of threadgroup array %s (%zu bytes)", who(c, thread_name, sizeof thread_name),
         writes ? "writes" : "reads", bytes, inside, a.p ? a.name : "?", a.bytes);
    abandon(c);
  }
  check_cells(c, c->array_shadow, (uintptr_t)c->array_base, at, bytes, THREADGROUP_MEMORY, writes, Target{a.name, 0, inside}, pc);
}

// Says whether an access lies within what is bound at index i.
static bool within(Context *c, int i, uintptr_t at, size_t bytes) {
  uintptr_t p = (uintptr_t)c->args.buffer[i];
  return p && at >= p && at + bytes <= p + c->args.length[i];
}

// Checks an access to a bound buffer; false if it touches none. Most are to the one that the last was to.
static bool check_buffer(Context *c, uintptr_t at, size_t bytes, bool writes, uintptr_t pc) {
  int i = c->last_buffer;
  if (!within(c, i, at, bytes))
    for (i = 0; i < MSL_BINDINGS && !within(c, i, at, bytes);) i++;
  if (i == MSL_BINDINGS) return false;
  c->last_buffer = i;
  uintptr_t p = (uintptr_t)c->args.buffer[i];
  if (Cell *shadow = c->launch->shadow[i]) check_cells(c, shadow, p, at, bytes, DEVICE_MEMORY, writes, Target{nullptr, i, (long)(at - p)}, pc);
  return true;
}

// Finds the loaded object that the kernel is in.
static int find_object(struct dl_phdr_info *object, size_t, void *context) {
  Context *c = (Context *)context;
  uintptr_t first = ~(uintptr_t)0, last = 0, kernel = (uintptr_t)c->launch->kernel;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const auto &part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    if (begin < first) first = begin;
    if (begin + part.p_memsz > last) last = begin + part.p_memsz;
  }
  if (kernel < first || kernel >= last) return 0;
  c->object_first = first, c->object_last = last;
  return 1;
}

// Memory that a kernel may touch though it is neither a buffer nor threadgroup memory: its thread's stack,
// its identity and bindings, and constants in its own object.
static bool private_memory(Context *c, uintptr_t at) {
  if (at - (uintptr_t)c->stack_base < MAX_THREADS * stack_stride()) return true;
  if (at - (uintptr_t)c->fiber < MAX_THREADS * sizeof(Fiber)) return true;
  if (at - (uintptr_t)&c->args < sizeof c->args) return true;
  if (at - (uintptr_t)c->launch->constants < sizeof(msl_constants)) return true;
  if (!c->object_last) dl_iterate_phdr(find_object, c);
  return at - c->object_first < c->object_last - c->object_first;
}

// Where the headers of kernels note the products of matrices.
static bool taking_down(Context *c, uintptr_t at) {
  return at - (uintptr_t)c->products < MAX_SIMDGROUPS * MSL_PRODUCTS * sizeof(msl_product) || at - (uintptr_t)c->pending < sizeof c->pending ||
         at - (uintptr_t)&msl_now < sizeof msl_now;
}

static void on_access(void *p, size_t bytes, bool writes, uintptr_t pc) {
  Context *c = here;
  if (!c || c->failed || c->collective) return;
  uintptr_t at = (uintptr_t)p;
  if (at - (uintptr_t)c->stack_base < MAX_THREADS * stack_stride() || taking_down(c, at)) return;
  if (at - (uintptr_t)c->array_base < ARRAYS * array_stride()) {
    check_array(c, at, bytes, writes, pc);
    return;
  }
  if (private_memory(c, at) || check_buffer(c, at, bytes, writes, pc)) return;
  char thread_name[96], what[160];
  describe_address(c, at, what, sizeof what);
  fail(c, pc, "out of bounds: %s %s %zu bytes at %s", who(c, thread_name, sizeof thread_name), writes ? "writes" : "reads", bytes, what);
  abandon(c);
}

static void prepare_race(Context *c) {
  if (!c->array_shadow) {
    void *p = mmap(nullptr, ARRAYS * array_stride() / CELL_SPAN * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    c->array_shadow = p == MAP_FAILED ? nullptr : (Cell *)p;
  }
  c->epoch[0]++, c->epoch[1]++; // the memory of the group before is no longer this group's
}

#define HERE (uintptr_t)__builtin_return_address(0) - 1
#define MSL_HOOK extern "C" __attribute__((visibility("default"))) void
#define MSL_HOOKS(n)                                                        \
  MSL_HOOK __tsan_read##n(void *p) { on_access(p, n, false, HERE); }            \
  MSL_HOOK __tsan_write##n(void *p) { on_access(p, n, true, HERE); }            \
  MSL_HOOK __tsan_unaligned_read##n(void *p) { on_access(p, n, false, HERE); }  \
  MSL_HOOK __tsan_unaligned_write##n(void *p) { on_access(p, n, true, HERE); }  \
  MSL_HOOK __tsan_read_write##n(void *p) {                                  \
    on_access(p, n, false, HERE);                                           \
    on_access(p, n, true, HERE);                                            \
  }                                                                         \
  MSL_HOOK __tsan_unaligned_read_write##n(void *p) {                        \
    on_access(p, n, false, HERE);                                           \
    on_access(p, n, true, HERE);                                            \
  }
MSL_HOOKS(1) MSL_HOOKS(2) MSL_HOOKS(4) MSL_HOOKS(8) MSL_HOOKS(16)
MSL_HOOK __tsan_init(void) {}
MSL_HOOK __tsan_vptr_update(void **, void *) {}
MSL_HOOK __tsan_vptr_read(void **) {}
extern "C" __attribute__((visibility("default"))) void *__tsan_memcpy(void *d, const void *s, unsigned long n) {
  on_access((void *)s, n, false, HERE);
  on_access(d, n, true, HERE);
  return memcpy(d, s, n);
}
extern "C" __attribute__((visibility("default"))) void *__tsan_memmove(void *d, const void *s, unsigned long n) {
  on_access((void *)s, n, false, HERE);
  on_access(d, n, true, HERE);
  return memmove(d, s, n);
}
extern "C" __attribute__((visibility("default"))) void *__tsan_memset(void *d, int v, unsigned long n) {
  on_access(d, n, true, HERE);
  return memset(d, v, n);
}
