package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gateway/bgp"
	"github.com/millrace/millrace/internal/strictyaml"
)

// BGP configures the speaker that announces addresses of services to routers.
type BGP struct {
	AS              uint32        // key "as", required: of the gateway
	RouterID        netip.Addr    // key "router_id", required: an IPv4 address that no other router in the AS has
	Attributes      Attributes    // of routes, where a service has no others
	GracefulRestart time.Duration // key "graceful_restart": how long routers keep the routes of a gateway that is gone; default 0 is not at all
	Drain           time.Duration // key "drain": from the community of graceful shutdown to the withdrawal, default 2s
	Peers           []BGPPeer     // key "peers", required
}

// Attributes decide which of several routes a router takes.
type Attributes struct {
	MED         *uint32         // key "med"; nil: none is sent
	LocalPref   *uint32         // key "local_preference", to peers of the same AS, default 100
	Prepend     *int            // key "prepend": how often more the own AS stands in the path, to peers of another AS, default 0
	Communities bgp.Communities // key "communities"
}

// BGPPeer is a router.
type BGPPeer struct {
	Address      netip.Addr    // key "address", required
	AS           uint32        // key "as", required
	Port         int           // key "port", default 179
	LocalAddress netip.Addr    // key "local_address": of the kernel, that the session comes from; default: by the kernel's routes
	PasswordFile string        // key "password_file": of the MD5 signatures of TCP, relative to the configuration file's folder, that only its owner and group may read
	HoldTime     time.Duration // key "hold_time", default 9s
	ConnectRetry time.Duration // key "connect_retry", default 5s
	Hops         int           // key "hops": how far it is away, default 1 for a peer of another AS, and any distance for one of the same
	TTLSecurity  bool          // key "ttl_security"
	Families     []string      // key "families", of "ipv4" and "ipv6"; default: that of address, and those of next_hop
	NextHop      []netip.Addr  // key "next_hop": of the routes, one for each family; default: the local address of the session
	MaxPrefixes  int           // key "max_prefixes": that the peer may announce, default 10000

	// Password is the content of PasswordFile, which ReadLists reads; "" without one.
	Password string
}

// Families of routes.
const (
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
)

// Limits of the configuration of BGP.
const (
	maxPeers     = 64
	maxAnnounced = 4096 // addresses: an upgrade passes them in one message
	maxBGPDrain  = 10 * time.Minute
	maxAS        = 4294967294 // RFC 7300
)

func newBGP() *BGP { return &BGP{Drain: 2 * time.Second} }

func newBGPPeer() BGPPeer {
	return BGPPeer{Port: 179, HoldTime: 9 * time.Second, ConnectRetry: 5 * time.Second, MaxPrefixes: 10000}
}

// bgpDecoder reads the speaker, its peers, and what is announced.
type bgpDecoder struct{ *decoder }

// bgpPlace is where the parts of bgp stand.
type bgpPlace struct {
	node  *yaml.Node
	keys  keyPlaces
	peers []bgpPeerPlace
}

type bgpPeerPlace struct {
	node *yaml.Node
	keys keyPlaces
}

func (d bgpDecoder) bgp(n *yaml.Node, c *Config) {
	b, k := newBGP(), keyPlaces{"": n}
	c.BGP, c.passwordAt = b, map[string]Problem{}
	d.places.bgp = bgpPlace{node: n, keys: k}
	d.Mapping(n, "bgp", append(k.under("",
		strictyaml.Required("as", func(n *yaml.Node) { d.as(n, &b.AS) }),
		strictyaml.Required("router_id", func(n *yaml.Node) {
			if a, ok := d.addr(n, "router_id"); ok {
				if b.RouterID = a; !a.Is4() {
					d.Fail(n, "an IPv4 address, also where there is IPv6 alone (RFC 6286)", "router_id cannot be %v", a)
				}
			}
		}),
		strictyaml.Optional("graceful_restart", func(n *yaml.Node) {
			d.Duration(n, "graceful_restart", &b.GracefulRestart, 0, bgp.MaxRestart)
			d.wholeSeconds(n, "graceful_restart", b.GracefulRestart)
		}),
		strictyaml.Optional("drain", func(n *yaml.Node) { d.Duration(n, "drain", &b.Drain, 0, maxBGPDrain) }),
		strictyaml.Required("peers", func(n *yaml.Node) {
			d.List(n, "peers", maxPeers, func(n *yaml.Node) {
				p := newBGPPeer()
				d.bgpPeer(n, c, &p)
				b.Peers = append(b.Peers, p)
			})
		}),
	), d.attributes(&b.Attributes)...)...)
}

// attributes returns the fields of attributes.
func (d bgpDecoder) attributes(a *Attributes) []strictyaml.Field {
	number := func(name string, to **uint32) strictyaml.Field {
		return strictyaml.Optional(name, func(n *yaml.Node) {
			var v uint32
			if strictyaml.Integer(d.Decoder, n, name, &v, 0, 1<<32-1) {
				*to = &v
			}
		})
	}
	return []strictyaml.Field{
		number("med", &a.MED), number("local_preference", &a.LocalPref),
		strictyaml.Optional("prepend", func(n *yaml.Node) {
			var v int
			if strictyaml.Integer(d.Decoder, n, "prepend", &v, 0, bgp.MaxPrepend) {
				a.Prepend = &v
			}
		}),
		strictyaml.Optional("communities", func(n *yaml.Node) {
			a.Communities = bgp.Communities{}
			d.OneOrMore(n, "communities", bgp.MaxCommunities, func(n *yaml.Node) {
				text := ""
				if !d.Text(n, "community", &text) {
					return
				}
				if err := a.Communities.Parse(text); err != nil {
					d.Fail(n, `such as "64512:100", "64512:1:100", no-export, no-advertise or blackhole`, "%s", err)
				}
			})
		}),
	}
}

