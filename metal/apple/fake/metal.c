// Metal: a device whose queues are threads, and whose kernels are those of kernels.c.
#include "fake.h"
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static id error(const char *domain, int code, const char *text) {
  id e = make("NSError");
  e->text = strdup(text), e->label = strdup(domain), e->count = code;
  return autoreleased(e);
}

// ---- device -------------------------------------------------------------------------
static struct object key = {.class = "NSString", .retains = 1, .text = "encoders"};
id MTLCommandBufferEncoderInfoErrorKey = &key;
id MTLCreateSystemDefaultDevice(void) { return make("MTLDevice"); }
static id device_name(id d, SEL s) { return string("fake"); }
static NSUInteger max_buffer(id d, SEL s) { return 1ull << 33; }
static NSUInteger working_set(id d, SEL s) { return 1ull << 34; }
static NSUInteger threadgroup_memory(id d, SEL s) { return 32768; }
static bool unified(id d, SEL s) { return true; }

static id new_buffer(id d, SEL s, NSUInteger bytes, NSUInteger options) {
  if (!bytes || bytes > max_buffer(d, s)) return NULL;
  if (options) die("newBufferWithLength: options %lu", (unsigned long)options);
  id b = make("MTLBuffer");
  b->bytes = bytes;
  b->memory = aligned_alloc(16384, (bytes + 16383) / 16384 * 16384);
  memset(b->memory, 0, bytes);
  return b;
}
static id new_wrapped(id d, SEL s, void *p, NSUInteger bytes, NSUInteger options, void *deallocator) {
  if ((uintptr_t)p % 4096 || bytes % 4096 || options || deallocator) die("newBufferWithBytesNoCopy: %p of %lu bytes", p, (unsigned long)bytes);
  id b = make("MTLBuffer");
  b->memory = p, b->bytes = bytes, b->wrapped = true;
  return b;
}
static void *contents(id b, SEL s) { return b->memory; }

// ---- residency sets -------------------------------------------------------------------
static id new_set(id d, SEL s, id descriptor, id *e) {
  expect_class(descriptor, "MTLResidencySetDescriptor", "newResidencySetWithDescriptor:");
  return make("MTLResidencySet");
}
static void set_add(id set, SEL s, id b) {
  expect_class(b, "MTLBuffer", "addAllocation:");
  if (b->wrapped) die("addAllocation: of wrapped memory");
  keep(b);
  pthread_mutex_lock(&set->lock);
  set->items = realloc(set->items, (set->count + 1) * sizeof(id));
  set->items[set->count++] = b;
  pthread_mutex_unlock(&set->lock);
}
static void set_remove(id set, SEL s, id b) {
  pthread_mutex_lock(&set->lock);
  NSUInteger i = 0;
  while (i < set->count && set->items[i] != b) i++;
  if (i == set->count) die("removeAllocation: of a buffer that is not in the set");
  set->items[i] = set->items[--set->count];
  pthread_mutex_unlock(&set->lock);
  drop(b);
}
static void nothing(id o, SEL s) {}

// ---- libraries ------------------------------------------------------------------------
static void set_language(id o, SEL s, NSUInteger v) {
  if (v != 0x30001) die("setLanguageVersion: 0x%lx", (unsigned long)v);
  o->value = v;
}
static void set_fast(id o, SEL s, bool v) { o->count = v; }

