// Package role decides which of two gateways answers for their addresses: an active one and a standby. It is a state
// machine without sockets and clocks: time, messages of the peer and answers of the link come in as arguments.
//
// The active gateway sends a message ten times in each lease. The standby takes over when it has heard none for a lease,
// and no host of the link answers for the addresses. Times are durations on the clock of the gateway that measures them,
// so the clocks of two gateways need not agree. See docs/design/068-two-gateways.md.
package role
