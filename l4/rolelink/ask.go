package rolelink

import (
	"context"
	"iter"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/wire"
)

// Link is a network on a device, with addresses that the gateways answer for there.
type Link struct {
	Device string
	VLAN   uint16 // 802.1Q tag of its frames; 0 is none
	MAC    wire.MAC
	Addrs  []netip.Addr // all; some are asked for, since a gateway answers for all of its own or none
	Watch  []netip.Addr // of hosts there that answer as long as this gateway reaches the network
}

// asker asks the hosts of links whether one answers for an address, and exchanges claims with other gateways. Its sockets see what the
// kernel sees of a device: the driver leaves ARP and neighbour discovery there that no service claims, replies to questions without
// a sender's address, and claims.
type asker struct {
	r        *Runner
	socks    map[string]*sock
	claimers map[wire.MAC]time.Time // when each has sent a claim, maxClaimers at most
}

// maxClaimers bounds asker.claimers.
const maxClaimers = 64

func newAsker(r *Runner) *asker {
	return &asker{r: r, socks: map[string]*sock{}, claimers: map[wire.MAC]time.Time{}}
}

// idleAfter is the time after the last question after which the sockets are closed: each costs the kernel a filter for each of
// its packets.
const idleAfter = 3 * time.Second

// pollEvery is the interval at which the sockets are read for idleAfter.
const pollEvery = 2 * time.Millisecond

// run asks and claims when the machine wants it, and reads what comes, until ctx ends.
func (a *asker) run(ctx context.Context) {
	defer a.close()
	a.r.describe()
	every := time.NewTicker(a.r.cfg.Role.Lease) // the kernel's networks change without a reload
	defer every.Stop()
	watch := time.NewTicker(a.r.cfg.Role.Lease / watchesInLease)
	defer watch.Stop()
	var until time.Time
	for {
		var tick <-chan time.Time
		if a.r.listens.Load() || a.r.watches.Load() || time.Now().Before(until) {
			tick = time.After(pollEvery)
		} else {
			a.close()
		}
		select {
		case <-ctx.Done():
			return
		case <-a.r.probe:
			until = time.Now().Add(idleAfter)
			a.send()
		case <-a.r.changed:
			a.r.describe()
		case <-every.C:
			a.r.describe()
		case <-watch.C:
			if a.r.watches.Load() {
				a.watch()
			}
		case <-tick:
		}
		a.read()
	}
}

func (a *asker) close() {
	for dev, s := range a.socks {
		unix.Close(s.fd)
		delete(a.socks, dev)
	}
}

// describe has the machine tell the peer of the addresses of this gateway.
func (r *Runner) describe() {
	links, err := r.cfg.Links()
	if err != nil {
		return // as in ask
	}
	addrs, known, n := describe(r.cfg.Addrs(), links), r.peerSample(), 0
	watched := 0
	for i := range links {
		n += len(questions(links[i].Addrs, known))
		watched += len(links[i].Watch)
	}
	r.asks.Store(int64(n))
	r.watches.Store(watched > 0 && !r.suspended())
	r.do(func(m *role.Machine, now clock.Time) {
		m.SetAddrs(now, addrs)
		if watched == 0 {
			m.Unwatch()
		}
	})
}

// peerSample returns addresses that the peer answers for while it is active, by its last message: also of a peer that is not heard.
func (r *Runner) peerSample() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Picture(r.cfg.Now()).Peer.Addrs.Sample
}

// send sends what the machine wants on each link: a question for each address that is asked for, and a claim.
func (a *asker) send() {
	asks, claim := a.r.wanted()
	known := a.r.peerSample()
	for s, l := range a.links() {
		list := questions(l.Addrs, known)
		s.asks = append(s.asks, list...)
		for _, addr := range list {
			if asks {
				s.send(question(addr, l.MAC, l.VLAN))
			}
		}
		if claim.State != role.Joining {
			s.send(claimFrame(claim, l))
		}
	}
	if asks {
		a.r.probes.Add(1)
		a.r.do(func(m *role.Machine, now clock.Time) { m.Asked(now) })
	}
}

