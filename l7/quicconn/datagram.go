package quicconn

import "sync"

// Bounds of the datagrams of a connection that wait, in either direction. QUIC itself keeps some more. Beyond them they are lost, as UDP's
// would be.
const (
	mostDatagrams = 512
	mostUnsent    = 256
)

// datagrams are those of a connection, once something takes them: most connections have none, and need no goroutine for them.
type datagrams struct {
	take    func(p []byte) // on the loop
	unsent  chan []byte
	mu      sync.Mutex
	arrived [][]byte
}

// TakeDatagrams has take called on the loop with each datagram of the peer, from now on (RFC 9221). Of several calls the first counts.
func (c *Conn) TakeDatagrams(take func(p []byte)) {
	if c.datagrams != nil {
		return
	}
	d := &datagrams{take: take, unsent: make(chan []byte, mostUnsent)}
	c.datagrams = d
	deliver := func() { d.deliver(c) } // once: Do allocates nothing then
	go func() {
		for {
			p, err := c.q.ReceiveDatagram(c.q.Context())
			if err != nil || d.enter(p) && !c.hub.loop.Do(deliver) {
				return
			}
		}
	}()
	go func() {
		for {
			select {
			case <-c.q.Context().Done():
				return
			case p := <-d.unsent: // it waits for the congestion window, which the loop must not; one that is too large is lost
				_ = c.q.SendDatagram(p)
			}
		}
	}()
}

// enter notes a datagram, and reports whether it is the first in the queue, for which the loop is called.
func (d *datagrams) enter(p []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.arrived) >= mostDatagrams {
		return false
	}
	d.arrived = append(d.arrived, p)
	return len(d.arrived) == 1
}

// deliver runs on the loop.
func (d *datagrams) deliver(c *Conn) {
	d.mu.Lock()
	list := d.arrived
	d.arrived = nil
	d.mu.Unlock()
	for _, p := range list {
		if c.over {
			return
		}
		d.take(p)
	}
}

// SendDatagram sends a datagram, which it takes, and reports whether there was room for it. TakeDatagrams must have been called.
func (c *Conn) SendDatagram(p []byte) bool {
	select {
	case c.datagrams.unsent <- p:
		return true
	default:
		return false
	}
}
