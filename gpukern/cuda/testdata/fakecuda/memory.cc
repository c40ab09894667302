/* Memory of the device, which is memory of this process with a page behind it that nobody may touch, and
 * memory of the host that was registered. */
#include <string.h>
#include <sys/mman.h>

#include "fake.h"

static const size_t page = 4096;

/* take maps n bytes that end at a page that cannot be read, and begin on a boundary of 256. */
static bool take(size_t n, devptr *at)
{
	size_t room = (n + 255) & ~(size_t)255, whole = (room + page - 1) & ~(page - 1);
	uint8_t *map = (uint8_t *)mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return false;
	mprotect(map + whole, page, PROT_NONE);
	memset(map, 0xa5, n < (64 << 10) ? whole : 0); /* device memory holds anything at first */
	*at = (devptr)(map + whole - room);
	drv.memory[*at] = allocation{map, whole + page, n};
	drv.used += n;
	return true;
}

EXPORT cuMemGetInfo_v2(size_t *free, size_t *total)
{
	BEGIN_CONTEXT(cuMemGetInfo_v2);
	std::lock_guard<std::mutex> lock(drv.m);
	*total = drv.machine.memory;
	*free = drv.machine.memory - drv.used;
	return OK;
}

EXPORT cuMemAlloc_v2(devptr *to, size_t n)
{
	BEGIN_CONTEXT(cuMemAlloc_v2);
	if (n == 0)
		return INVALID_VALUE;
	std::lock_guard<std::mutex> lock(drv.m);
	if (drv.used + n > drv.machine.memory || !take(n, to))
		return OUT_OF_MEMORY;
	return OK;
}

EXPORT cuMemFree_v2(devptr at)
{
	BEGIN_CONTEXT(cuMemFree_v2);
	if (!idle())
		fault("cuMemFree waits for a kernel that does not end");
	std::lock_guard<std::mutex> lock(drv.m);
	auto a = drv.memory.find(at);
	if (a == drv.memory.end())
		return INVALID_VALUE;
	munmap(a->second.map, a->second.mapped);
	drv.used -= a->second.size;
	drv.memory.erase(a);
	return OK;
}

EXPORT cuMemHostRegister_v2(void *mem, size_t n, unsigned flags)
{
	BEGIN_CONTEXT(cuMemHostRegister_v2);
	if (flags != 3)
		fault("cuMemHostRegister: not portable and mapped");
	uintptr_t at = (uintptr_t)mem;
	std::lock_guard<std::mutex> lock(drv.m);
	for (auto &r : drv.registered)
		if (at < r.first + r.second && r.first < at + n)
			return ALREADY_REGISTERED;
	drv.registered[at] = n;
	return OK;
}

EXPORT cuMemHostUnregister(void *mem)
{
	BEGIN_CONTEXT(cuMemHostUnregister);
	if (!idle())
		fault("cuMemHostUnregister waits for a kernel that does not end");
	std::lock_guard<std::mutex> lock(drv.m);
	return drv.registered.erase((uintptr_t)mem) ? OK : NOT_REGISTERED;
}

bool is_registered(uintptr_t at, size_t n)
{
	std::lock_guard<std::mutex> lock(drv.m);
	for (auto &r : drv.registered)
		if (at >= r.first && at + n <= r.first + r.second)
			return true;
	return false;
}

bool on_device(devptr at, size_t n)
{
	{
		std::lock_guard<std::mutex> lock(drv.m);
		for (auto &a : drv.memory)
			if (at >= a.first && at + n <= a.first + a.second.size)
				return true;
	}
	return is_registered(at, n);
}

EXPORT cuMemHostGetDevicePointer_v2(devptr *to, void *mem, unsigned flags)
{
	BEGIN_CONTEXT(cuMemHostGetDevicePointer_v2);
	if (flags != 0 || !is_registered((uintptr_t)mem, 1))
		return INVALID_VALUE;
	*to = (devptr)mem;
	return OK;
}

/* Copies run on their stream, long after the call: their host side must be registered. */

EXPORT cuMemcpyHtoDAsync_v2(devptr to, const void *from, size_t n, uintptr_t s)
{
	BEGIN_CONTEXT(cuMemcpyHtoDAsync_v2);
	if (!is_registered((uintptr_t)from, n)) {
		fault("cuMemcpyHtoDAsync from memory that is not registered");
		return INVALID_VALUE;
	}
	if (!on_device(to, n))
		return INVALID_VALUE;
	return put(s, [=] { memcpy((void *)to, from, n); });
}

EXPORT cuMemcpyDtoHAsync_v2(void *to, devptr from, size_t n, uintptr_t s)
{
	BEGIN_CONTEXT(cuMemcpyDtoHAsync_v2);
	if (!is_registered((uintptr_t)to, n)) {
		fault("cuMemcpyDtoHAsync to memory that is not registered");
		return INVALID_VALUE;
	}
	if (!on_device(from, n))
		return INVALID_VALUE;
	return put(s, [=] { memcpy(to, (void *)from, n); });
}

EXPORT cuMemcpyDtoDAsync_v2(devptr to, devptr from, size_t n, uintptr_t s)
{
	BEGIN_CONTEXT(cuMemcpyDtoDAsync_v2);
	if (!on_device(to, n) || !on_device(from, n))
		return INVALID_VALUE;
	return put(s, [=] { memcpy((void *)to, (void *)from, n); });
}

EXPORT cuMemsetD8Async(devptr to, unsigned char v, size_t n, uintptr_t s)
{
	BEGIN_CONTEXT(cuMemsetD8Async);
	if (!on_device(to, n))
		return INVALID_VALUE;
	return put(s, [=] { memset((void *)to, v, n); });
}

std::string left_over(void)
{
	std::lock_guard<std::mutex> lock(drv.m);
	std::string s;
	auto tell = [&](size_t n, const char *what) {
		if (n > 0)
			s += (s.empty() ? "" : ", ") + std::to_string(n) + " " + what;
	};
	tell(drv.memory.size(), "buffers");
	tell(drv.registered.size(), "registrations");
	tell(drv.streams.size(), "streams");
	tell(drv.events.size(), "events");
	tell(drv.modules.size(), "modules");
	tell(drv.retained, "contexts");
	return s;
}

void release_all(void)
{
	std::lock_guard<std::mutex> lock(drv.m);
	for (auto &a : drv.memory)
		munmap(a.second.map, a.second.mapped);
	drv.memory.clear();
	drv.used = 0;
	drv.registered.clear();
	drv.streams.clear();
	drv.events.clear();
	drv.modules.clear();
}