static void add_name(id array, const char *name, size_t length) {
  array->items = realloc(array->items, (array->count + 1) * sizeof(id));
  id n = make("NSString");
  n->text = strndup(name, length);
  array->items[array->count++] = n;
}
static id new_library(id d, SEL s, id source, id options, id *e) {
  expect_class(source, "NSString", "newLibraryWithSource:");
  expect_class(options, "MTLCompileOptions", "newLibraryWithSource:");
  if (!options->value) die("newLibraryWithSource: no language version");
  const char *bad = strstr(source->text, "nothing;");
  if (bad) {
    int line = 1;
    for (const char *p = source->text; p < bad; p++) line += *p == '\n';
    char text[200];
    snprintf(text, sizeof text, "program_source:%d:10: error: use of undeclared identifier 'nothing'", line);
    *e = error("MTLLibraryErrorDomain", 3, text);
    return NULL;
  }
  *e = error("MTLLibraryErrorDomain", 4, "a warning, and no reason to fail");
  id l = make("MTLLibrary"), names = make("NSArray");
  for (const char *p = source->text; (p = strstr(p, "kernel void ")); p += 12) {
    const char *line = p;
    while (line > source->text && line[-1] != '\n') line--;
    if (strncmp(line, "template", 8)) add_name(names, p + 12, strcspn(p + 12, "("));
  }
  for (const char *p = source->text; (p = strstr(p, "host_name(\"")); p += 11) add_name(names, p + 11, strcspn(p + 11, "\""));
  l->parent = names;
  return l;
}
static id function_names(id l, SEL s) { return autoreleased(keep(l->parent)); }
static id new_function(id l, SEL s, id name) {
  expect_class(name, "NSString", "newFunctionWithName:");
  for (NSUInteger i = 0; i < l->parent->count; i++)
    if (!strcmp(l->parent->items[i]->text, name->text)) {
      id f = make("MTLFunction");
      f->text = strdup(name->text);
      return f;
    }
  return NULL;
}
static void set_constant(id o, SEL s, const void *value, NSUInteger type, NSUInteger index) {
  if (index >= CONSTANTS) die("setConstantValue: index %lu", (unsigned long)index);
  if (type != 3 && type != 29 && type != 33 && type != 53) die("setConstantValue: type %lu", (unsigned long)type);
  o->constant_type[index] = type;
  o->constant[index] = type == 53 ? *(const unsigned char *)value : *(const uint32_t *)value;
}
static id new_function_constants(id l, SEL s, id name, id values, id *e) {
  expect_class(values, "MTLFunctionConstantValues", "newFunctionWithName:constantValues:");
  id f = new_function(l, s, name);
  if (!f) {
    *e = error("MTLLibraryErrorDomain", 5, "no such function");
    return NULL;
  }
  memcpy(f->constant, values->constant, sizeof f->constant);
  memcpy(f->constant_type, values->constant_type, sizeof f->constant_type);
  return f;
}
static id new_pipeline(id d, SEL s, id f, id *e) {
  expect_class(f, "MTLFunction", "newComputePipelineStateWithFunction:");
  if (!strcmp(f->text, "fake_unlinkable")) {
    *e = error("AGXMetal", 2, "the kernel needs more registers than there are");
    return NULL;
  }
  id p = make("MTLComputePipelineState");
  p->text = strdup(f->text);
  memcpy(p->constant, f->constant, sizeof p->constant);
  memcpy(p->constant_type, f->constant_type, sizeof p->constant_type);
  return p;
}
static NSUInteger max_threads(id p, SEL s) { return strcmp(p->text, "suite_count") ? 1024 : 64; }
static NSUInteger width(id p, SEL s) { return 32; }
static NSUInteger static_memory(id p, SEL s) { return strcmp(p->text, "suite_sum") ? 0 : 32; }

// ---- events ---------------------------------------------------------------------------
static id new_event(id d, SEL s) { return make("MTLSharedEvent"); }
static NSUInteger signaled(id e, SEL s) {
  pthread_mutex_lock(&e->lock);
  NSUInteger v = e->value;
  pthread_mutex_unlock(&e->lock);
  return v;
}
static void set_signaled(id e, SEL s, NSUInteger v) {
  pthread_mutex_lock(&e->lock);
  e->value = v;
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->lock);
}
static bool wait_signaled(id e, SEL s, NSUInteger v, NSUInteger milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += milliseconds / 1000, until.tv_nsec += milliseconds % 1000 * 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_mutex_lock(&e->lock);
  while (e->value < v && !pthread_cond_timedwait(&e->changed, &e->lock, &until)) {}
  bool reached = e->value >= v;
  pthread_mutex_unlock(&e->lock);
  return reached;
}

