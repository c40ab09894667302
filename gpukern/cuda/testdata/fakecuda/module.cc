/* Modules and launches. A module's PTX tells which kernels it has and what they take; their code is that
 * which was compiled for the CPU into this library, found by name. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "fake.h"

static void *find_code(const char *name)
{
	Dl_info self;
	if (dladdr(&drv, &self) == 0)
		return nullptr;
	void *lib = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	return lib == nullptr ? nullptr : dlsym(lib, name);
}

static result complain(int n, const int *options, void **values, const char *what)
{
	for (int i = 0; i < n; i++)
		if (options[i] == 5) /* CU_JIT_ERROR_LOG_BUFFER */
			snprintf((char *)values[i], 100, "ptxas fatal   : %s", what);
	return INVALID_PTX;
}

/* The driver knows PTX 7.x since CUDA 11.x, 8.x since 12.x, and so on: close enough for tests. */
static bool too_new(const std::string &ptx)
{
	int major = 0, minor = 0;
	size_t at = ptx.find(".version ");
	if (at != std::string::npos)
		sscanf(ptx.c_str() + at, ".version %d.%d", &major, &minor);
	return (major + 4) * 1000 + minor * 10 > drv.machine.version;
}

/* declare reads the head of a kernel and finds its code. */
static bool declare(const char *ptx, kernel *k)
{
	char name[128];
	if (sscanf(ptx, ".visible .entry %127[a-zA-Z0-9_]( .param .align %*d .b8 %*[a-zA-Z0-9_][%zu] ) .maxntid %u", name,
		   &k->params, &k->threads) != 3)
		return false;
	k->name = name;
	k->run = (gk_kernel)find_code(name);
	return true;
}

EXPORT cuModuleLoadDataEx(uintptr_t *to, const char *image, unsigned n, const int *options, void **values)
{
	BEGIN_CONTEXT(cuModuleLoadDataEx);
	auto m = std::make_unique<module>();
	m->ptx = image;
	if (m->ptx.find(".version ") == std::string::npos)
		return complain(n, options, values, "no version");
	if (too_new(m->ptx))
		return UNSUPPORTED_PTX;
	for (size_t at = 0; (at = m->ptx.find(".visible .entry ", at)) != std::string::npos; at++) {
		auto k = std::make_unique<kernel>();
		if (!declare(m->ptx.c_str() + at, k.get()))
			return complain(n, options, values, "a kernel of another form");
		m->kernels[k->name] = std::move(k);
	}
	std::lock_guard<std::mutex> lock(drv.m);
	*to = drv.next++;
	drv.modules[*to] = std::move(m);
	return OK;
}

EXPORT cuModuleUnload(uintptr_t handle)
{
	BEGIN_CONTEXT(cuModuleUnload);
	if (!idle())
		fault("cuModuleUnload waits for a kernel that does not end");
	std::lock_guard<std::mutex> lock(drv.m);
	return drv.modules.erase(handle) ? OK : INVALID_HANDLE;
}

EXPORT cuModuleGetFunction(kernel **to, uintptr_t handle, const char *name)
{
	BEGIN_CONTEXT(cuModuleGetFunction);
	std::lock_guard<std::mutex> lock(drv.m);
	auto m = drv.modules.find(handle);
	if (m == drv.modules.end())
		return INVALID_HANDLE;
	auto k = m->second->kernels.find(name);
	if (k == m->second->kernels.end() || k->second->run == nullptr)
		return NOT_FOUND;
	*to = k->second.get();
	return OK;
}

EXPORT cuFuncGetAttribute(int *v, int attribute, kernel *k)
{
	BEGIN_CONTEXT(cuFuncGetAttribute);
	switch (attribute) {
	case 0: *v = k->threads; return OK;
	case 1: *v = 0; return OK;
	case 3: *v = 0; return OK;
	case 4: *v = 32; return OK;
	case 8: *v = k->dynamic; return OK;
	}
	return INVALID_VALUE;
}

EXPORT cuFuncSetAttribute(kernel *k, int attribute, int v)
{
	BEGIN_CONTEXT(cuFuncSetAttribute);
	if (attribute != 8 || v < 0 || v > 227 << 10)
		return INVALID_VALUE;
	k->dynamic = v;
	return OK;
}

EXPORT cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, kernel *k, int threads, size_t shared)
{
	BEGIN_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
	if (threads < 1 || threads > (int)k->threads || shared > k->dynamic)
		return INVALID_VALUE;
	*n = 2048 / threads;
	if (shared > 0 && *n > (int)((228 << 10) / (shared + 1024)))
		*n = (228 << 10) / (shared + 1024);
	return OK;
}

/* room counts the threads that the multiprocessors still take: a block runs when there is room for it. */
static struct {
	std::mutex m;
	std::condition_variable changed;
	int taken = 0;
} room;

struct launch {
	kernel *k;
	std::vector<uint8_t> params;
	unsigned grid, threads, shared;
	std::atomic<unsigned> next{0};
};

static void *run_blocks(void *arg)
{
	launch *l = (launch *)arg;
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, nullptr);
	for (unsigned b; (b = l->next++) < l->grid;) {
		{
			std::unique_lock<std::mutex> lock(room.m);
			room.changed.wait(lock, [&] { return drv.lost || room.taken + (int)l->threads <= drv.machine.sms * 2048; });
			room.taken += l->threads;
		}
		if (drv.lost == 0)
			gk_run_block(l->k->run, l->params.data(), b, l->grid, l->threads, l->shared);
		std::lock_guard<std::mutex> lock(room.m);
		room.taken -= l->threads;
		room.changed.notify_all();
	}
	return nullptr;
}

/* run_grid runs as many blocks at once as the device has room for. */
static void run_grid(launch *l)
{
	unsigned n = std::max(1, drv.machine.sms * 2048 / (int)l->threads);
	std::vector<pthread_t> threads(std::min(n, l->grid));
	for (pthread_t &t : threads)
		pthread_create(&t, nullptr, run_blocks, l);
	for (pthread_t &t : threads)
		pthread_join(t, nullptr);
}

/* read_extra reads the parameters from the list that a launch gives in place of pointers to each. */
static bool read_extra(void **extra, launch *l)
{
	const uint8_t *at = nullptr;
	const size_t *n = nullptr;
	for (; extra != nullptr && *extra != nullptr; extra += 2) {
		if (*extra == (void *)1)
			at = (const uint8_t *)extra[1];
		else if (*extra == (void *)2)
			n = (const size_t *)extra[1];
		else
			return false;
	}
	if (at == nullptr || n == nullptr)
		return false;
	l->params.assign(at, at + *n);
	return true;
}

EXPORT cuLaunchKernel(kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		      unsigned shared, uintptr_t s, void **params, void **extra)
{
	BEGIN_CONTEXT(cuLaunchKernel);
	auto l = std::make_shared<launch>();
	if (gx == 0 || gy != 1 || gz != 1 || bx == 0 || bx > k->threads || by != 1 || bz != 1 || shared > k->dynamic)
		return INVALID_VALUE;
	if (params != nullptr || !read_extra(extra, l.get()) || l->params.size() != k->params)
		return INVALID_VALUE;
	l->k = k;
	l->grid = gx;
	l->threads = bx;
	l->shared = shared;
	return put(s, [l] {
		l->next = 0;
		run_grid(l.get());
	});
}