// links yields each link with the socket of its device, open.
func (a *asker) links() iter.Seq2[*sock, *Link] {
	links, err := a.r.cfg.Links()
	if err != nil {
		links = nil // the kernel's networks cannot be read now; the machine asks again
	}
	for _, s := range a.socks {
		s.links, s.asks = s.links[:0], s.asks[:0]
	}
	return func(yield func(*sock, *Link) bool) {
		for i := range links {
			l := &links[i]
			s := a.socks[l.Device]
			if s == nil {
				if s, err = openSock(l.Device); err != nil {
					continue // a device that is gone has no hosts
				}
				a.socks[l.Device] = s
			}
			s.links = append(s.links, *l)
			if !yield(s, l) {
				return
			}
		}
	}
}

// watchesInLease is the number of questions for each watched address in a lease: four may be lost before it does not answer any more.
const watchesInLease = 6

// watch asks for the watched addresses. Like the questions these have no sender's address, which a standby may not have.
func (a *asker) watch() {
	known := a.r.peerSample()
	for s, l := range a.links() {
		s.asks = append(s.asks, questions(l.Addrs, known)...)
		for _, addr := range l.Watch {
			s.send(question(addr, l.MAC, l.VLAN))
		}
	}
}

// send sends a frame. One that the device does not take is lost, as in the network.
func (s *sock) send(b []byte) {
	_ = unix.Sendto(s.fd, b, 0, &unix.SockaddrLinklayer{Ifindex: s.index})
}

// wanted returns what is to be sent, and takes it.
func (r *Runner) wanted() (asks bool, claim role.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asks, claim = r.asksNow, r.claim
	r.asksNow, r.claim = false, role.Claim{}
	if claim.State != r.machine.State() {
		claim = role.Claim{} // it is not true any more
	}
	return asks, claim
}

// read handles all frames that are there.
func (a *asker) read() {
	at := a.r.cfg.Now()
	buf := make([]byte, 2048)
	for _, s := range a.socks {
		for range 256 {
			n, from, err := unix.Recvfrom(s.fd, buf, unix.MSG_DONTWAIT)
			if err != nil {
				break // EAGAIN, or the device is gone
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			a.take(s, buf[:n])
		}
	}
	if a.r.probing.Load() {
		a.r.do(func(m *role.Machine, _ clock.Time) { m.Listened(at) })
	}
}

// take handles a frame.
func (a *asker) take(s *sock, b []byte) {
	if mac, claim, ok := s.claimOf(b); ok {
		a.claimed(mac, &claim)
		return
	}
	switch mac, kind := s.classify(b); kind {
	case watched:
		a.r.do(func(m *role.Machine, now clock.Time) { m.Reached(now) })
	case answer:
		a.r.answered(mac)
	case rival:
		if at, ok := a.claimers[mac]; ok && time.Since(at) < claimerFor {
			return // its claims count
		}
		a.r.do(func(m *role.Machine, now clock.Time) {
			a.r.rival = mac.String()
			m.Rivalled(now)
		})
	}
}

// claimerFor is the time for which a gateway that has sent a claim is known to send them.
const claimerFor = time.Minute

// claimed handles a claim of another gateway.
func (a *asker) claimed(mac wire.MAC, claim *role.Claim) {
	if len(a.claimers) >= maxClaimers {
		clear(a.claimers)
	}
	a.claimers[mac] = time.Now()
	a.r.do(func(m *role.Machine, now clock.Time) {
		if claim.State == role.Active {
			a.r.by = mac.String()
		} else {
			a.r.rival = mac.String()
		}
		m.Contested(now, claim)
	})
}

// answered handles that a host answers for an address.
func (r *Runner) answered(mac wire.MAC) {
	r.do(func(m *role.Machine, now clock.Time) {
		r.by = mac.String()
		m.Answered(now)
	})
}
