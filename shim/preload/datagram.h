/* datagram.h - what datagrams that are sent (datagram.c) and received (receive.c), batches of them (batch.c), their
   control messages (control.c) and their errors (pending.c) share. */
#ifndef MILLRACE_SHIM_DATAGRAM_H
#define MILLRACE_SHIM_DATAGRAM_H

#include "rings.h"

#include <sys/uio.h>

#define PARTS 8 /* of a datagram, before memory is allocated for them */

/* A header, and behind it the parts of a datagram. */
struct framed {
	struct shim_datagram header;
	struct iovec few[1 + PARTS], *part;
	size_t parts;
};

/* too_long reports whether UDP has no datagram of so many bytes. The kernel takes longer ones: AF_UNIX has no such limit. */
bool too_long(const struct iovec *part, size_t n);

/* frame returns 0 or an errno. unframe ends what it began. */
int frame(struct framed *f, const struct iovec *from, size_t n);
void unframe(struct framed *f);

/* outgoing makes the message that the node gets. It returns 0 or an errno; unframe follows in any case. */
int outgoing(int fd, const struct msghdr *m, struct framed *f, struct msghdr *to);

/*
 * may_send sets errno where a stream is not connected. The kernel would take the bytes, since the node has the other end.
 * Urgent bytes stay in their place in the stream (RFC 6093, 6): flags lose MSG_OOB. may_receive is for the other direction.
 */
bool may_send(const struct mark *m, int *flags);
bool may_receive(const struct mark *m);

/* refused reports whether a message is wrong, for a socket of the stack: errno has the reason. The kernel looks at its own. */
bool refused(int fd, const struct msghdr *m);

/*
 * Errors that wait to be taken (pending.c). receive_error is recvmsg(2) with MSG_ERRQUEUE, which the kernel's AF_UNIX does not know: it would
 * take bytes of the peer. datagram_error takes SO_ERROR. ask_pending is the request behind both: it returns SO_ERROR, which it takes if
 * arg says so, and *stands is whether an error is left.
 */
ssize_t receive_error(int fd, const struct mark *mark, struct msghdr *m);
int datagram_error(int fd);
int ask_pending(int fd, int arg, bool *stands);
bool failed_before(int fd);

/* is_notice reports whether what a call has received, n bytes, is a notice of the node. take_notices takes those that come next. */
bool is_notice(long n, const struct msghdr *got);
int take_notices(int fd);

/*
 * pending_events returns what poll(2) shows of a socket that the kernel calls readable: POLLIN where a datagram waits, POLLERR while an error
 * stands. datagram_waits reports whether a call would receive a datagram.
 */
short pending_events(int fd);
bool datagram_waits(int fd);

/* form_of returns the bits of SHIM_FORM of a socket of datagrams with headers. */
int form_of(int fd);

/* has_control reports whether a message has control messages that only a header carries, and with_headers gives its socket such a form. */
bool has_control(const struct msghdr *from);
bool with_headers(int fd, struct mark *m);

/* send_datagram sends a datagram as it is, and nothing of it joins others by the caller's doing. */
ssize_t send_datagram(int fd, struct mark *mark, const struct msghdr *m, int flags);

/*
 * Datagrams of several calls (cork.c). may_join reports whether one joins others, or may: join_datagram sends it then. cork_used is that the
 * program sets UDP_CORK.
 */
bool may_join(int fd, int flags);
ssize_t join_datagram(int fd, struct mark *mark, const struct msghdr *m, int flags);
void cork_used(void);

/* sent is the result for the program of n bytes sent with a header. UDP raises no SIGPIPE and knows no EPIPE. */
ssize_t sent(long n);

/* received fills m from a message of n bytes with its header. It returns the result for the program. */
ssize_t received(int fd, struct msghdr *m, long n, const struct framed *f, const struct msghdr *got, int family);

/* receives_again reports whether a call that gave n is to be made once more, because the socket has been made again (rebind.h). Otherwise
   errno is what the program gets. */
bool receives_again(int fd, const struct mark *m, ssize_t n, int flags);

/* read_control takes the source address and the like that the program names in control messages. */
void read_control(const struct msghdr *from, struct shim_datagram *to);

/* write_control makes the control messages that the program has asked for, and write_error that of an entry of the queue of errors, which from
   has reported. */
void write_control(struct msghdr *m, const struct shim_datagram *h);
void write_error(struct msghdr *m, const struct shim_error *e, const struct shim_addr *from, int family);

#endif
