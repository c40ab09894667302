// Package health finds out which backends can serve.
//
// A Checker asks them: it connects by TCP, sends an HTTP(S) request or a UDP datagram, or runs a
// command, at an interval, and reports when a backend rose or fell. Probes leave by the kernel's
// stack. What several services ask of one address in the same way is asked once, and however many
// backends hang, the number of sockets and processes is bounded and no probe waits for another one
// that hangs.
//
// An Evaluator sends nothing: from counts of the outcomes of clients' connections (answered, refused,
// unanswered, unreachable) it decides which backends are ejected for a while, within a limit that
// leaves every service some. It is a pure function of samples and their times.
//
// The package knows nothing of the gateway: backends are numbers and addresses.
package health