// ---- command buffers --------------------------------------------------------------------
static struct step *add_step(id c) {
  c->steps = realloc(c->steps, (c->count + 1) * sizeof *c->steps);
  struct step *x = &c->steps[c->count++];
  memset(x, 0, sizeof *x);
  return x;
}
static void expect_open(id c, const char *where) {
  if (c->committed) die("%s after commit", where);
  if (c->encoder) die("%s before endEncoding", where);
}
static void set_error_options(id o, SEL s, NSUInteger v) { o->value = v; }
static id command_buffer(id q, SEL s, id descriptor) {
  expect_class(descriptor, "MTLCommandBufferDescriptor", "commandBufferWithDescriptor:");
  if (descriptor->value != 1) die("commandBufferWithDescriptor: error options %lu", (unsigned long)descriptor->value);
  id c = make("MTLCommandBuffer");
  c->parent = q; // not retained: the queue waits for its work
  return autoreleased(c);
}
static void set_label(id o, SEL s, id name) {
  expect_class(name, "NSString", "setLabel:");
  free(o->label);
  o->label = strdup(name->text);
}
static id label(id o, SEL s) { return string(o->label ? o->label : ""); }
static NSUInteger error_state(id o, SEL s) { return o->value; }
static void encode_event(id c, id e, NSUInteger v, char kind) {
  expect_open(c, "an event");
  expect_class(e, "MTLSharedEvent", "an event");
  struct step *x = add_step(c);
  x->kind = kind, x->event = keep(e), x->value = v;
}
static void encode_wait(id c, SEL s, id e, NSUInteger v) { encode_event(c, e, v, 'w'); }
static void encode_signal(id c, SEL s, id e, NSUInteger v) { encode_event(c, e, v, 's'); }
static id encoder(id c, SEL s) {
  expect_open(c, "computeCommandEncoder");
  id e = make("MTLComputeCommandEncoder");
  e->parent = c; // not retained: the command buffer retains its encoders
  c->encoder = e;
  return autoreleased(e);
}
static void expect_encoding(id e, NSUInteger index) {
  if (e->ended) die("a message to an encoder after endEncoding");
  if (index >= BINDINGS) die("index %lu", (unsigned long)index);
}
static void set_pipeline(id e, SEL s, id p) {
  expect_encoding(e, 0);
  expect_class(p, "MTLComputePipelineState", "setComputePipelineState:");
  e->now.pipeline = p;
}
static void set_buffer(id e, SEL s, id b, NSUInteger offset, NSUInteger index) {
  expect_encoding(e, index);
  expect_class(b, "MTLBuffer", "setBuffer:");
  if (offset >= b->bytes) die("setBuffer: offset %lu of %lu", (unsigned long)offset, (unsigned long)b->bytes);
  e->now.buffer[index] = b, e->now.offset[index] = offset;
}
static void set_bytes(id e, SEL s, const void *p, NSUInteger bytes, NSUInteger index) {
  expect_encoding(e, index);
  if (!bytes || bytes > 4096) die("setBytes: %lu bytes", (unsigned long)bytes);
  free(e->now.block[index]);
  e->now.block[index] = memcpy(malloc(bytes), p, bytes);
  e->now.block_bytes[index] = bytes, e->now.buffer[index] = NULL;
}
static void set_threadgroup(id e, SEL s, NSUInteger bytes, NSUInteger index) {
  expect_encoding(e, index);
  if (bytes % 16 || bytes > 32768) die("setThreadgroupMemoryLength: %lu", (unsigned long)bytes);
  e->now.threadgroup_bytes[index] = bytes;
}
static void dispatch(id e, SEL s, MTLSize groups, MTLSize threads) {
  expect_encoding(e, 0);
  if (!e->now.pipeline) die("a dispatch without a pipeline");
  const NSUInteger size[6] = {groups.width, groups.height, groups.depth, threads.width, threads.height, threads.depth};
  for (int i = 0; i < 6; i++)
    if (!size[i] || size[i] > 1u << 20) die("a dispatch with dimension %d of %lu", i, (unsigned long)size[i]);
  if (threads.width * threads.height * threads.depth > max_threads(e->now.pipeline, s)) die("a dispatch with too many threads a group");
  struct step *x = add_step(e->parent);
  *x = e->now;
  x->kind = 'd', x->groups = groups, x->threads = threads, x->encoder = keep(e);
  keep(x->pipeline);
  for (int i = 0; i < BINDINGS; i++) {
    if (x->buffer[i]) keep(x->buffer[i]);
    if (x->block[i]) x->block[i] = memcpy(malloc(x->block_bytes[i]), x->block[i], x->block_bytes[i]);
  }
  memset(&groups, 0xff, sizeof groups), memset(&threads, 0xff, sizeof threads); // the callee owns its copies
  __asm__ volatile("" ::"r"(&groups), "r"(&threads) : "memory");
}
static void end_encoding(id e, SEL s) {
  expect_encoding(e, 0);
  e->ended = true;
  e->parent->encoder = NULL;
}

