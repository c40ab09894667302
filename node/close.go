package node

import (
	"errors"
	"net"

	"github.com/millrace/millrace/ring"
)

// Close releases everything: steering and XDP programs, frames, memory. Run has
// returned, or was never called. An error reports a lost frame, too. A second call
// returns what the first one did.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closeErr = n.release() })
	return n.closeErr
}

// release undoes open in the reverse order.
func (n *Node) release() error {
	close(n.closed)
	n.drainLinks()
	var errs []error
	for _, l := range n.loops {
		errs = append(errs, l.Close())
	}
	for _, dev := range append(n.devices, n.joining...) {
		errs = append(errs, dev.Close())
	}
	if n.namespace != nil {
		errs = append(errs, n.namespace.Close())
	}
	for _, e := range n.engines {
		errs = append(errs, e.Close())
	}
	if n.netlink != nil {
		n.netlink.Close()
	}
	if n.opener != nil {
		errs = append(errs, n.opener.Close())
	}
	_, _ = n.SetMetrics(""), n.SetPages("") // where Run was never called
	if l := n.control; l != nil {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, n.closeMemory())...)
}

// closeMemory is the proof of ownership at the end of each run, in production too: it
// costs a walk over the free lists. It audits the frames and unmaps them. A missing
// frame is a fault that must not pass unseen.
func (n *Node) closeMemory() error {
	if n.arena == nil {
		return nil
	}
	holders := make([]ring.Holder, len(n.pools))
	for i, p := range n.pools {
		holders[i] = p
	}
	return errors.Join(ring.Audit(n.arena, holders...), n.arena.Close())
}
