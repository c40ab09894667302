/* A CUDA driver for tests where no GPU is: the functions that gpukern/cuda calls, over the memory and the
 * threads of this process. It runs the kernels as they were compiled for the CPU (../../host.cc), each
 * stream on a thread of its own, so that a persistent kernel really runs beside the host.
 *
 * It is stricter than the driver: what the package must not do (a copy from memory that is not
 * registered, a call that waits for a kernel that does not end, something left over when the context
 * ends) is noted as a fault, which fake_faults tells the test. */
#ifndef MILLRACE_FAKECUDA_H
#define MILLRACE_FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../../host_run.h"

typedef int result; /* CUresult */
typedef uint64_t devptr;

enum {
	OK = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_PTX = 218,
	UNSUPPORTED_PTX = 222,
	INVALID_HANDLE = 400,
	NOT_FOUND = 500,
	NOT_READY = 600,
	ILLEGAL_ADDRESS = 700,
	ALREADY_REGISTERED = 712,
	NOT_REGISTERED = 713,
	LAUNCH_FAILED = 719,
};

/* What a test can set, see fake_set. */
struct machine {
	int devices = 1, version = 12040, major = 8, minor = 0, sms = 4;
	size_t memory = (size_t)1 << 30;
	int stall_ms = 3000; /* how long a call waits for kernels until that is a fault */
};

struct event {
	std::mutex m;
	std::condition_variable changed;
	uint64_t recorded = 0, happened = 0; /* counted */
	uint64_t ns = 0;                     /* when it happened last */
};

typedef std::function<void()> work;

struct stream {
	std::mutex m;
	std::condition_variable changed;
	std::deque<work> todo;
	bool busy = false, quit = false;
	pthread_t thread;
};

struct kernel {
	std::string name;
	gk_kernel run;
	size_t params;
	unsigned threads;
	unsigned dynamic = 48 << 10;
};

struct module {
	std::string ptx;
	std::map<std::string, std::unique_ptr<kernel>> kernels;
	std::map<std::string, std::pair<devptr, size_t>> globals;
};

struct allocation {
	uint8_t *map;
	size_t mapped, size;
};

/* All of the driver. m guards everything but what has a lock of its own. */
struct driver {
	std::mutex m;
	struct machine machine;
	bool initialized = false;
	int retained = 0;
	std::atomic<int> lost{0};
	std::map<devptr, allocation> memory;
	size_t used = 0;
	std::map<uintptr_t, size_t> registered;
	std::map<uintptr_t, std::shared_ptr<stream>> streams;
	std::map<uintptr_t, std::shared_ptr<event>> events;
	std::map<uintptr_t, std::unique_ptr<module>> modules;
	uintptr_t next = 0x1000; /* handle */
	std::map<std::string, long> calls;
	struct {
		std::string name;
		long countdown = 0;
		int code = 0;
	} fail;
	std::string faults;
	int energy_calls = 0;
};

extern struct driver drv;
extern thread_local uintptr_t current; /* the context of this thread */

enum : uintptr_t { THE_CONTEXT = 0xc0de };

/* enter begins a call that needs the driver; enter_context one that needs a context. They return what the
 * call is to return at once, or OK. */
result enter(const char *name);
result enter_context(const char *name);

/* fault notes that something was done that must not be. The caller holds no lock of drv. */
void fault(const std::string &what);

/* put runs w when what is on the stream before has ended. */
result put(uintptr_t handle, work w);

/* idle waits until no stream has work; false when that takes too long. */
bool idle(void);

/* settle is idle without a limit: for a device whose kernels have been stopped. */
void settle(void);

/* end_streams ends the threads of all streams. */
void end_streams(void);

/* covered reports whether n bytes at a lie in device memory or in registered memory. */
bool on_device(devptr a, size_t n);
bool is_registered(uintptr_t a, size_t n);

/* release_all forgets what a context that ends still had; it returns what that was. */
std::string left_over(void);
void release_all(void);

#define BEGIN(name)                                                                                   \
	if (result r = enter(#name))                                                                  \
	return r
#define BEGIN_CONTEXT(name)                                                                           \
	if (result r = enter_context(#name))                                                          \
	return r
#define EXPORT extern "C" __attribute__((visibility("default"))) result

#endif
