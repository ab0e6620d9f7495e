/* A libnvidia-ml.so.1 with one device whose behaviour THUNDERFX_NVML_STUB names (see test_nvml_stub.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TIMEOUT = 10,
       GPU_IS_LOST = 15, VERSION_MISMATCH = 18 };
static const unsigned long long MIB = 1ull << 20;

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned int gpu, memory; } utilization;

static char device;  /* its address is the handle */
static int queries;  /* memory queries answered so far */

static int is(const char *behaviour) {
  const char *asked = getenv("THUNDERFX_NVML_STUB");
  return asked && strcmp(asked, behaviour) == 0;
}

static int lost(void) { return is("lost") && queries >= 3; }

int nvmlInitWithFlags(unsigned int flags) {
  (void)flags;
  if (is("no permission")) return NO_PERMISSION;
  if (is("mismatch")) return VERSION_MISMATCH;
  return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
  const char *log = getenv("THUNDERFX_NVML_STUB_LOG");
  FILE *file = log ? fopen(log, "a") : NULL;
  if (file) { fputs("shutdown\n", file); fclose(file); }
  return lost() ? GPU_IS_LOST : SUCCESS;
}

const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }

int nvmlSystemGetDriverVersion(char *text, unsigned int length) { snprintf(text, length, "999.42"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = is("two devices") ? 2 : 1; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
  if (index) return INVALID_ARGUMENT;
  *handle = &device;
  return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  if (strcmp(uuid, is("mig") ? "MIG-1234" : "GPU-1234")) return NOT_FOUND;
  *handle = &device;
  return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned int length) {
  (void)handle;
  snprintf(text, length, "Stub GPU");
  return SUCCESS;
}

/* 100, 300, 200, 200, ... MiB, so that the peak is neither the first nor the last. */
static unsigned long long next_used(void) {
  queries++;
  return (queries == 1 ? 100 : queries == 2 ? 300 : 200) * MIB;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *info) {
  if (lost()) return GPU_IS_LOST;
  if (is("no memory") || is("memory v1")) return NOT_SUPPORTED;
  if (handle != &device || info->version != 0x02000028) return INVALID_ARGUMENT;
  info->total = 1000 * MIB, info->reserved = 50 * MIB, info->used = next_used();
  info->free = info->total - info->reserved - info->used;
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *info) {
  if (lost()) return GPU_IS_LOST;
  if (is("no memory")) return NOT_SUPPORTED;
  if (handle != &device) return INVALID_ARGUMENT;
  info->total = 1000 * MIB, info->used = next_used() + 50 * MIB;
  info->free = info->total - info->used;
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization *rates) {
  (void)handle;
  static int calls;
  if (lost()) return GPU_IS_LOST;
  if (is("mig")) return NOT_SUPPORTED;
  if (is("timeout") && calls++ == 0) return TIMEOUT;
  rates->gpu = 50, rates->memory = 10;
  return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts) {
  (void)handle;
  if (lost()) return GPU_IS_LOST;
  *milliwatts = 123500;
  return is("unknown power") ? 77 : SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius) {
  (void)handle;
  if (lost()) return GPU_IS_LOST;
  *celsius = 61;
  return sensor == 0 ? SUCCESS : INVALID_ARGUMENT;
}