// as reads the number of an autonomous system.
func (d bgpDecoder) as(n *yaml.Node, to *uint32) {
	if strictyaml.Integer(d.Decoder, n, "as", to, 1, maxAS) && (*to == 23456 || *to == 65535) {
		d.Fail(n, "such as 64512 to 65534, which are for private use (RFC 6996)", "as cannot be %d, which is reserved", *to)
	}
}

// wholeSeconds rejects parts of a second, for which the protocol has no room.
func (d bgpDecoder) wholeSeconds(n *yaml.Node, what string, v time.Duration) {
	if v%time.Second != 0 {
		d.Fail(n, "such as "+v.Round(time.Second).String(), "%s must be whole seconds, not %v", what, v)
	}
}

func (d bgpDecoder) bgpPeer(n *yaml.Node, c *Config, p *BGPPeer) {
	k := keyPlaces{"": n}
	d.places.bgp.peers = append(d.places.bgp.peers, bgpPeerPlace{n, k})
	d.Mapping(n, "a peer", k.under("",
		strictyaml.Required("address", func(n *yaml.Node) { p.Address, _ = d.addr(n, "address") }),
		strictyaml.Required("as", func(n *yaml.Node) { d.as(n, &p.AS) }),
		strictyaml.Optional("port", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "port", &p.Port, 1, 65535) }),
		strictyaml.Optional("local_address", func(n *yaml.Node) { p.LocalAddress, _ = d.addr(n, "local_address") }),
		strictyaml.Optional("password_file", func(n *yaml.Node) {
			if d.Text(n, "password_file", &p.PasswordFile) {
				c.passwordAt[p.PasswordFile] = d.Place(n.Line, n.Column)
			}
		}),
		strictyaml.Optional("hold_time", func(n *yaml.Node) {
			d.Duration(n, "hold_time", &p.HoldTime, bgp.MinHoldTime, bgp.MaxHoldTime)
			d.wholeSeconds(n, "hold_time", p.HoldTime)
		}),
		strictyaml.Optional("connect_retry", func(n *yaml.Node) { d.Duration(n, "connect_retry", &p.ConnectRetry, time.Second, time.Hour) }),
		strictyaml.Optional("hops", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "hops", &p.Hops, 1, 255) }),
		strictyaml.Optional("ttl_security", func(n *yaml.Node) { d.Truth(n, "ttl_security", &p.TTLSecurity) }),
		strictyaml.Optional("families", func(n *yaml.Node) {
			d.OneOrMore(n, "families", 2, func(n *yaml.Node) {
				var f string
				strictyaml.Choice(d.Decoder, n, "family", &f, FamilyIPv4, FamilyIPv6)
				p.Families = append(p.Families, f)
			})
		}),
		strictyaml.Optional("next_hop", func(n *yaml.Node) {
			d.OneOrMore(n, "next_hop", 2, func(n *yaml.Node) {
				if a, ok := d.addr(n, "next_hop"); ok {
					p.NextHop = append(p.NextHop, a)
				}
			})
		}),
		strictyaml.Optional("max_prefixes", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "max_prefixes", &p.MaxPrefixes, 0, 1_000_000) }),
	)...)
}

// announce reads how the addresses of a service are announced.
func (d bgpDecoder) announce(n *yaml.Node, s *Service) {
	s.Announce = &Attributes{}
	d.Mapping(n, "announce", d.attributes(s.Announce)...)
}

// Or returns the attributes with those of others where they have none.
func (a Attributes) Or(others Attributes) Attributes {
	if a.MED == nil {
		a.MED = others.MED
	}
	if a.LocalPref == nil {
		a.LocalPref = others.LocalPref
	}
	if a.Prepend == nil {
		a.Prepend = others.Prepend
	}
	if len(a.Communities.Standard)+len(a.Communities.Large) == 0 {
		a.Communities = others.Communities
	}
	return a
}

// BackendsOf returns the pools of each rule of the routes of a listener. A rule without any answers itself.
func (c *Config) BackendsOf(l *Listener) (list [][]BackendRef) {
	at := func(names []string) bool { return len(names) == 0 || slices.Contains(names, l.Name) }
	streams := map[ListenerProtocol][]StreamRoute{ListenerPass: c.TLSRoutes, ListenerTCP: c.TCPRoutes}[l.Protocol]
	for i := range streams {
		if at(streams[i].Listeners) {
			list = append(list, streams[i].BackendRefs)
		}
	}
	for i := range c.Routes {
		if r := &c.Routes[i]; l.Protocol.IsHTTP() && at(r.Listeners) {
			for k := range r.Rules {
				list = append(list, r.Rules[k].BackendRefs)
			}
		}
	}
	return list
}

// readPasswords reads the files of passwords.
func (b *BGP) readPasswords(c *Config) (list []Problem) {
	for i := range b.Peers {
		p := &b.Peers[i]
		if p.PasswordFile == "" {
			continue
		}
		lines, err := secretLines(c.Beside(p.PasswordFile))
		switch {
		case err != nil:
		case len(lines) > 1:
			err = fmt.Errorf("%s has %d lines; one is allowed", c.Beside(p.PasswordFile), len(lines))
		case len(lines[0]) == 0 || len(lines[0]) > bgp.MaxPassword:
			err = fmt.Errorf("%s has %d characters; 1 to %d are allowed (RFC 2385)", c.Beside(p.PasswordFile), len(lines[0]), bgp.MaxPassword)
		}
		if err != nil {
			list = append(list, keyProblem(c.passwordAt[p.PasswordFile], "the password of a peer cannot be read: "+err.Error(), "a line with the password that the router has for this gateway"))
			continue
		}
		p.Password = lines[0]
	}
	return list
}
