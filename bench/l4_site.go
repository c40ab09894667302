package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// Addresses of the l4 site. Probes come from networks that are routed to the client, which does not
// have them: what answers them gets lost there.
const (
	clientAddr  = "198.18.0.2"
	frontAddr   = "198.18.0.1"
	serviceAddr = "198.18.0.10"
	backAddr    = "198.18.1.1"
	backendAddr = "198.18.1.2"
	manyClients = "198.18.64.0" // a /18 and the next, of sources of probes
	spoofed     = "198.19.0.0"  // a /16 of sources of floods

	udpPort, echoPort  = 53, 5353 // of the UDP service, and of the backend's end of it
	tcpPort, servePort = 80, 8080 // of the TCP service
	iperfPort          = role.BulkPort
)

// A site is the network of suite l4, made anew for every run so that nothing of a contestant meets
// the next: client -- front gateway back -- backend.
type site struct {
	net                      *testnet.Net
	client, gateway, backend *testnet.Namespace
	frontMAC                 string
}

// sitePrefixes are those of namespaces: the first that no other process, such as a test, has. None
// begins another with a dash behind it.
var sitePrefixes = []string{"mr-l4", "mr-l4b", "mr-l4c", "mr-l4d"}

// siteOptions are what contestants differ in.
type siteOptions struct {
	router bool   // the kernel of the gateway forwards
	wire   bool   // client and backend send what a wire carries: no segments beyond the MTU, checksums filled in
	sums   bool   // client and backend fill checksums in, as AF_XDP needs; part of wire
	ends   bool   // client and backend have NAPI, too: gro there, and the gateway sends what a wire carries, without which veth does not use it
	gro    bool   // the gateway's devices merge what they receive; it also gives veth its NAPI, without which it takes no live frames
	local  bool   // the service address is the gateway's own
	rules  string // nft rules of the gateway
}

func newSite(o siteOptions) (s *site, err error) {
	n, err := testnet.New(sitePrefixes[0])
	for _, prefix := range sitePrefixes[1:] {
		if errors.Is(err, testnet.ErrInUse) {
			n, err = testnet.New(prefix)
		}
	}
	if err != nil {
		return nil, err
	}
	s = &site{net: n, client: n.Namespace("client"), gateway: n.Namespace("gateway"), backend: n.Namespace("backend")}
	for _, step := range []func(siteOptions) error{s.links, s.neighbours, s.routes, s.kernel} {
		if err := step(o); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return s, nil
}

func (s *site) close() error { return s.net.Close() }

// links joins the namespaces. IPv6 is off so that nothing but the contestants' packets is on the
// wires.
func (s *site) links(o siteOptions) error {
	err := errors.Join(s.net.Link(s.client, devName, s.gateway, role.FrontDev), s.net.Link(s.gateway, role.BackDev, s.backend, devName))
	if err != nil {
		return err
	}
	for _, ns := range []*testnet.Namespace{s.client, s.gateway, s.backend} {
		for _, key := range []string{"ipv6.conf.all.disable_ipv6=1", "ipv6.conf.default.disable_ipv6=1", "ipv4.conf.all.rp_filter=0", "ipv4.conf.default.rp_filter=0"} {
			name, value, _ := strings.Cut(key, "=")
			if err := ns.Sysctl("net."+name, value); err != nil {
				return err
			}
		}
	}
	for _, end := range []*testnet.Namespace{s.client, s.backend} {
		switch {
		case o.wire:
			err = end.NoOffload(devName)
		case o.sums:
			_, err = end.Run("ethtool", "-K", devName, "tx", "off")
		}
		if err == nil && o.ends {
			_, err = end.Run("ethtool", "-K", devName, "gro", "on")
		}
		if err != nil {
			return err
		}
	}
	for _, dev := range []string{role.FrontDev, role.BackDev} {
		if o.gro {
			_, err = s.gateway.Run("ethtool", "-K", dev, "gro", "on")
		}
		if o.ends && err == nil {
			_, err = s.gateway.Run("ethtool", "-K", dev, "tx", "off")
		}
		if err != nil {
			return err
		}
	}
	front := []string{frontAddr + "/24"}
	if o.local {
		front = append(front, serviceAddr+"/24")
	}
	backend := []string{backendAddr + "/24"}
	for i := range manyBackends {
		backend = append(backend, backendN(i)+"/24")
	}
	return errors.Join(
		s.client.Up(devName, clientAddr+"/24"), s.backend.Up(devName, backend...),
		s.gateway.Up(role.FrontDev, front...), s.gateway.Up(role.BackDev, backAddr+"/24"),
	)
}

// neighbours makes the link addresses known for good: sinks take all packets, ARP too.
func (s *site) neighbours(siteOptions) error {
	var client, backend, front, back net.HardwareAddr
	err := errors.Join(macOf(s.client, devName, &client), macOf(s.backend, devName, &backend),
		macOf(s.gateway, role.FrontDev, &front), macOf(s.gateway, role.BackDev, &back))
	if err != nil {
		return err
	}
	s.frontMAC = front.String()
	err = errors.Join(
		s.client.Do(func() error {
			return errors.Join(known(devName, front, frontAddr), known(devName, front, serviceAddr))
		}),
		s.backend.Do(func() error {
			err := known(devName, back, backAddr)
			for i := range 6 {
				err = errors.Join(err, known(devName, back, snatN(i)))
			}
			return err
		}),
	)
	if err != nil {
		return err
	}
	return s.gateway.Do(func() error {
		err := known(role.FrontDev, client, clientAddr)
		err = errors.Join(err, known(role.BackDev, backend, backendAddr))
		for i := range manyBackends {
			err = errors.Join(err, known(role.BackDev, backend, backendN(i)))
		}
		return err
	})
}

func macOf(ns *testnet.Namespace, dev string, mac *net.HardwareAddr) error {
	return ns.Do(func() error {
		in, err := net.InterfaceByName(dev)
		if err == nil {
			*mac = in.HardwareAddr
		}
		return err
	})
}

func known(dev string, mac net.HardwareAddr, addr string) error {
	in, err := net.InterfaceByName(dev)
	if err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: in.Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(addr), HardwareAddr: mac,
	})
}

