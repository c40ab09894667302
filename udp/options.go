package udp

import "errors"

// Errors of Bind, Connect and TakeErr.
var (
	ErrInUse        = errors.New("address already in use")
	ErrPortSearch   = errors.New("the search for a free local port goes on")
	ErrNoPort       = errors.New("no port is free")
	ErrTooMany      = errors.New("too many sockets")
	ErrAddress      = errors.New("addresses do not go together")
	ErrRefused      = errors.New("port unreachable")               // ICMP: nothing listens
	ErrProhibited   = errors.New("administratively prohibited")    // ICMP
	ErrProtocol     = errors.New("protocol unreachable or broken") // ICMP
	ErrHost         = errors.New("host is unreachable")            // its neighbour does not answer; with Options.QueueErrors ICMP, too
	ErrNotMulticast = errors.New("not a multicast address")
	ErrNotMember    = errors.New("not a member of the group")
	ErrUnreachable  = errors.New("network unreachable") // ICMP, with Options.QueueErrors, as the next one
	ErrTooLong      = errors.New("datagram longer than the path takes")
	ErrSteering     = errors.New("connection ID outside of its bounds")
)

// Options of a socket. The zero value is usual.
type Options struct {
	// ReceiveBuffer bounds the memory of the datagrams that wait, in bytes; 0 is
	// DefaultReceiveBuffer.
	ReceiveBuffer int

	// Share lets several sockets of one User that all have it bind one address and port. They form a
	// group: datagrams are spread over it by flow, or by Steer. Multicast and
	// broadcast go to each.
	Share bool

	// Reuse lets several sockets that all have it bind one address and port (SO_REUSEADDR of socket(7)). A unicast
	// datagram goes to the one that was bound last.
	Reuse bool

	// User is whose socket it is. Sockets of others are not in its group, or any user could take a
	// share of another's datagrams (SO_REUSEPORT of socket(7)).
	User uint32

	QueueErrors  bool  // keep what ICMP reports, for NextError, and report soft errors, too (IP_RECVERR)
	V6Only       bool  // the unspecified address is that of IPv6 alone, not both (RFC 3493 5.3)
	GRO          bool  // Read merges datagrams of equal size and one flow into one Message
	DontFragment bool  // longer than the MTU is an error; nothing is fragmented on the way (RFC 8899)
	AllGroups4   bool  // take what comes to IPv4 groups that others of this host have joined, too (IP_MULTICAST_ALL)
	AllGroups6   bool  // the same of IPv6
	Broadcast    bool  // may send to broadcast addresses
	NoLoop       bool  // multicast that is sent does not come back to members on this host
	TOS          uint8 // DSCP and ECN of what is sent
	TTL          uint8 // or hop limit, unicast; 0 is the host's
	MulticastTTL uint8 // 0 is 1 (RFC 1112 6.1)

	MulticastInterface uint32 // that multicast leaves by; 0 is by the routes
	Interface          uint32 // the only one that datagrams are taken from and leave by; 0 is any

	// NoChecksum sends no checksums, and takes datagrams over IPv6 that have none. It is
	// for tunnels that meet RFC 6936 4 and 5; every other socket needs its checksums (RFC
	// 8200 8.1). Over IPv4 datagrams without checksum are always taken (RFC 768).
	NoChecksum bool
}

// DefaultReceiveBuffer bounds the memory of a socket's queue where Options do not: 256 KiB.
const DefaultReceiveBuffer = 256 << 10
