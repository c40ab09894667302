package ip

// AnyPort stands for a port that the caller leaves open.
const AnyPort uint8 = 255

// Kind is what an address is to this host.
type Kind uint8

// The kinds of addresses.
const (
	NotLocal  Kind = iota // of somebody else
	Unicast               // an address of this host
	Broadcast             // limited or directed (RFC 919, RFC 922)
	Multicast             // a group that the port is a member of
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"not_local", "unicast", "broadcast", "multicast"}[k&3]
}
