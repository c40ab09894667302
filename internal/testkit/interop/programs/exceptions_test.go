package programs

import "slices"

// onPairs are the tiers where two programs of one stack are joined by an AF_UNIX pair, and why that shows.
var onPairs = []tier{onTier0}

const (
	firstWrite  = "a pair: the first write to an end that has closed fails, with TCP the second"
	closesLater = "close(2) returns before the node has reset the connection; over the kernel's loopback its peer has the reset by then"
	writesLater = "the test relies on the order of two connections: over the kernel's loopback bytes have arrived when write(2) returns"
	lingers     = "a pair: SO_LINGER of 0 that is set after connect does not reset it"
)

// exceptions are the tests of suites that may fail on the stack although they pass on the kernel.
var exceptions = []exception{
	{suite: "CPython socket", tests: `UDPLITE`, reason: "UDP-Lite (RFC 3828) is not there: EPROTONOSUPPORT"},
	{suite: "CPython socket", tests: `TestAPI_UseIPv.(Poll|Select)\.test_handle_expt$`, reason: "urgent bytes stay in their place in the stream (RFC 6093, 6): no exceptional condition"},
	{suite: "CPython socket", on: onPairs, tests: `ContextManagersTest\.testCreateConnectionClose$|NetworkConnectionBehaviourTest\.testOutsideTimeout$`, reason: firstWrite},
	{suite: "CPython ssl", on: onPairs, tests: `SimpleBackgroundTests\.test_bio_(handshake|read_write_data)$`, reason: firstWrite},
	{suite: "CPython ssl", on: onPairs, tests: `TestPreHandshakeClose\.test_preauth_data_to_tls_server$`, reason: lingers},
	{suite: "CPython ssl", on: []tier{onLoop, onRings}, tests: `TestPreHandshakeClose\.test_preauth_data_to_tls_server$`, reason: closesLater},
	{
		suite: "CPython asyncio", tests: `test_sendfile\..*\.test_sendfile_close_peer_in_the_middle_of_receiving$`,
		reason: "the test sets a small SO_SNDBUF: what a program has written waits in an AF_UNIX socket whose buffer does not follow it, so that the file is written before the peer closes",
	},
	{suite: "redis tests", on: onPairs, tests: `^unit/limits: Check if maxclients works refusing connections|^unit/limits ends|^unit/tracking`, reason: firstWrite},
	{suite: "redis tests", on: []tier{onLoop, onRings}, tests: `^unit/pubsub(shard)?: S?PUBLISH/[PS]?SUBSCRIBE after P?UNSUBSCRIBE without arguments$|^integration/shutdown: Shutting down master waits for replica then (aborted|fails)$`, reason: writesLater},
	{suite: "Go net tests", on: onPairs, tests: `^TestNotTemporaryRead$`, reason: lingers},
	{suite: "Node tests", on: onPairs, tests: `test-net-(connect-reset-after-destroy|connect-reset-until-connected|server-reset|socket-reset-send)$`, reason: lingers},
	{suite: "Node tests", on: onPairs, tests: `test-net-server-max-connections-close-makes-more-available$`, reason: "passes through the loop; not looked into further"},
	{suite: "Node tests", tests: `test-dgram-(bind-fd|socket-buffer-size)$`, reason: "SO_SNDBUF of a UDP socket is shown as it was set, not doubled"},
	{suite: "Node tests", tests: `test-dgram-msgsize$`, reason: "a datagram that is longer than UDP permits is dropped without EMSGSIZE"},
	{suite: "Node tests", tests: `test-dgram-multicast-set-interface$`, reason: "IP_MULTICAST_IF with that argument: ENOPROTOOPT"},
	{suite: "Node tests", tests: `test-dgram-udp6-link-local-address$`, reason: "the list of interfaces is the kernel's, with the kernel's link-local address"},
	{suite: "LTP", tests: `^(connect01|recvmmsg01)$`, reason: "an address without memory outside the first page ends the program with SIGSEGV where the library copies; Linux: EFAULT"},
	{suite: "LTP", tests: `^connect02$`, reason: "IPV6_ADDRFORM: ENOPROTOOPT"},
	{suite: "LTP", tests: `^send02$`, reason: "bytes of a TCP send with MSG_MORE are sent at once"},
	{suite: "LTP", tests: `^setsockopt05$`, reason: "programs cannot change interfaces of the stack: SIOCSIFMTU is EPERM"},
	{suite: "libuv", tests: `^udp_send_unreachable$`, reason: "the second send has to fail for the first one: over the kernel's loopback ICMP has come when the first one returns"},
	{suite: "libuv", tests: `^poll_oob$`, reason: "urgent bytes stay in their place in the stream (RFC 6093, 6)"},
	{suite: "libuv", on: onPairs, tests: `^tcp_read_stop_start$`, reason: firstWrite},
	{suite: "libuv", on: onPairs, tests: `^(not_readable_nor_writable_on_read_error|tcp_rst)$`, reason: lingers},
	{suite: "libuv", on: []tier{onLoop}, tests: `^tcp_try_write_error$`, reason: closesLater},
}

// whole stands for all that a row runs.
const whole = "(all)"

// excused reports whether a row may fail on a tier.
func excused(name string, on tier) bool {
	return slices.ContainsFunc(exceptions, func(e exception) bool { return e.suite == name && e.tests == whole && slices.Contains(e.on, on) })
}
