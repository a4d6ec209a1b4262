// Fibers: switching stacks, choosing the next thread to run, starting and ending threads.
#pragma once
#include "runtime.h"

// Saves the callee's registers and the stack pointer, and goes on where the other fiber has done the same. On
// x86-64 it leaves by a jump: a return would be predicted to go back to the caller, and never does.
extern "C" void msl_switch(void **save, void *to);
#if defined __x86_64__
__asm__(".text\n.hidden msl_switch\n.globl msl_switch\n.type msl_switch,@function\nmsl_switch:\n"
        " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n pop %rcx\n jmp *%rcx\n");
static void *new_stack_pointer(char *top, void (*entry)()) {
  void **p = (void **)top;
  *--p = nullptr;
  *--p = (void *)entry;
  for (int i = 0; i < 6; i++) *--p = nullptr;
  return p;
}
#elif defined __aarch64__
__asm__(".text\n.hidden msl_switch\n.globl msl_switch\n.type msl_switch,@function\nmsl_switch:\n"
        " sub sp,sp,#160\n stp x19,x20,[sp]\n stp x21,x22,[sp,#16]\n stp x23,x24,[sp,#32]\n stp x25,x26,[sp,#48]\n"
        " stp x27,x28,[sp,#64]\n stp x29,x30,[sp,#80]\n stp d8,d9,[sp,#96]\n stp d10,d11,[sp,#112]\n"
        " stp d12,d13,[sp,#128]\n stp d14,d15,[sp,#144]\n"
        " mov x9,sp\n str x9,[x0]\n mov sp,x1\n"
        " ldp x19,x20,[sp]\n ldp x21,x22,[sp,#16]\n ldp x23,x24,[sp,#32]\n ldp x25,x26,[sp,#48]\n"
        " ldp x27,x28,[sp,#64]\n ldp x29,x30,[sp,#80]\n ldp d8,d9,[sp,#96]\n ldp d10,d11,[sp,#112]\n"
        " ldp d12,d13,[sp,#128]\n ldp d14,d15,[sp,#144]\n add sp,sp,#160\n ret\n");
static void *new_stack_pointer(char *top, void (*entry)()) {
  void **p = (void **)top - 20;
  memset(p, 0, 160);
  p[11] = (void *)entry;
  return p;
}
#else
#error "fibers need x86-64 or aarch64"
#endif

static size_t stack_stride() { return STACK_BYTES + PAGE_BYTES; }

// Stacks are made as they are needed: each guard page costs a mapping, and a process has about 65,000.
static char *take_stack(Context *c) {
  if (c->free_stacks > 0) return c->free_stack[--c->free_stacks];
  char *guard = c->stack_base + (size_t)c->stacks++ * stack_stride();
  mprotect(guard, PAGE_BYTES, PROT_NONE);
  return guard + PAGE_BYTES;
}

// Tops of stacks differ in their page offset, or they would all fall into the same cache sets.
static char *stack_top(Context *c, char *stack) {
  size_t number = (size_t)(stack - c->stack_base) / stack_stride();
  return stack + STACK_BYTES - 64 - (number * 832 & 0x3fc0);
}

static uint64_t next_random(Context *c) {
  c->random ^= c->random << 13;
  c->random ^= c->random >> 7;
  c->random ^= c->random << 17;
  return c->random;
}

// Lanes that may run, and a lane that may no longer.
static void make_ready(Context *c, Simdgroup &s, uint32_t lanes) {
  s.ready |= lanes;
  if (s.ready) c->ready |= 1u << (&s - c->simd);
}
static void make_waiting(Context *c, Simdgroup &s, uint32_t lane) {
  s.ready &= ~lane;
  if (!s.ready) c->ready &= ~(1u << (&s - c->simd));
}

// The first bit that is set at place or after it, or else from the lowest on. One must be set.
static int next_bit(uint32_t bits, int place) {
  uint32_t turned = bits >> place | bits << (-place & 31);
  return (__builtin_ctz(turned) + place) & 31;
}

// The next ready thread in the schedule's order, or -1.
static int pick(Context *c) {
  if (!c->ready) return -1;
  if (c->launch->seed == SEED_FORWARD) {
    int first = c->current >> 5, s = next_bit(c->ready, first);
    return s * LANES + next_bit(c->simd[s].ready, s == first ? (c->current + 1) & 31 : 0);
  }
  if (c->launch->seed == SEED_REVERSE) {
    int s = 31 - __builtin_clz(c->ready);
    return s * LANES + 31 - __builtin_clz(c->simd[s].ready);
  }
  uint64_t random = next_random(c); // two numbers: of 32 bits, and of another five
  int s = next_bit(c->ready, (int)((random & 0xffffffff) * (uint64_t)c->simdgroups >> 32));
  return s * LANES + next_bit(c->simd[s].ready, (int)(random >> 59));
}

static void fiber_main();

static void make_current(Context *c, int i) {
  c->current = i;
  msl_now.lane = i & 31;
  msl_now.pending = &c->pending[i];
}

// Switches to fiber i and saves the caller in *save.
static void enter(Context *c, int i, void **save) {
  if (!c->stack_pointer[i]) {
    char *stack = c->fiber[i].stack = take_stack(c);
    c->stack_pointer[i] = new_stack_pointer(stack_top(c, stack), fiber_main);
  }
  make_current(c, i);
  c->switches++;
  msl_switch(save, c->stack_pointer[i]);
}

// Gives up the processor until the running thread is ready again. After an error nobody comes back.
static void park(Context *c) {
  int me = c->current, next = c->failed ? -1 : pick(c);
  if (next == me) return;
  if (next < 0) msl_switch(&c->stack_pointer[me], c->scheduler);
  else enter(c, next, &c->stack_pointer[me]);
}

// Leaves the running thread for good, after an error in it.
[[noreturn]] static void abandon(Context *c) {
  void *unused;
  msl_switch(&unused, c->scheduler);
  abort();
}

static void thread_ended(Context *c);

// The life of a fiber's stack: it runs one thread to its end and then, where one is left that has not
// begun, the next on the same stack.
static void fiber_main() {
  Context *c = here;
  for (;;) {
    int me = c->current;
    c->launch->kernel(&c->args, &c->fiber[me].id);
    thread_ended(c);
    Fiber &mine = c->fiber[me];
    char *stack = mine.stack;
    mine.stack = nullptr;
    int next = c->failed ? -1 : pick(c);
    if (next >= 0 && !c->stack_pointer[next]) {
      make_current(c, next);
      c->fiber[next].stack = stack;
      c->stack_pointer[next] = (void *)1; // begun: replaced at its first switch
      continue;
    }
    c->free_stack[c->free_stacks++] = stack;
    void *unused;
    if (next < 0) {
      msl_switch(&unused, c->scheduler);
    } else {
      make_current(c, next);
      c->switches++;
      msl_switch(&unused, c->stack_pointer[next]);
    }
    abort();
  }
}
