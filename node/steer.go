package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/stack"
)

// Update costs a comparison of claims while nothing changes, and rules that are in the
// kernel's maps already are not written again. It brings the address table and the
// drivers' steering in line with what the services claim now. A service calls it after
// a change that must not wait for the next second. On an ErrClaim both stay as they
// were. Where a driver fails, the table is in use, and the next call tries the steering
// again.
func (n *Node) Update() error {
	if n.cfg.WithoutDevices {
		return nil // nothing is steered
	}
	n.updating.Lock()
	defer n.updating.Unlock()
	claims := n.claims()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inSync && slices.Equal(claims, n.table.Claims()) {
		return nil
	}
	n.inSync = false
	rules := stack.Rules(claims)
	// The table changes before the steering. A packet that the new rules bring finds
	// its handler; one that the old rules still bring, for an address just released, is
	// dropped as not_ours for some microseconds.
	if err := n.table.Replace(claims); err != nil {
		return err
	}
	if slices.Equal(rules, n.steered) {
		n.inSync = true
		return nil
	}
	var errs []error
	for i, dev := range n.devices {
		if !n.takesAll[i] {
			errs = append(errs, dev.Steer(rules...))
			n.logSteering(i, dev)
		}
	}
	if err := errors.Join(errs...); err != nil {
		n.steered = nil // some devices may have the new rules
		return fmt.Errorf("steering: %w", err)
	}
	n.steered, n.inSync = rules, true
	return nil
}

// logSteering reports once for each device that it leaves claims to software, and why: a device without rules works, but a NIC with too
// few costs time that an operator may want back. The caller holds n.mu.
func (n *Node) logSteering(i int, dev *device.Device) {
	why := dev.InSoftware()
	if why == nil || n.inSoftware[dev] {
		return
	}
	if n.inSoftware == nil {
		n.inSoftware = map[*device.Device]bool{}
	}
	n.inSoftware[dev] = true
	n.log.Info("steering in software", "device", n.cfg.Devices[i].Name, "negotiated", dev.Queues[0].Info().Negotiated, "why", why.Error())
}

// claims collects what the services want, in their order, so that equal claims give an
// equal list and nothing is written to the kernel's maps.
func (n *Node) claims() (claims []stack.Claim) {
	kept := map[netip.Addr]bool{}
	for i, s := range n.services {
		if s.Claims == nil {
			continue
		}
		for _, r := range s.Claims() {
			if r.Kind == pmd.Keep {
				kept[r.Addr] = true
				continue
			}
			claims = append(claims, stack.Claim{Rule: r, Target: stack.ToHandler(i)})
		}
	}
	claims = oneAnswer(claims)
	return append(claims, kernelClaims(claims, kept)...)
}

// wholeAddress reports whether a rule names every packet to one address.
func wholeAddress(r pmd.Rule) bool { return r.Kind == pmd.To && r.Proto == 0 && r.Bits == 0 }

// oneAnswer leaves one claim of ARP and neighbour discovery for each address: two
// answers to one ARP request would race (RFC 5227 2.4). The service that has the whole
// address keeps it, else the first. A host that sends from an address needs the answers
// to its requests; an L4 service there asks nothing.
func oneAnswer(claims []stack.Claim) (out []stack.Claim) {
	whole, answers := map[netip.Addr]stack.Target{}, map[netip.Addr]stack.Target{}
	for _, c := range claims {
		if wholeAddress(c.Rule) {
			whole[c.Addr] = c.Target
		}
	}
	for _, c := range claims {
		if c.Kind == pmd.Neighbor && (answers[c.Addr] == 0 || c.Target == whole[c.Addr]) {
			answers[c.Addr] = c.Target
		}
	}
	for _, c := range claims {
		if c.Kind != pmd.Neighbor || c.Target == answers[c.Addr] {
			out = append(out, c)
		}
	}
	return out
}

// kernelClaims keeps the machine reachable: a rule for sources or for a prefix would
// take the kernel's own packets too, such as the replies of a backend to a health
// probe. It leaves addresses to the kernel: those that services asked for, unless
// another service has claimed them.
func kernelClaims(claims []stack.Claim, kept map[netip.Addr]bool) (out []stack.Claim) {
	for _, c := range claims {
		if wholeAddress(c.Rule) {
			delete(kept, c.Addr)
		}
	}
	for a := range kept {
		out = append(out, stack.Claim{Rule: pmd.Rule{Addr: a}, Target: stack.ToKernel})
	}
	slices.SortFunc(out, func(a, b stack.Claim) int { return a.Addr.Compare(b.Addr) })
	return out
}

// Claims returns the address table: what is served here and by whom.
func (n *Node) Claims() []stack.Claim { return n.table.Claims() }
