package main

import (
	"errors"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// Addresses of suite shim, and the CPUs of its sides.
const (
	hostAddr = "198.18.77.2"
	peerAddr = "198.18.77.1"
	peerCPU  = 0
	hostCPU  = 1
	nodeCPU  = 2 // of contestants whose node is apart
)

// A pair is the network of suite shim: host -- peer.
type pair struct {
	net        *testnet.Net
	host, peer *testnet.Namespace
}

// pairPrefixes are those of namespaces, see sitePrefixes.
var pairPrefixes = []string{"mr-shim", "mr-shimb", "mr-shimc", "mr-shimd"}

// newPair makes the network. kernel is that the kernel has the address of the host; otherwise a node takes every packet.
func newPair(kernel bool) (*pair, error) {
	n, err := testnet.New(pairPrefixes[0])
	for _, prefix := range pairPrefixes[1:] {
		if errors.Is(err, testnet.ErrInUse) {
			n, err = testnet.New(prefix)
		}
	}
	if err != nil {
		return nil, err
	}
	p := &pair{net: n, host: n.Namespace("host"), peer: n.Namespace("peer")}
	if err := p.links(kernel); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return p, nil
}

func (p *pair) close() error { return p.net.Close() }

func (p *pair) links(kernel bool) error {
	if err := p.net.Link(p.host, devName, p.peer, devName); err != nil {
		return err
	}
	var addrs []string
	if kernel {
		addrs = append(addrs, hostAddr+"/24")
	}
	for _, ns := range []*testnet.Namespace{p.host, p.peer} {
		err := errors.Join(ns.Sysctl("net.ipv6.conf.all.disable_ipv6", "1"), ns.Sysctl("net.ipv4.ip_local_port_range", "1024 65535"), ns.NoOffload(devName))
		if err != nil {
			return err
		}
	}
	return errors.Join(p.host.Up(devName, addrs...), p.peer.Up(devName, peerAddr+"/24"))
}
