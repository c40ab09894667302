/* Devices, contexts and names of results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

extern "C" uint32_t gk_stopped;

struct driver drv;
thread_local uintptr_t current;

static const char bus[] = "0000:17:00.0";

extern "C" void fake_lose(int code);

/* Results from here on are errors that end the context (CUDA_ERROR_ILLEGAL_ADDRESS and the like). */
static const result first_sticky = 700;

result enter(const char *name)
{
	result fails = OK;
	{
		std::lock_guard<std::mutex> lock(drv.m);
		drv.calls[name]++;
		if (drv.fail.countdown > 0 && (drv.fail.name.empty() || drv.fail.name == name) && --drv.fail.countdown == 0)
			fails = drv.fail.code;
		else if (!drv.initialized)
			fails = NOT_INITIALIZED;
	}
	if (fails >= first_sticky && fails < 720)
		fake_lose(fails);
	return fails;
}

result enter_context(const char *name)
{
	if (result r = enter(name))
		return r;
	if (current != THE_CONTEXT || drv.retained == 0)
		return INVALID_CONTEXT;
	return drv.lost;
}

void fault(const std::string &what)
{
	std::lock_guard<std::mutex> lock(drv.m);
	drv.faults += what + "\n";
}

EXPORT cuInit(unsigned flags)
{
	drv.initialized = true;
	if (result r = enter("cuInit")) {
		drv.initialized = false;
		return r;
	}
	const char *mode = getenv("CUDA_MODULE_LOADING");
	if (mode == nullptr || strcmp(mode, "EAGER") != 0)
		fault("cuInit: CUDA_MODULE_LOADING is not EAGER");
	const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	if (connections == nullptr || strcmp(connections, "32") != 0)
		fault("cuInit: CUDA_DEVICE_MAX_CONNECTIONS is not 32");
	if (drv.machine.devices == 0) {
		drv.initialized = false;
		return NO_DEVICE;
	}
	return flags == 0 ? OK : INVALID_VALUE;
}

EXPORT cuDriverGetVersion(int *v)
{
	BEGIN(cuDriverGetVersion);
	*v = drv.machine.version;
	return OK;
}

struct name {
	int code;
	const char *name, *text;
};

static const struct name names[] = {
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	{UNSUPPORTED_PTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
	{ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
	{LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

EXPORT cuGetErrorName(int code, const char **to)
{
	for (const struct name &n : names)
		if (n.code == code) {
			*to = n.name;
			return OK;
		}
	*to = nullptr;
	return INVALID_VALUE;
}

EXPORT cuGetErrorString(int code, const char **to)
{
	for (const struct name &n : names)
		if (n.code == code) {
			*to = n.text;
			return OK;
		}
	*to = nullptr;
	return INVALID_VALUE;
}

EXPORT cuDeviceGetCount(int *n)
{
	BEGIN(cuDeviceGetCount);
	*n = drv.machine.devices;
	return OK;
}

EXPORT cuDeviceGet(int *dev, int ordinal)
{
	BEGIN(cuDeviceGet);
	if (ordinal < 0 || ordinal >= drv.machine.devices)
		return INVALID_DEVICE;
	*dev = ordinal;
	return OK;
}

EXPORT cuDeviceGetName(char *to, int n, int dev)
{
	BEGIN(cuDeviceGetName);
	snprintf(to, n, "Fake GPU %d", dev);
	return OK;
}

EXPORT cuDeviceGetPCIBusId(char *to, int n, int dev)
{
	BEGIN(cuDeviceGetPCIBusId);
	(void)dev;
	snprintf(to, n, "%s", bus);
	return OK;
}

EXPORT cuDeviceTotalMem_v2(size_t *n, int dev)
{
	BEGIN(cuDeviceTotalMem_v2);
	(void)dev;
	*n = drv.machine.memory;
	return OK;
}

EXPORT cuDeviceGetAttribute(int *v, int attribute, int dev)
{
	BEGIN(cuDeviceGetAttribute);
	(void)dev;
	switch (attribute) {
	case 16: *v = drv.machine.sms; return OK;
	case 38: *v = 4 << 20; return OK;
	case 75: *v = drv.machine.major; return OK;
	case 76: *v = drv.machine.minor; return OK;
	case 81: *v = 228 << 10; return OK;
	case 97: *v = 227 << 10; return OK;
	}
	fault("cuDeviceGetAttribute: unknown attribute " + std::to_string(attribute));
	return INVALID_VALUE;
}

/* Contexts: each device has the one, the tests use one device at a time. */

EXPORT cuDevicePrimaryCtxRetain(uintptr_t *ctx, int dev)
{
	BEGIN(cuDevicePrimaryCtxRetain);
	(void)dev;
	std::lock_guard<std::mutex> lock(drv.m);
	drv.retained++;
	*ctx = THE_CONTEXT;
	return OK;
}

EXPORT cuDevicePrimaryCtxRelease_v2(int dev)
{
	BEGIN(cuDevicePrimaryCtxRelease_v2);
	(void)dev;
	bool last;
	{
		std::lock_guard<std::mutex> lock(drv.m);
		if (drv.retained == 0)
			return INVALID_CONTEXT;
		last = --drv.retained == 0;
	}
	if (!last)
		return OK;
	std::string left = left_over();
	if (drv.lost == 0 && !left.empty())
		fault("the context ended with " + left);
	if (drv.lost == 0 && !idle())
		fault("the context ended under a kernel");
	__atomic_store_n(&gk_stopped, 1, __ATOMIC_SEQ_CST);
	end_streams();
	release_all();
	__atomic_store_n(&gk_stopped, 0, __ATOMIC_SEQ_CST);
	drv.lost = 0;
	return OK;
}

EXPORT cuCtxSetCurrent(uintptr_t ctx)
{
	BEGIN(cuCtxSetCurrent);
	if (ctx != 0 && ctx != THE_CONTEXT)
		return INVALID_CONTEXT;
	current = ctx;
	return OK;
}

EXPORT cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	BEGIN_CONTEXT(cuCtxGetStreamPriorityRange);
	*least = 0;
	*greatest = -5;
	return OK;
}
