/* hosts.c - gethostbyname and its relatives: a line for each call. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static void show(const char *what, const struct hostent *h, int error)
{
	char text[INET6_ADDRSTRLEN];
	printf("%s:", what);
	if (h == NULL) {
		printf(" error %d\n", error);
		return;
	}
	printf(" %s, family %d, %d bytes", h->h_name, h->h_addrtype, h->h_length);
	for (char **a = h->h_addr_list; *a != NULL; a++)
		printf(" %s", inet_ntop(h->h_addrtype, *a, text, sizeof text));
	for (char **a = h->h_aliases; *a != NULL; a++)
		printf(" alias %s", *a);
	puts("");
}

int main(int argc, char **argv)
{
	struct hostent host, *result = NULL;
	char buffer[512];
	int error = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && strcmp(argv[1], "reverse") == 0) {
		struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		printf("numeric %d\n", getnameinfo((struct sockaddr *)&a, sizeof a, buffer, sizeof buffer, NULL, 0, NI_NUMERICHOST));
		fputs("now\n", stderr);
		getnameinfo((struct sockaddr *)&a, sizeof a, buffer, sizeof buffer, NULL, 0, 0);
		gethostbyaddr(&a.sin_addr, sizeof a.sin_addr, AF_INET);
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "record") == 0) {
		unsigned char answer[512];
		_res.options |= RES_INIT;
		res_query("", 99, 99, answer, 1);
		return 0;
	}
	result = gethostbyname("host.example");
	show("by name", result, h_errno);
	result = gethostbyname2("host.example", AF_INET6);
	show("IPv6", result, h_errno);
	result = gethostbyname("none.example");
	show("no such", result, h_errno);
	result = gethostbyname("later.example");
	show("later", result, h_errno);
	result = gethostbyname2("four.example", AF_INET6);
	show("only IPv4", result, h_errno);
	result = gethostbyname("198.18.0.7");
	show("numeric", result, h_errno);
	printf("result %d ", gethostbyname_r("host.example", &host, buffer, sizeof buffer, &result, &error));
	show("reentrant", result, error);
	printf("result %d ", gethostbyname_r("host.example", &host, buffer, 20, &result, &error) == ERANGE);
	show("short", result, error);
	for (size_t n = 0; n < sizeof buffer; n++) { /* of each length, from each place */
		result = NULL;
		if (gethostbyname2_r("host.example", AF_INET6, &host, buffer + n, sizeof buffer - n, &result, &error) != 0 || result == NULL)
			break;
		if (strcmp(result->h_name, "host.example") != 0)
			puts("wrong");
	}
	printf("result %d ", gethostbyname_r("none.example", &host, buffer, sizeof buffer, &result, &error));
	show("no such, reentrant", result, error);
	return 0;
}
