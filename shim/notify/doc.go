// Package notify gives the sockets of a stack to programs that no library can be loaded into: those of Go, static ones,
// those of another libc. It does for them what shim/preload does for programs with libc, by seccomp user notification:
// a filter stops a thread at the calls that make, name and configure sockets, and a supervisor, which is another process of
// the same user, makes the exchange with the node (shim.Client) and answers the call.
//
// # Who does what
//
// The program installs the filter on itself before it is executed (Install), and its children inherit it. A Supervisor
// has the filter's descriptor: it receives each call with its number and six arguments. The program's descriptors come
// from pidfd_getfd(2), addresses and options from process_vm_readv(2), answers go back by process_vm_writev(2), and new
// descriptors by SECCOMP_IOCTL_NOTIF_ADDFD. Calls for descriptors without the mark of the stack go on in the kernel as
// they came. Data moves without the Supervisor: read(2), write(2), poll(2) and the like are not filtered. Datagrams
// with addresses move by it.
//
// # What is trusted
//
// Nothing that the program can change decides about rights: the node does, by the user of the Supervisor. The Supervisor
// reads each argument and each address once and answers what it has read, so that memory that changes during a call
// only changes what the program gets. It can do no more than the program's own user, and it serves one program and its children.
//
// What it does not do: read(2) and write(2) of UDP sockets that are not connected, signals during a short call (they wait until it is over),
// kernels before Linux 5.19. docs/design/034-seccomp.md has the reasons.
package notify