static void drop_steps(id c) {
  for (NSUInteger k = 0; k < c->count; k++) {
    struct step *x = &c->steps[k];
    drop(x->pipeline), drop(x->event), drop(x->encoder);
    for (int i = 0; i < BINDINGS; i++) drop(x->buffer[i]), free(x->block[i]);
  }
  free(c->steps);
  c->steps = NULL, c->count = 0;
}

// The error of a command buffer, which blames the encoder of a step.
static id failure(struct step *x) {
  id info = make("MTLCommandBufferEncoderInfo"), infos = make("NSArray"), user = make("NSDictionary"), e = make("NSError");
  info->label = strdup(x->encoder->label), info->value = 4;
  infos->items = malloc(sizeof(id)), infos->items[0] = info, infos->count = 1;
  user->items = malloc(sizeof(id)), user->items[0] = infos, user->count = 1;
  e->text = strdup("Caused GPU Address Fault Error"), e->label = strdup("MTLCommandBufferErrorDomain"), e->count = 3;
  e->parent = user;
  return e;
}

static void run_steps(id c) {
  c->start = now();
  for (NSUInteger k = 0; k < c->count && !c->error; k++) {
    struct step *x = &c->steps[k];
    if (x->kind == 's') set_signaled(x->event, NULL, x->value);
    if (x->kind == 'w') {
      pthread_mutex_lock(&x->event->lock);
      while (x->event->value < x->value) pthread_cond_wait(&x->event->changed, &x->event->lock);
      pthread_mutex_unlock(&x->event->lock);
    }
    if (x->kind != 'd') continue;
    if (strcmp(x->pipeline->text, "fake_fault")) run_kernel(x);
    else c->error = failure(x);
  }
  c->end = now();
}

static void *work(void *arg) {
  id q = arg;
  for (;;) {
    pthread_mutex_lock(&q->lock);
    while (q->first == q->last && !q->ended) pthread_cond_wait(&q->changed, &q->lock);
    if (q->first == q->last) {
      pthread_mutex_unlock(&q->lock);
      return NULL;
    }
    id c = q->work[q->first++ % (sizeof q->work / sizeof *q->work)];
    pthread_mutex_unlock(&q->lock);
    run_steps(c);
    drop_steps(c);
    pthread_mutex_lock(&c->lock);
    c->value = c->error ? 5 : 4;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    drop(c);
  }
}
static id new_queue(id d, SEL s, NSUInteger most) {
  if (!most || most > 2000) die("newCommandQueueWithMaxCommandBufferCount: %lu", (unsigned long)most);
  id q = make("MTLCommandQueue");
  pthread_create(&q->worker, NULL, work, q);
  return q;
}
static void add_set(id q, SEL s, id set) { expect_class(set, "MTLResidencySet", "addResidencySet:"); }
static void commit(id c, SEL s) {
  expect_open(c, "commit");
  c->committed = true, c->value = 2;
  id q = c->parent;
  pthread_mutex_lock(&q->lock);
  q->work[q->last++ % (sizeof q->work / sizeof *q->work)] = keep(c);
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
}
static void wait_completed(id c, SEL s) {
  if (!c->committed) die("waitUntilCompleted before commit");
  pthread_mutex_lock(&c->lock);
  while (c->value < 4) pthread_cond_wait(&c->changed, &c->lock);
  pthread_mutex_unlock(&c->lock);
}
static NSUInteger status(id c, SEL s) { return c->value; }
static id command_error(id c, SEL s) { return c->error; }
static double gpu_start(id c, SEL s) { return c->start; }
static double gpu_end(id c, SEL s) { return c->end; }

void dispose(id o) {
  bool owns_parent = strcmp(o->class, "MTLComputeCommandEncoder") && strcmp(o->class, "MTLCommandBuffer");
  if (!strcmp(o->class, "MTLComputeCommandEncoder") && !o->ended) die("an encoder goes before endEncoding");
  if (!strcmp(o->class, "MTLCommandQueue")) {
    pthread_mutex_lock(&o->lock);
    o->ended = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    if (pthread_equal(pthread_self(), o->worker)) die("a queue goes while it works");
    pthread_join(o->worker, NULL);
  }
  if (!strcmp(o->class, "MTLCommandBuffer")) drop_steps(o);
  for (NSUInteger i = 0; o->items && i < o->count; i++) drop(o->items[i]);
  for (int i = 0; i < BINDINGS; i++) free(o->now.block[i]);
  if (!o->wrapped) free(o->memory);
  if (owns_parent) drop(o->parent);
  drop(o->error);
  free(o->text), free(o->label), free(o->items);
}

