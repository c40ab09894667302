package appid

import "strings"

// Directions of a flow. The first packet of a flow goes to its server.
const (
	toServer = iota
	toClient
)

// maxPayloads is the number of packets with payload of each direction that are looked at: what has not shown itself by then is Unknown.
const maxPayloads = 8

// maxPending is maxPayloads while a part of the details has come: a ClientHello in segments of 512 bytes.
const maxPending = 32

// Packet is the view of a packet that the recognisers read.
type Packet struct {
	Payload     []byte // of the transport; borrowed during the call
	Sequence    uint32 // of TCP
	Source      uint16 // ports, 0 for transports without
	Destination uint16
	Transport   uint8 // IP protocol number
	Reply       bool  // its sender is not that of the flow's first packet
	SYN         bool
}

// Flow recognises the protocol of one flow. The zero value is a flow of which nothing was seen.
type Flow struct {
	refused  set        // recognisers that have said no
	first    [2]payload // of each direction
	last     [2]payload
	next     [2]uint32 // sequence number after what was looked at
	payloads [2]uint8
	synced   [2]bool
	protocol Protocol
	done     bool

	collector *collector // of flows that have details
}

// payload is the kept part of a payload.
type payload struct {
	size int // 0: there was none
	head [24]byte
}

func (p *payload) keep(data []byte) {
	p.size, p.head = len(data), [24]byte{}
	copy(p.head[:], data)
}

// Protocol returns what the flow was recognised as, or Unknown.
func (f *Flow) Protocol() Protocol { return f.protocol }

// Done reports whether further packets can change nothing.
func (f *Flow) Done() bool { return f.done }

// Packet looks at the next packet of the flow, in order of arrival, and returns what the flow was recognised as so far. It
// allocates only for the Details of a flow.
func (f *Flow) Packet(p *Packet) Protocol {
	if f.done {
		return f.protocol
	}
	way := toServer
	if p.Reply {
		way = toClient
	}
	data := p.Payload
	if p.Transport == tcp {
		data = f.fresh(p, way)
	}
	if len(data) == 0 {
		return f.protocol
	}
	if p.Transport == tcp && f.protocol == Unknown && f.last[way].starts() {
		data = append(f.last[way].head[:f.last[way].size:f.last[way].size], data...)
	}
	v := view{
		p: data, nth: int(f.payloads[way]), replies: int(f.payloads[1-way]), source: p.Source,
		destination: p.Destination, reply: p.Reply,
		mine: &f.last[way], other: &f.last[1-way], began: &f.first[way], answers: &f.first[1-way],
	}
	switch {
	case f.opens(p.Transport):
		if then := f.opened(&v); then != Unknown {
			f.protocol, f.done = then, true
			return f.protocol
		}
	case f.protocol != Unknown:
		f.done = !f.collect(&v)
	case f.recognise(p.Transport, &v):
		f.done = !f.opens(p.Transport) && (!named(f.protocol) || !f.collect(&v))
	}
	if f.done {
		return f.protocol
	}
	f.last[way].keep(data)
	if f.payloads[way] == 0 {
		f.first[way] = f.last[way]
	}
	f.payloads[way]++
	f.done = f.payloads[way] >= maxPayloads && (!f.collector.pending() || f.payloads[way] >= maxPending)
	return f.protocol
}

// opens reports whether the protocol of a flow only opens the way for another one over the same ports: STUN for a call, a
// session request of NetBIOS for SMB.
func (f *Flow) opens(transport uint8) bool {
	return f.protocol == STUN || f.protocol == NetBIOS && transport == tcp
}

// opened returns the other protocol if a payload is of it, or Unknown.
func (f *Flow) opened(v *view) Protocol {
	switch {
	case f.protocol == STUN && v.nth < maxPayloads && dtls(v) == yes:
		return DTLS
	case f.protocol == NetBIOS && smb(v) == yes:
		return SMB
	}
	return Unknown
}

// starts reports whether a payload is so little of a TLS record or of a request of HTTP that the next one must be seen with
// it: some clients cut there to avoid recognition.
func (p *payload) starts() bool {
	if p.size == 0 || p.size > len(p.head) {
		return false
	}
	head := string(p.head[:p.size])
	if p.head[0] == 22 {
		return p.size == 1 || p.head[1] == 3
	}
	for _, m := range methods {
		if strings.HasPrefix(m, head) || strings.HasPrefix(head, m) {
			return true
		}
	}
	return false
}

// fresh returns the bytes of a segment that were not looked at before: a retransmission shows nothing new.
func (f *Flow) fresh(p *Packet, way int) []byte {
	data := p.Payload
	if p.SYN {
		f.next[way], f.synced[way] = p.Sequence+1, true
		return nil
	}
	if f.synced[way] {
		old := int32(f.next[way] - p.Sequence)
		if old > 0 {
			data = data[min(int(old), len(data)):]
		}
	}
	if len(data) > 0 {
		f.next[way], f.synced[way] = p.Sequence+uint32(len(p.Payload)), true
	}
	return data
}

// recognise asks the recognisers that may know a payload.
func (f *Flow) recognise(transport uint8, v *view) bool {
	switch transport {
	case tcp:
		return f.ask(&overTCP, v)
	case udp:
		return f.ask(&overUDP, v)
	}
	f.protocol = byNumber(transport)
	return true
}

// ask asks those of one transport: first the ones whose usual port it is.
func (f *Flow) ask(all *index, v *view) bool {
	alive := all.first[v.p[0]].without(&f.refused)
	usual := all.usual(v.destination, v.source)
	if usual != nil {
		now := alive.and(usual)
		if f.askEach(&now, v) {
			return true
		}
		alive = alive.without(usual)
	}
	return f.askEach(&alive, v)
}

func (f *Flow) askEach(s *set, v *view) bool {
	for i := s.next(0); i >= 0; i = s.next(i + 1) {
		switch recognisers[i].ask(v) {
		case yes:
			f.protocol = recognisers[i].protocol
			return true
		case no:
			f.refused.add(i)
		}
	}
	return false
}
