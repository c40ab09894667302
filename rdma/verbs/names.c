#include "library.h"

/* the texts that programs print, and conversions of rates (IBTA tables 118, 224, 252) */

#define NAME(list, i) ((unsigned)(i) < sizeof list / sizeof *list && list[i] ? list[i] : "unknown")

EXPORT const char *ibv_wc_status_str(int status)
{
	static const char *const names[] = {
		"success", "local length error", "local QP operation error", "local EE context operation error", "local protection error",
		"Work Request Flushed Error", "memory management operation error", "bad response error", "local access error", "remote invalid request error",
		"remote access error", "remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
		"local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number", "invalid EE context state", "fatal error",
		"response timeout error", "general error",
	};
	return NAME(names, status);
}

EXPORT const char *ibv_node_type_str(int type)
{
	static const char *const names[] = {[1] = "InfiniBand channel adapter", [2] = "InfiniBand switch", [3] = "InfiniBand router", [4] = "iWARP NIC"};
	return NAME(names, type);
}

EXPORT const char *ibv_port_state_str(int state)
{
	static const char *const names[] = {"no state change (NOP)", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
	return NAME(names, state);
}

EXPORT const char *ibv_event_type_str(int event)
{
	static const char *const names[] = {
		"CQ error", "local work queue catastrophic error", "invalid request local work queue error", "local access violation work queue error",
		"communication established", "send queue drained", "path migrated", "path migration request error", "local catastrophic error", "port active",
		"port error", "LID change", "P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached",
		"client reregistration", "GID table change", "WQ fatal",
	};
	return NAME(names, event);
}

/* static rates by their code: multiples of 2.5 Gb/s, and Mb/s */
static const struct {
	int code, multiple, mbps;
} rates[] = {
	{2, 1, 2500}, {3, 4, 10000}, {4, 12, 30000}, {5, 2, 5000}, {6, 8, 20000}, {7, 16, 40000}, {8, 24, 60000}, {9, 32, 80000}, {10, 48, 120000},
	{11, 5, 14062}, {12, 45, 112500}, {13, 6, 17187}, {14, 22, 56250}, {15, 40, 103125}, {16, 67, 168750}, {17, 11, 25781}, {18, 80, 206250}, {19, 120, 309375},
	{20, 11, 28125}, {21, 20, 53125}, {22, 40, 106250}, {23, 80, 212500}, {24, 160, 425000}, {25, 240, 637500},
};
#define EACH_RATE for (unsigned i = 0; i < sizeof rates / sizeof *rates; i++)

EXPORT int ibv_rate_to_mult(int code)
{
	EACH_RATE
	if (rates[i].code == code && code <= 10)
		return rates[i].multiple;
	return -1;
}

EXPORT int mult_to_ibv_rate(int multiple)
{
	EACH_RATE
	if (rates[i].multiple == multiple && rates[i].code <= 10)
		return rates[i].code;
	return 0;
}

EXPORT int ibv_rate_to_mbps(int code)
{
	EACH_RATE
	if (rates[i].code == code)
		return rates[i].mbps;
	return -1;
}

EXPORT int mbps_to_ibv_rate(int mbps)
{
	EACH_RATE
	if (rates[i].mbps == mbps)
		return rates[i].code;
	return 0;
}
