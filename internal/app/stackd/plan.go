package stackd

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Plan describes the device's configuration for people.
func (v *Device) Plan() string {
	var how []string
	for _, p := range v.Addresses {
		how = append(how, p.String())
	}
	if v.DHCP {
		how = append(how, "what DHCP gives")
	}
	if v.SLAAC {
		how = append(how, "what routers advertise")
	}
	return fmt.Sprintf("%s, driver %s, queues %d, takes %s", strings.Join(how, ", "), v.Driver, v.Queues, v.Take)
}

// Plan describes the service's place for people.
func (s *Service) Plan() string {
	host, protocols := "", "tcp"
	if s.Address.IsValid() {
		host = s.Address.String()
	}
	if s.Kind.Datagrams() {
		protocols = "tcp, udp"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(s.Port))) + " " + protocols
}

// ParseRoute reads a route written as NETWORK=GATEWAY, such as default=198.18.0.1.
func ParseRoute(text string) (r Route, err error) {
	to, via, ok := strings.Cut(text, "=")
	if r.Via, err = netip.ParseAddr(via); !ok || err != nil {
		return r, fmt.Errorf("%s: say NETWORK=GATEWAY, such as default=198.18.0.1", text)
	}
	if to == "default" {
		r.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if r.Via.Is4() {
			r.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		return r, nil
	}
	if r.To, err = netip.ParsePrefix(to); err != nil || r.To != r.To.Masked() || r.To.Addr().Is4() != r.Via.Is4() {
		return r, fmt.Errorf("%s: %q is no network of the gateway's address family", text, to)
	}
	return r, nil
}
