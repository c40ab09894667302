package bgp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

// errPaused is the end of a reader that stopped between two messages.
var errPaused = errors.New("paused")

// read reads messages and gives them to serve, until there is an error or serve has returned.
func (c *connection) read() {
	var ch change
	for {
		m := c.next(&ch)
		select {
		case c.in <- m:
		case <-c.ended:
			return
		}
		if m.err != nil {
			return
		}
	}
}

// next reads and parses a message.
func (c *connection) next(ch *change) incoming {
	kind, body, err := c.reader.next()
	if isTimeout(err) { // pass has set the deadline: at most the rest of a message is read
		if c.reader.whole() {
			return incoming{err: errPaused}
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(farewell))
		kind, body, err = c.reader.next()
		_ = c.conn.SetReadDeadline(time.Now())
	}
	if err != nil {
		if n := new(Notification); errors.As(err, &n) {
			c.x.update(func(st *PeerStatus) { st.Malformed++ })
		}
		return incoming{err: err}
	}
	m, wrong := c.parse(kind, body, ch)
	if wrong != nil {
		if !wrong.received && (wrong.Code != codeCease) {
			c.x.update(func(st *PeerStatus) { st.Malformed++ })
		}
		return incoming{err: wrong}
	}
	return m
}

// parse parses a message. The error ends the session.
func (c *connection) parse(kind messageType, body []byte, ch *change) (m incoming, err *Notification) {
	m.kind = kind
	switch kind {
	case typeOpen:
		m.open, err = parseOpen(body)
	case typeNotification:
		err = parseNotification(body)
	case typeUpdate:
		if err = parseUpdate(body, ch); err == nil {
			err = c.count(ch)
		}
	case typeRefresh:
		if f, ok := known(binary.BigEndian.Uint16(body), body[3]); ok {
			m.family = f
		}
	}
	return m, err
}

// count counts what a peer announces. The routes themselves are not kept, but for their prefixes, of which there may be MaxPrefixes:
// a peer that sends more has another idea of this gateway, and is refused (RFC 4486 4).
func (c *connection) count(ch *change) *Notification {
	for _, p := range ch.withdrawn {
		delete(c.held, p)
	}
	for _, p := range ch.announced {
		if _, ok := c.held[p]; !ok && len(c.held) >= c.x.peer.MaxPrefixes {
			c.x.update(func(st *PeerStatus) { st.Refused++ })
			return prefixLimit(p, c.x.peer.MaxPrefixes)
		}
		c.held[p] = struct{}{}
	}
	c.x.update(func(st *PeerStatus) {
		st.Received, st.UpdatesReceived = len(c.held), st.UpdatesReceived+1
		if ch.malformed {
			st.Malformed++
		}
	})
	return nil
}

// prefixLimit returns the error for a prefix too many, with its family and the limit (RFC 4486 4).
func prefixLimit(p netip.Prefix, limit int) *Notification {
	data := []byte{0, byte(familyOf(p.Addr())), safiUnicast}
	return &Notification{Code: codeCease, Subcode: ceasePrefixes, Data: binary.BigEndian.AppendUint32(data, uint32(limit))}
}