func (s *site) routes(siteOptions) error {
	return errors.Join(
		s.gateway.Route(manyClients+"/18", clientAddr), s.gateway.Route("198.18.128.0/18", clientAddr),
		s.gateway.Route(spoofed+"/16", clientAddr),
		s.backend.Route("default", backAddr), s.client.Route("default", frontAddr),
	)
}

// kernel makes the gateway's kernel a router where it is the contestant.
func (s *site) kernel(o siteOptions) error {
	if o.local { // nginx has a source port for each flow
		if err := s.gateway.Sysctl("net.ipv4.ip_local_port_range", "1024 65535"); err != nil {
			return err
		}
	}
	if o.router {
		if err := s.gateway.Sysctl("net.ipv4.ip_forward", "1"); err != nil {
			return err
		}
	}
	if o.rules == "" {
		return nil
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(o.rules)
	var said strings.Builder
	cmd.Stderr = &said
	if err := s.gateway.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// manyBackends is the number of addresses that the backend has beside its first: a million connections need
// more source ports than one pair of addresses has.
const manyBackends = 16

// snatN is a source address of our gateway towards backends.
func snatN(i int) string { return fmt.Sprintf("198.18.1.%d", 11+i) }

func backendN(i int) string { return fmt.Sprintf("198.18.1.%d", 101+i) }

// The rules of the kernel's contestants. dnat is all that a router in the path needs; with snat the
// backend sees the gateway, as it does behind millrace's `source: gateway`.
const (
	dnatRules = `table ip bench {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr ` + serviceAddr + ` udp dport 53 dnat to ` + backendAddr + `:5353
		ip daddr ` + serviceAddr + ` tcp dport 80 dnat to ` + backendAddr + `:8080
		ip daddr ` + serviceAddr + ` tcp dport 5201 dnat to ` + backendAddr + `:5201
	}
}
`
	snatRules = dnatRules + `table ip bench {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "` + role.BackDev + `" snat to ` + backAddr + `
	}
}
`
)
