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

// Multicast reports whether a is a group: 224.0.0.0/4 or ff00::/8.
func (a Addr) Multicast() bool {
	if a.Is4() {
		return a[12]&0xf0 == 0xe0
	}
	return a[0] == 0xff
}

// LinkLocal reports whether a is of link-local scope: 169.254.0.0/16, fe80::/10.
func (a Addr) LinkLocal() bool {
	if a.Is4() {
		return a[12] == 169 && a[13] == 254
	}
	return a[0] == 0xfe && a[1]&0xc0 == 0x80
}

// Loopback reports whether a is of 127.0.0.0/8 or ::1: never on a wire (RFC 1122 3.2.1.3, RFC 4291 2.5.3).
func (a Addr) Loopback() bool {
	if a.Is4() {
		return a[12] == 127
	}
	return a == Addr{15: 1}
}

// Unspecified reports whether a is 0.0.0.0 or ::.
func (a Addr) Unspecified() bool {
	return a == Addr{} || a == Unspecified4
}

// The addresses that mean nobody in particular, and everybody.
var (
	Unspecified4 = From4([4]byte{})
	Broadcast4   = From4([4]byte{255, 255, 255, 255})
)