const struct method metal_methods[] = {
    {"MTLDevice", "name", device_name}, {"MTLDevice", "maxBufferLength", max_buffer},
    {"MTLDevice", "recommendedMaxWorkingSetSize", working_set}, {"MTLDevice", "hasUnifiedMemory", unified},
    {"MTLDevice", "maxThreadgroupMemoryLength", threadgroup_memory}, {"MTLDevice", "newBufferWithLength:options:", new_buffer},
    {"MTLDevice", "newBufferWithBytesNoCopy:length:options:deallocator:", new_wrapped}, {"MTLBuffer", "contents", contents},
    {"MTLDevice", "newResidencySetWithDescriptor:error:", new_set}, {"MTLResidencySet", "addAllocation:", set_add},
    {"MTLResidencySet", "removeAllocation:", set_remove}, {"MTLResidencySet", "commit", nothing},
    {"MTLResidencySet", "requestResidency", nothing}, {"MTLResidencySet", "endResidency", nothing},
    {"MTLCompileOptions", "setLanguageVersion:", set_language}, {"MTLCompileOptions", "setFastMathEnabled:", set_fast},
    {"MTLDevice", "newLibraryWithSource:options:error:", new_library}, {"MTLLibrary", "functionNames", function_names},
    {"MTLLibrary", "newFunctionWithName:", new_function},
    {"MTLLibrary", "newFunctionWithName:constantValues:error:", new_function_constants},
    {"MTLFunctionConstantValues", "setConstantValue:type:atIndex:", set_constant},
    {"MTLDevice", "newComputePipelineStateWithFunction:error:", new_pipeline},
    {"MTLComputePipelineState", "maxTotalThreadsPerThreadgroup", max_threads},
    {"MTLComputePipelineState", "threadExecutionWidth", width},
    {"MTLComputePipelineState", "staticThreadgroupMemoryLength", static_memory}, {"MTLDevice", "newSharedEvent", new_event},
    {"MTLSharedEvent", "signaledValue", signaled}, {"MTLSharedEvent", "setSignaledValue:", set_signaled},
    {"MTLSharedEvent", "waitUntilSignaledValue:timeoutMS:", wait_signaled},
    {"MTLDevice", "newCommandQueueWithMaxCommandBufferCount:", new_queue}, {"MTLCommandQueue", "setLabel:", set_label},
    {"MTLCommandQueue", "addResidencySet:", add_set}, {"MTLCommandQueue", "commandBufferWithDescriptor:", command_buffer},
    {"MTLCommandBufferDescriptor", "setErrorOptions:", set_error_options}, {"MTLCommandBuffer", "setLabel:", set_label},
    {"MTLCommandBuffer", "computeCommandEncoder", encoder}, {"MTLCommandBuffer", "encodeWaitForEvent:value:", encode_wait},
    {"MTLCommandBuffer", "encodeSignalEvent:value:", encode_signal}, {"MTLCommandBuffer", "commit", commit},
    {"MTLCommandBuffer", "waitUntilCompleted", wait_completed}, {"MTLCommandBuffer", "status", status},
    {"MTLCommandBuffer", "error", command_error}, {"MTLCommandBuffer", "GPUStartTime", gpu_start},
    {"MTLCommandBuffer", "GPUEndTime", gpu_end}, {"MTLComputeCommandEncoder", "setLabel:", set_label},
    {"MTLComputeCommandEncoder", "setComputePipelineState:", set_pipeline}, {"MTLComputeCommandEncoder", "setBuffer:offset:atIndex:", set_buffer},
    {"MTLComputeCommandEncoder", "setBytes:length:atIndex:", set_bytes},
    {"MTLComputeCommandEncoder", "setThreadgroupMemoryLength:atIndex:", set_threadgroup},
    {"MTLComputeCommandEncoder", "dispatchThreadgroups:threadsPerThreadgroup:", dispatch},
    {"MTLComputeCommandEncoder", "endEncoding", end_encoding}, {"MTLCommandBufferEncoderInfo", "label", label},
    {"MTLCommandBufferEncoderInfo", "errorState", error_state}, {NULL, NULL, NULL}};
