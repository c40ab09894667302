/* Streams and events. A stream is a thread that does what is put on it, in order. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <chrono>

#include "fake.h"

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

/* run_stream leaves the signals of the process to the program's own threads. */
static void *run_stream(void *arg)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, nullptr);
	std::shared_ptr<stream> s = *(std::shared_ptr<stream> *)arg;
	delete (std::shared_ptr<stream> *)arg;
	std::unique_lock<std::mutex> lock(s->m);
	for (;;) {
		s->changed.wait(lock, [&] { return s->quit || !s->todo.empty(); });
		if (s->todo.empty())
			return nullptr;
		work w = s->todo.front();
		s->todo.pop_front();
		s->busy = true;
		lock.unlock();
		if (drv.lost == 0)
			w();
		lock.lock();
		s->busy = false;
		s->changed.notify_all();
	}
}

static std::shared_ptr<stream> find_stream(uintptr_t handle)
{
	std::lock_guard<std::mutex> lock(drv.m);
	auto s = drv.streams.find(handle);
	return s == drv.streams.end() ? nullptr : s->second;
}

result put(uintptr_t handle, work w)
{
	if (handle == 0)
		fault("the default stream waits for kernels of other streams");
	std::shared_ptr<stream> s = find_stream(handle);
	if (s == nullptr)
		return INVALID_HANDLE;
	std::lock_guard<std::mutex> lock(s->m);
	s->todo.push_back(w);
	s->changed.notify_all();
	return OK;
}

static bool wait_for(stream *s)
{
	std::unique_lock<std::mutex> lock(s->m);
	return s->changed.wait_for(lock, std::chrono::milliseconds(drv.machine.stall_ms),
				   [&] { return !s->busy && s->todo.empty(); });
}

static std::vector<std::shared_ptr<stream>> all_streams(void)
{
	std::vector<std::shared_ptr<stream>> all;
	std::lock_guard<std::mutex> lock(drv.m);
	for (auto &s : drv.streams)
		all.push_back(s.second);
	return all;
}

bool idle(void)
{
	for (auto &s : all_streams())
		if (!wait_for(s.get()))
			return false;
	return true;
}

void settle(void)
{
	for (auto &s : all_streams()) {
		std::unique_lock<std::mutex> lock(s->m);
		s->changed.wait(lock, [&] { return !s->busy && s->todo.empty(); });
	}
}

static void end_stream(stream *s)
{
	{
		std::lock_guard<std::mutex> lock(s->m);
		s->quit = true;
		s->changed.notify_all();
	}
	pthread_join(s->thread, nullptr);
}

void end_streams(void)
{
	for (auto &s : drv.streams)
		end_stream(s.second.get());
}

EXPORT cuStreamCreateWithPriority(uintptr_t *to, unsigned flags, int priority)
{
	BEGIN_CONTEXT(cuStreamCreateWithPriority);
	if (flags != 1)
		fault("cuStreamCreateWithPriority: the stream waits for the default stream");
	if (priority > 0 || priority < -5)
		fault("cuStreamCreateWithPriority: no such priority");
	auto s = std::make_shared<stream>();
	if (pthread_create(&s->thread, nullptr, run_stream, new std::shared_ptr<stream>(s)) != 0)
		return OUT_OF_MEMORY;
	std::lock_guard<std::mutex> lock(drv.m);
	drv.calls["priority " + std::to_string(priority)]++;
	*to = drv.next++;
	drv.streams[*to] = s;
	return OK;
}

EXPORT cuStreamDestroy_v2(uintptr_t handle)
{
	BEGIN_CONTEXT(cuStreamDestroy_v2);
	std::shared_ptr<stream> s = find_stream(handle);
	if (s == nullptr)
		return INVALID_HANDLE;
	if (!wait_for(s.get()))
		fault("cuStreamDestroy under a kernel that does not end");
	else
		end_stream(s.get());
	std::lock_guard<std::mutex> lock(drv.m);
	drv.streams.erase(handle);
	return OK;
}

EXPORT cuStreamQuery(uintptr_t handle)
{
	BEGIN_CONTEXT(cuStreamQuery);
	std::shared_ptr<stream> s = find_stream(handle);
	if (s == nullptr)
		return INVALID_HANDLE;
	std::lock_guard<std::mutex> lock(s->m);
	return !s->busy && s->todo.empty() ? OK : NOT_READY;
}

static std::shared_ptr<event> find_event(uintptr_t handle)
{
	std::lock_guard<std::mutex> lock(drv.m);
	auto e = drv.events.find(handle);
	return e == drv.events.end() ? nullptr : e->second;
}

EXPORT cuEventCreate(uintptr_t *to, unsigned flags)
{
	BEGIN_CONTEXT(cuEventCreate);
	(void)flags;
	std::lock_guard<std::mutex> lock(drv.m);
	*to = drv.next++;
	drv.events[*to] = std::make_shared<event>();
	return OK;
}

EXPORT cuEventDestroy_v2(uintptr_t handle)
{
	BEGIN_CONTEXT(cuEventDestroy_v2);
	std::lock_guard<std::mutex> lock(drv.m);
	return drv.events.erase(handle) ? OK : INVALID_HANDLE;
}

EXPORT cuEventRecord(uintptr_t handle, uintptr_t s)
{
	BEGIN_CONTEXT(cuEventRecord);
	std::shared_ptr<event> e = find_event(handle);
	if (e == nullptr)
		return INVALID_HANDLE;
	uint64_t turn;
	{
		std::lock_guard<std::mutex> lock(e->m);
		turn = ++e->recorded;
	}
	return put(s, [e, turn] {
		std::lock_guard<std::mutex> lock(e->m);
		e->happened = turn;
		e->ns = now();
		e->changed.notify_all();
	});
}

EXPORT cuEventQuery(uintptr_t handle)
{
	BEGIN_CONTEXT(cuEventQuery);
	std::shared_ptr<event> e = find_event(handle);
	if (e == nullptr)
		return INVALID_HANDLE;
	std::lock_guard<std::mutex> lock(e->m);
	return e->happened == e->recorded ? OK : NOT_READY;
}

EXPORT cuEventElapsedTime(float *ms, uintptr_t from, uintptr_t to)
{
	BEGIN_CONTEXT(cuEventElapsedTime);
	std::shared_ptr<event> a = find_event(from), b = find_event(to);
	if (a == nullptr || b == nullptr || a->recorded == 0 || b->recorded == 0)
		return INVALID_HANDLE;
	if (a->happened != a->recorded || b->happened != b->recorded)
		return NOT_READY;
	*ms = (float)(((double)b->ns - (double)a->ns) / 1e6);
	return OK;
}

EXPORT cuStreamWaitEvent(uintptr_t s, uintptr_t handle, unsigned flags)
{
	BEGIN_CONTEXT(cuStreamWaitEvent);
	std::shared_ptr<event> e = find_event(handle);
	if (e == nullptr || flags != 0)
		return INVALID_HANDLE;
	uint64_t turn = e->recorded;
	return put(s, [e, turn] {
		std::unique_lock<std::mutex> lock(e->m);
		while (e->happened < turn && drv.lost == 0)
			e->changed.wait_for(lock, std::chrono::milliseconds(1));
	});
}
