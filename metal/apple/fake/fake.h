// A fake Objective-C runtime with as much of Foundation and Metal as the binding uses, for its tests on Linux.
// Methods are C functions with the true prototypes, reached by an objc_msgSend that jumps to them as the real
// one does. What the real one would only punish later ends the process at once, with a line that says why.
#pragma once
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t NSUInteger;
typedef int64_t NSInteger;
typedef struct { NSUInteger width, height, depth; } MTLSize;
typedef struct object *id;
typedef const char *SEL;

enum { BINDINGS = 31, CONSTANTS = 64 };

// One dispatch or event of a command buffer.
struct step {
  char kind; // 'd'ispatch, 'w'ait, 's'ignal
  id pipeline, event, encoder;
  NSUInteger value;
  id buffer[BINDINGS];
  NSUInteger offset[BINDINGS];
  unsigned char *block[BINDINGS]; // owned copies
  NSUInteger block_bytes[BINDINGS], threadgroup_bytes[BINDINGS];
  MTLSize groups, threads;
};

// Any object. Fields that a class does not use stay zero.
struct object {
  const char *class; // class objects begin with +
  atomic_long retains;
  char *text;          // NSString; the name of functions and pipelines; an error's text
  char *label;
  id parent;           // a command buffer's queue, an encoder's command buffer, an error's user info
  id *items;           // of an NSArray, owned
  NSUInteger count;    // of items; steps; an error's code; an encoder's state
  NSUInteger value;    // an event's; an option's
  NSUInteger bytes;    // a buffer's length
  void *memory;        // a buffer's
  bool wrapped;
  struct step *steps, now; // a command buffer's; an encoder's bindings
  id encoder;          // the open one of a command buffer
  bool ended, committed;
  id error;
  double start, end;
  uint32_t constant[CONSTANTS];
  NSUInteger constant_type[CONSTANTS];
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t worker;
  id work[2048];       // of a queue
  unsigned first, last;
};

void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
id make(const char *class);
id keep(id o);
void drop(id o);
id autoreleased(id o);
id string(const char *s);
void expect_class(id o, const char *class, const char *where);
void *find_method(id o, SEL s);
void run_kernel(struct step *s);
// Ends what an object owns, when it goes.
void dispose(id o);

struct method {
  const char *class, *selector;
  void *code;
};
extern const struct method metal_methods[];
