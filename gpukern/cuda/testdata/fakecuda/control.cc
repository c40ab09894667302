/* What tests say to the driver and ask of it, and the management library. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fake.h"

extern "C" uint32_t gk_stopped;

#define CONTROL extern "C" __attribute__((visibility("default")))

/* fake_set changes the machine: before a device is opened. */
CONTROL void fake_set(const char *what, long v)
{
	std::lock_guard<std::mutex> lock(drv.m);
	struct machine &m = drv.machine;
	std::string w = what;
	if (w == "devices")
		m.devices = v;
	else if (w == "version")
		m.version = v;
	else if (w == "capability")
		m.major = v / 10, m.minor = v % 10;
	else if (w == "sms")
		m.sms = v;
	else if (w == "memory")
		m.memory = v;
	else if (w == "stall")
		m.stall_ms = v;
	else
		drv.faults += "fake_set: unknown " + w + "\n";
}

/* fake_fail has the n-th call of a function from now on return code; of any function if name is empty. */
CONTROL void fake_fail(const char *name, long n, int code)
{
	std::lock_guard<std::mutex> lock(drv.m);
	drv.fail.name = name;
	drv.fail.countdown = n;
	drv.fail.code = code;
}

/* fake_lose loses the device: kernels stop where they are, and every call returns code until the context
 * has ended. It returns when no kernel touches memory any more, as a driver reports an error that ended a
 * context after the context's kernels: a program may unmap host memory then. */
CONTROL void fake_lose(int code)
{
	drv.lost = code;
	__atomic_store_n(&gk_stopped, 1, __ATOMIC_SEQ_CST);
	settle();
}

CONTROL long fake_calls(const char *name)
{
	std::lock_guard<std::mutex> lock(drv.m);
	return drv.calls[name];
}

/* fake_faults writes what was done that must not be, and what is left over; then it forgets. */
CONTROL void fake_faults(char *to, size_t n)
{
	std::string left = left_over();
	std::lock_guard<std::mutex> lock(drv.m);
	snprintf(to, n, "%s%s", drv.faults.c_str(), left.empty() ? "" : ("left over: " + left).c_str());
	drv.faults.clear();
	drv.fail.countdown = 0;
}

/* The management library: 100 W, always. */

CONTROL int nvmlInit_v2(void) { return 0; }

CONTROL int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **to)
{
	*to = (void *)0x1234;
	return strcmp(bus, "0000:17:00.0") == 0 ? 0 : 6 /* NVML_ERROR_NOT_FOUND */;
}

CONTROL int nvmlDeviceGetPowerUsage(void *dev, unsigned *mw)
{
	*mw = 100000;
	return dev == (void *)0x1234 ? 0 : 2;
}

CONTROL int nvmlDeviceGetTotalEnergyConsumption(void *dev, unsigned long long *mj)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	*mj = (unsigned long long)t.tv_sec * 100000 + t.tv_nsec / 10000;
	return dev == (void *)0x1234 ? 0 : 2;
}
