/* The kernels that tests of gpunet run: an echo server, and the increment server, which receives float32s and returns them plus 1. */
#include "../gpunet.cuh"

enum { GPUNET_TEST_CHUNK = 512 };

struct gpunet_server {
	struct gpunet net;
	u32 port;
	u32 increments; /* float32s plus 1, else bytes as they are */
};

/* answer returns what can be of what arrived at a connection. */
GK_FN void answer(const struct gpunet_server *p, struct gpunet_block *b, i32 fd)
{
	GK_SHARED float values[GPUNET_TEST_CHUNK];
	u32 unit = p->increments ? sizeof(float) : 1;
	for (;;) {
		const u8 *at = nullptr;
		i32 n = grecv_view(b, fd, &at, 0);
		if (n == -GPUNET_EAGAIN)
			return;
		if (n <= 0) { /* the end, or a reset */
			gclose(b, fd);
			return;
		}
		i32 space = gsend_space(b, fd);
		u32 m = gk_min(gk_min((u32)n, space < 0 ? 0 : (u32)space), (u32)sizeof values) / unit * unit;
		if (m == 0 && space >= 0 && (u32)n >= unit)
			return; /* gpoll returns it when there is space */
		if (m == 0) {
			if (space < 0 || b->conns[(u32)fd & 0xffff].state == GPUNET_PEER_SHUT)
				gclose(b, fd); /* half a number, and no more follows */
			return;
		}
		for (u32 i = gk_thread(); i < m / unit; i += gk_block_size()) {
			if (p->increments)
				values[i] = ((const float *)at)[i] + 1;
			else
				((u8 *)values)[i] = at[i];
		}
		gk_block_sync();
		gsend(b, fd, values, m, 0);
		grelease(b, fd, m);
	}
}

GK_KERNEL(gpunet_server, struct gpunet_server, 64)
{
	GK_SHARED struct gpunet_block b;
	gpunet_begin(&b, &p->net);
	if (glisten(&b, p->port, GPUNET_FOREVER) == 0) {
		for (u32 events = 0;;) {
			while (gaccept(&b, 0) >= 0) {
			}
			i32 fd = gpoll(&b, &events, 1000000);
			if (fd >= 0)
				answer(p, &b, fd);
			else if (fd != -GPUNET_EAGAIN)
				break;
		}
	}
	gpunet_end(&b);
}

/* What each call of gpunet_calls returned, in order. */
struct gpunet_calls {
	struct gpunet net;
	i32 *results;
	struct gpunet_address *peer;
	u32 port;
};

enum { GPUNET_CALLS = 20 };

/* gpunet_calls makes each call once or more, on one connection that sends "hello", and then its FIN. */
GK_KERNEL(gpunet_calls, struct gpunet_calls, 64)
{
	GK_SHARED struct gpunet_block b;
	GK_SHARED u8 bytes[8];
	struct gpunet_address peer = {};
	u32 events = 0;
	i32 r[GPUNET_CALLS];
	for (u32 i = 0; i < GPUNET_CALLS; i++)
		r[i] = 0;
	gpunet_begin(&b, &p->net);
	r[0] = glisten(&b, p->port + 1, GPUNET_FOREVER);
	r[1] = glisten(&b, p->port, GPUNET_FOREVER);
	r[2] = glisten(&b, p->port, GPUNET_FOREVER);
	r[3] = gpoll(&b, &events, 0);
	i32 fd = gaccept(&b, GPUNET_FOREVER);
	r[4] = gaccept(&b, 1000);
	r[5] = ggetpeername(&b, fd, &peer);
	r[6] = ggetpeername(&b, fd + 1, &peer);
	r[7] = gpoll(&b, &events, GPUNET_FOREVER) == fd;
	r[8] = grecv(&b, fd, bytes, 3, GPUNET_FOREVER);
	r[9] = grecv(&b, fd, bytes + 3, 5, GPUNET_FOREVER);
	r[10] = gsend(&b, fd, bytes, 5, GPUNET_FOREVER);
	r[11] = grecv(&b, fd, bytes, 1, GPUNET_FOREVER);
	r[12] = grelease(&b, fd, 1);
	r[13] = gshutdown(&b, fd);
	r[14] = gsend(&b, fd, bytes, 1, 0);
	r[15] = gshutdown(&b, fd);
	r[16] = gclose(&b, fd);
	r[17] = gclose(&b, fd);
	r[18] = grecv(&b, fd, bytes, 1, 0);
	r[19] = gaccept(&b, GPUNET_FOREVER); /* until the host stops the kernel */
	if (gk_thread() == gk_block_size() - 1) { /* any thread has the results */
		*p->peer = peer;
		for (u32 i = 0; i < GPUNET_CALLS; i++)
			p->results[i] = r[i];
	}
	gpunet_end(&b);
}
