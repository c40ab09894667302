package notify

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes of addresses, in bytes. That of IPv6 had no scope in RFC 2133.
const (
	sizeInet     = 16
	sizeInet6    = 28
	sizeInet6Old = 24
	maxSockaddr  = 128 // struct sockaddr_storage
)

// family returns the family of an address; EINVAL is that it is too short for one.
func family(b []byte) (uint16, error) {
	if len(b) < 2 {
		return 0, syscall.EINVAL
	}
	return binary.NativeEndian.Uint16(b), nil
}

// decodeAddress reads the struct sockaddr_in, or sockaddr_in6, of a socket of that family. Lengths come first, as in the kernel.
func decodeAddress(b []byte, v6 bool) (a netip.AddrPort, scope uint32, err error) {
	switch f, _ := family(b); {
	case !v6 && len(b) < sizeInet, v6 && len(b) < sizeInet6Old:
		return a, 0, syscall.EINVAL
	case !v6 && f == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), 0, nil
	case v6 && f == unix.AF_INET6:
		if len(b) >= sizeInet6 {
			scope = binary.NativeEndian.Uint32(b[24:])
		}
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), binary.BigEndian.Uint16(b[2:])), scope, nil
	}
	return a, 0, syscall.EAFNOSUPPORT
}

// encodeAddress returns the struct sockaddr_in or sockaddr_in6 of an address. A socket of IPv6 shows IPv4 addresses as mapped
// ones (RFC 4291, 2.5.5.2).
func encodeAddress(a netip.AddrPort, v6 bool) []byte {
	if !v6 {
		b := make([]byte, sizeInet)
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		binary.BigEndian.PutUint16(b[2:], a.Port())
		if a.Addr().Is4() {
			ip := a.Addr().As4()
			copy(b[4:], ip[:])
		}
		return b
	}
	b := make([]byte, sizeInet6)
	binary.NativeEndian.PutUint16(b, unix.AF_INET6)
	binary.BigEndian.PutUint16(b[2:], a.Port())
	if a.Addr().IsValid() {
		ip := a.Addr().As16()
		copy(b[8:], ip[:])
	}
	return b
}

// readAddress reads the address that an argument names, of the length in the next one.
func (c *call) readAddress(arg int) ([]byte, error) {
	n := int32(uint32(c.args[arg+1]))
	if n < 0 || n > maxSockaddr {
		return nil, syscall.EINVAL
	}
	b := make([]byte, n)
	return b, c.read(c.args[arg], b)
}

// readLength reads the length behind a pointer.
func (c *call) readLength(at uint64) (int, error) {
	var b [4]byte
	if err := c.read(at, b[:]); err != nil {
		return 0, err
	}
	n := int32(binary.NativeEndian.Uint32(b[:]))
	if n < 0 {
		return 0, syscall.EINVAL
	}
	return int(n), nil
}

// writeAddress writes an address where an argument points to, cut off at space, and its length where the next one does.
func (c *call) writeAddress(arg, space int, b []byte) error {
	if err := c.write(c.args[arg], b[:min(space, len(b))]); err != nil {
		return err
	}
	return c.writeLength(c.args[arg+1], len(b))
}

func (c *call) writeLength(at uint64, n int) error {
	return c.write(at, binary.NativeEndian.AppendUint32(nil, uint32(n)))
}
