package config

import (
	"cmp"
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// AllPorts is the value of `*` in place of a port: the ports that no other address names.
var AllPorts = PortRange{First: 1, Last: 65535}

// AddrPorts is an address with a port or a range of ports. The zero PortRange stands for the port of the client's packet,
// of a backend: in direct modes, and where a service with a range keeps it.
type AddrPorts struct {
	addr  netip.Addr
	ports PortRange
}

// Errors of ParseAddrPorts.
var (
	errPortZero      = errors.New("port 0")
	errPortsReversed = errors.New("the first port is above the last")
)

// AddrPortsFrom returns an address with ports.
func AddrPortsFrom(a netip.Addr, ports PortRange) AddrPorts { return AddrPorts{a, ports} }

// ParseAddrPorts parses an address with one port ("198.18.0.1:80"), a range ("198.18.0.1:8000-8099") or all
// ("198.18.0.1:*").
func ParseAddrPorts(s string) (AddrPorts, error) {
	i := strings.LastIndexByte(s, ':')
	first, last, isRange := strings.Cut(s[i+1:], "-")
	ap, err := netip.ParseAddrPort(s[:i+1] + strings.Replace(first, "*", "1", 1))
	switch {
	case err != nil:
		return AddrPorts{}, err
	case first == "*" && !isRange:
		return AddrPorts{ap.Addr(), AllPorts}, nil
	case strings.Contains(first, "*"):
		return AddrPorts{}, errors.New("* stands alone")
	}
	ports := PortRange{ap.Port(), ap.Port()}
	if isRange {
		n, err := strconv.ParseUint(last, 10, 16)
		if err != nil {
			return AddrPorts{}, err
		}
		ports.Last = uint16(n)
	}
	switch {
	case ports.First == 0 || ports.Last == 0:
		return AddrPorts{}, errPortZero
	case ports.First > ports.Last:
		return AddrPorts{}, errPortsReversed
	}
	return AddrPorts{ap.Addr(), ports}, nil
}

// Addr returns the address.
func (a AddrPorts) Addr() netip.Addr { return a.addr }

// Ports returns the ports.
func (a AddrPorts) Ports() PortRange { return a.ports }

// Port returns the first port, 0 where the client's port is kept.
func (a AddrPorts) Port() uint16 { return a.ports.First }

// IsRange reports whether there are several ports.
func (a AddrPorts) IsRange() bool { return a.ports.First != a.ports.Last }

// First returns the address with the first port.
func (a AddrPorts) First() netip.AddrPort { return netip.AddrPortFrom(a.addr, a.ports.First) }

// String returns the form that ParseAddrPorts reads.
func (a AddrPorts) String() string {
	if !a.IsRange() {
		return a.First().String()
	}
	ports := "*"
	if a.ports != AllPorts {
		ports = strconv.Itoa(int(a.ports.First)) + "-" + strconv.Itoa(int(a.ports.Last))
	}
	if a.addr.Is4() {
		return a.addr.String() + ":" + ports
	}
	return "[" + a.addr.String() + "]:" + ports
}

// MarshalText implements encoding.TextMarshaler.
func (a AddrPorts) MarshalText() ([]byte, error) {
	if !a.addr.IsValid() {
		return nil, nil
	}
	return []byte(a.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. Unlike ParseAddrPorts it takes port 0.
func (a *AddrPorts) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*a = AddrPorts{}
		return nil
	}
	if ap, err := netip.ParseAddrPort(string(b)); err == nil && ap.Port() == 0 {
		*a = AddrPorts{addr: ap.Addr()}
		return nil
	}
	*a, err = ParseAddrPorts(string(b))
	return err
}

// Equal reports whether a and b are the same; go-cmp asks it.
func (a AddrPorts) Equal(b AddrPorts) bool { return a == b }

// Compare orders by address, then by ports.
func (a AddrPorts) Compare(b AddrPorts) int {
	return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.ports.First, b.ports.First), cmp.Compare(a.ports.Last, b.ports.Last))
}

// Overlaps reports whether two ranges have a port in common.
func (r PortRange) Overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

// HasRange reports whether the service listens on a range of ports.
func (s *Service) HasRange() bool {
	for _, a := range s.Addresses {
		if a.IsRange() {
			return true
		}
	}
	return false
}

// KeepsPort reports whether packets reach the address of a backend of s, in mode nat, with the port that the client sent
// them to.
func (s *Service) KeepsPort(a AddrPorts) bool { return !s.Mode.Direct() && a.Port() == 0 }
