package control

import (
	"net/netip"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/stack"
)

// Network is a prefix of the addresses on the link of a port.
type Network struct {
	Prefix netip.Prefix
	Dev    uint8
	VLAN   uint16 // tag of its frames; 0 is none
}

// Announcement is a frame that announces the link address of an address to the hosts of a link.
type Announcement struct {
	Addr  netip.Addr
	Dev   uint8
	Frame []byte
}

// Announcements returns what the hosts of networks have to hear when the gateway takes over addresses:
// at its start, when a service comes, when a link comes up, when a link address changes. They are for
// service and SNAT addresses in these networks; for those that the kernel has itself it speaks. IPv4
// addresses are announced by ARP requests for themselves (RFC 5227 2.3, RFC 5944 4.6), IPv6 ones by
// unsolicited advertisements (RFC 4861 7.2.6). Neither is answered, so they are to be sent a few times.
func (g *Gateway) Announcements(networks []Network) (list []Announcement) {
	if !g.AnswersNow() {
		return nil
	}
	s := g.snap.Load()
	g.mu.Lock()
	kernels := g.kernelAddrs()
	g.mu.Unlock()
	for _, a := range g.Announced() {
		if kernels[a] {
			continue
		}
		for _, n := range networks {
			if n.Prefix.Contains(a) && int(n.Dev) < len(s.Devices) {
				list = append(list, Announcement{a, n.Dev, datapath.AnnounceFrame(a, s.Devices[n.Dev].MAC, n.VLAN)})
			}
		}
	}
	return list
}

// answering says until when a gateway with a role answers for its addresses: a clock.Time.
type answering struct{ until atomic.Int64 }

// now reports whether it does now. A loop calls it.
func (a *answering) now() bool { return stack.Now() < clock.Time(a.until.Load()) }

// SetAnswers has a gateway with a role answer for its addresses until a time, at once; 0 is not at all. Where it begins or
// ceases to, the caller has the node steer by the new claims: until then the kernel gets the questions, and is silent.
func (g *Gateway) SetAnswers(until clock.Time) { g.answers.until.Store(int64(until)) }

// Answers reports whether the gateway answers for its addresses: always without a role.
func (g *Gateway) Answers() bool { return g.answers == nil || g.answers.until.Load() > 0 }

// AnswersNow is Answers by the clock: a process that was suspended may not answer any more, and does not know yet.
func (g *Gateway) AnswersNow() bool { return g.answers == nil || g.answers.now() }

// Announced returns the addresses that the gateway answers for while it is active, each once.
func (g *Gateway) Announced() (list []netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := map[netip.Addr]bool{}
	add := func(a netip.Addr) {
		if !seen[a] {
			seen[a] = true
			list = append(list, a)
		}
	}
	for i := range g.cfg.Services {
		for _, ap := range g.cfg.Services[i].Addresses {
			add(ap.Addr())
		}
	}
	for _, a := range g.cfg.SNAT {
		add(a)
	}
	return list
}
