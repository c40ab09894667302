package config

import (
	"net/netip"
	"slices"

	"go.yaml.in/yaml/v3"
)

// bgpChecker compares bgp with other parts of the file.
type bgpChecker struct{ *checker }

// check compares bgp with the services that are announced.
func (d bgpChecker) check(c *Config) {
	if c.BGP == nil {
		for i := range c.Services {
			if at := &d.places.services[i]; at.announce != nil {
				d.Fail(at.announce, "add bgp with peers, or leave it out", "announce has no effect: there are no routers to announce the service to")
			}
		}
		for i := range c.Listeners {
			if at := &d.places.listeners[i]; at.announce != nil {
				d.Fail(at.announce, "add bgp with peers, or leave it out", "announce has no effect: there are no routers to announce the listener to")
			}
		}
		return
	}
	if c.Sync != nil && c.Sync.Role != nil { // a standby serves nothing, and would announce all the same
		d.Fail(d.places.bgp.node, "leave role out of sync: with bgp both gateways are active", "bgp cannot go with sync.role: routers would lead packets to the standby")
	}
	lines, own := map[string]int{}, d.ownAddresses(c)
	for i := range c.BGP.Peers {
		p, at := &c.BGP.Peers[i], &d.places.bgp.peers[i]
		if !p.Address.IsValid() {
			continue
		}
		d.unique(lines, p.Address.String(), at.keys["address"], "peer")
		d.checkPeer(c, p, at, own)
	}
	d.checkAnnounced(c)
}

// ownAddresses returns addresses that the gateway serves itself, and what they are. The kernel gets no packets of theirs.
func (d bgpChecker) ownAddresses(c *Config) map[netip.Addr]string {
	own := map[netip.Addr]string{}
	for i := range c.Services {
		for _, a := range c.Services[i].Addresses {
			own[a.Addr()] = "an address of service " + c.Services[i].Name
		}
	}
	for _, a := range c.SNAT {
		own[a] = "an snat address"
	}
	for i := range c.Devices {
		for _, p := range c.Devices[i].Addresses {
			own[p.Addr()] = "an address of `stack: devices`"
		}
	}
	return own
}

// checkPeer checks the addresses and families of a peer.
func (d bgpChecker) checkPeer(c *Config, p *BGPPeer, at *bgpPeerPlace, own map[netip.Addr]string) {
	if what := own[p.Address]; what != "" {
		d.Fail(at.keys["address"], "name the router", "peer %v is this gateway: it is %s", p.Address, what)
	}
	if p.LocalAddress.IsValid() {
		if what := own[p.LocalAddress]; what != "" {
			d.Fail(at.keys["local_address"], "the session is one of the kernel's TCP: take an address that `ip address` shows, or leave it out",
				"local_address %v is %s, of which the kernel gets no packets", p.LocalAddress, what)
		}
		if p.LocalAddress.Is4() != p.Address.Is4() {
			d.Fail(at.keys["local_address"], "", "local_address %v is %s, but the peer is %s", p.LocalAddress, family(p.LocalAddress), family(p.Address))
		}
	}
	if p.TTLSecurity && p.Hops == 0 && p.AS == c.BGP.AS {
		d.Fail(at.keys["ttl_security"], "set hops", "ttl_security needs to know how far a peer of the same AS is away")
	}
	if len(p.NextHop) == 2 && p.NextHop[0].Is4() == p.NextHop[1].Is4() {
		d.Fail(at.keys["next_hop"], "", "next_hop has two %s addresses", family(p.NextHop[0]))
	}
	for i, f := range p.Families {
		if slices.Contains(p.Families[:i], f) {
			d.Fail(at.keys["families"], "", "families has %s twice", f)
		}
		if f != familyName(p.Address) && !hasFamily(p.NextHop, likeFamily(f)) {
			d.Fail(at.keys["families"], "add an address of the gateway to next_hop, or leave the family out",
				"the session is %s: %s routes need a next_hop", family(p.Address), f)
		}
	}
	for _, a := range p.NextHop {
		if len(p.Families) > 0 && !slices.Contains(p.Families, familyName(a)) {
			d.Fail(at.keys["next_hop"], "add it to families, or leave it out", "next_hop %v is %s, and families is without %s", a, family(a), familyName(a))
		}
	}
}

// FamiliesOf returns the families that are announced to a peer.
func (p *BGPPeer) FamiliesOf() []string {
	if len(p.Families) > 0 {
		return p.Families
	}
	list := []string{familyName(p.Address)}
	for _, a := range p.NextHop {
		if f := familyName(a); !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	return list
}

func familyName(a netip.Addr) string {
	if a.Is4() {
		return FamilyIPv4
	}
	return FamilyIPv6
}

// likeFamily returns an address of a family.
func likeFamily(name string) netip.Addr {
	if name == FamilyIPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// checkAnnounced reports announced addresses that no peer learns, and too many of them.
func (d bgpChecker) checkAnnounced(c *Config) {
	speaks, all := map[string]bool{}, map[netip.Addr]bool{}
	for i := range c.BGP.Peers {
		if !c.BGP.Peers[i].Address.IsValid() {
			return
		}
		for _, f := range c.BGP.Peers[i].FamiliesOf() {
			speaks[f] = true
		}
	}
	heard := func(a netip.Addr, n *yaml.Node, what, name string) {
		if all[a] = true; !speaks[familyName(a)] {
			d.Fail(n, "add "+familyName(a)+" to families of a peer, with a next_hop", "address %v of %s %q is announced to no peer: none has %s", a, what, name, familyName(a))
		}
	}
	for i := range c.Services {
		if s := &c.Services[i]; s.Announce != nil {
			for j, a := range s.Addresses {
				heard(a.Addr(), d.places.services[i].addresses[j], "service", s.Name)
			}
		}
	}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		for j, a := range l.Addresses {
			switch n := d.places.listeners[i].addresses[j]; {
			case l.Announce == nil:
			case a.Addr().IsUnspecified():
				d.Fail(n, "give the listener the address that routers are to have", "listener %q has all addresses, none of which can be announced", l.Name)
			default:
				heard(a.Addr(), n, "listener", l.Name)
			}
		}
	}
	if len(all) > maxAnnounced {
		d.Fail(d.places.bgp.node, "leave announce out of some services and listeners, or spread them over gateways", "%d addresses are announced; at most %d are allowed", len(all), maxAnnounced)
	}
}

// internalPeer and externalPeer report whether any peer is of the gateway's AS, or of another one.
func (b *BGP) internalPeer() bool {
	return slices.ContainsFunc(b.Peers, func(p BGPPeer) bool { return p.AS == b.AS })
}

func (b *BGP) externalPeer() bool {
	return slices.ContainsFunc(b.Peers, func(p BGPPeer) bool { return p.AS != b.AS })
}
