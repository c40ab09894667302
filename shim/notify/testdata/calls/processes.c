/* processes.c - calls that wait, with signals, and processes that share sockets or end. */
#include "calls.h"

static volatile sig_atomic_t signals;

static void count(int number)
{
	(void)number;
	signals++;
}

void handle(int number, int flags)
{
	struct sigaction action = {.sa_handler = count, .sa_flags = flags};
	sigaction(number, &action, NULL);
}

pid_t after(int milliseconds, void (*f)(int), int argument)
{
	pid_t child = fork();
	if (child != 0)
		return child;
	usleep((useconds_t)milliseconds * 1000);
	f(argument);
	_exit(0);
}

void alarm_parent(int unused)
{
	(void)unused;
	kill(getppid(), SIGUSR1);
}

static void connect_to(int port)
{
	int fd = client(port);
	char b;
	(void)!read(fd, &b, 1);
}

static void interrupt_then_connect(int port)
{
	alarm_parent(0);
	usleep(200 * 1000);
	connect_to(port);
}

void waiting(void)
{
	int l = listener(), port = port_of(l);
	handle(SIGUSR1, 0);
	pid_t child = after(100, alarm_parent, 0);
	SAY(accept(l, NULL, NULL));
	printf("signals %d\n", (int)signals);
	waitpid(child, NULL, 0);
	handle(SIGUSR1, SA_RESTART);
	child = after(100, interrupt_then_connect, port);
	int s = (int)SAY(accept(l, NULL, NULL));
	printf("signals %d\n", (int)signals);
	close(s);
	waitpid(child, NULL, 0);
	child = after(100, connect_to, port);
	s = (int)SAY(accept(l, NULL, NULL));
	close(s);
	waitpid(child, NULL, 0);
	struct timeval limit = {.tv_usec = 100 * 1000};
	setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	SAY(accept(l, NULL, NULL));
	close(l);
}

/* A process that waits in accept and is killed frees its port at once. */
void killed(void)
{
	int l = listener(), port = port_of(l), status = 0;
	struct sockaddr_in a = at(port);
	pid_t child = fork();
	if (child == 0) {
		accept(l, NULL, NULL);
		_exit(0);
	}
	close(l);
	usleep(100 * 1000);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	printf("killed by %d\n", WTERMSIG(status));
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	for (int i = 0; i < 500 && bind(fd, (struct sockaddr *)&a, sizeof a) != 0; i++)
		usleep(10 * 1000); /* the end of a process is not the return of waitpid */
	SAY(listen(fd, 1));
	printf("the same port %d\n", port_of(fd) == port);
	child = fork();
	if (child == 0) {
		accept(fd, NULL, NULL);
		_exit(0);
	}
	usleep(100 * 1000);
	kill(child, SIGTERM);
	waitpid(child, &status, 0);
	printf("killed by %d\n", WTERMSIG(status));
	kill(child = fork() ?: (accept(fd, NULL, NULL), getpid()), SIGSTOP);
	waitpid(child, &status, WUNTRACED);
	printf("stopped %d\n", WIFSTOPPED(status));
	kill(child, SIGCONT);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close(fd);
}

/* A server that forks for each connection: `n` of them, of which each gets the number of its server's child. */
void fork_server(int n)
{
	int l = listener(), sum = 0, status;
	pid_t clients = fork();
	if (clients == 0) {
		for (int i = 0; i < n; i++) {
			char b[16] = "";
			int fd = client(port_of(l));
			if (write(fd, "x", 1) != 1 || read(fd, b, sizeof b) <= 0)
				_exit(1);
			sum += atoi(b);
			close(fd);
		}
		printf("sum %d\n", sum);
		fflush(stdout);
		_exit(0);
	}
	for (int i = 0; i < n; i++) {
		int fd = accept(l, NULL, NULL);
		if (fork() == 0) {
			char b;
			if (read(fd, &b, 1) == 1)
				dprintf(fd, "%d", i);
			_exit(0);
		}
		close(fd);
	}
	waitpid(clients, &status, 0);
	printf("clients ended with %d\n", WEXITSTATUS(status));
	while (wait(NULL) > 0) {
	}
}
