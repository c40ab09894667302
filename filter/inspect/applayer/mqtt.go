package applayer

import (
	"encoding/binary"

	"github.com/millrace/millrace/filter/signature"
)

// mqttFlow is the control packets of MQTT 3.1, 3.1.1 and 5.0 (OASIS MQTT 5.0 2.1).
type mqttFlow struct {
	stateless
	sides   [2]mqttSide
	version byte // of CONNECT
}

// mqttSide is one direction of a stream of control packets (2.1):
//
//	| type 4 | flags 4 | length of the rest, 1 to 4 bytes | variable header | payload |
//
// The types of PUBLISH alone use the flags: DUP, QoS of two bits, RETAIN (3.3.1).
type mqttSide struct {
	held []byte // an incomplete packet
	skip int    // bytes of a packet that was evaluated at the bound
	done bool   // no MQTT any more
}

// Types of control packets (2.1.2).
const (
	mqttConnect = 1 + iota
	mqttConnack
	mqttPublish
	mqttPuback
	mqttPubrec
	mqttPubrel
	mqttPubcomp
	mqttSubscribe
	mqttSuback
	mqttUnsubscribe
	mqttUnsuback
	mqttPingreq
	mqttPingresp
	mqttDisconnect
	mqttAuth
)

// isMQTT reports whether b begins with a CONNECT: its type, length and the name of the protocol (3.1.2.1).
func isMQTT(b []byte) bool {
	if len(b) == 0 || b[0] != mqttConnect<<4 {
		return false
	}
	_, n := mqttLength(b[1:])
	if n <= 0 {
		return false
	}
	r := fields{b: b[1+n:]}
	name := string(r.text16())
	return !r.failed && (name == "MQTT" || name == "MQIsdp")
}

// mqttLength reads a length of 1 to 4 bytes; n is 0 where it is not whole, -1 where it is none (1.5.5). Each byte has seven bits,
// the lowest first, and its highest bit says that another follows. A longer encoding of a small number is wrong, but the
// decoder of the document takes it.
func mqttLength(b []byte) (value, n int) {
	for i := range 4 {
		if i == len(b) {
			return 0, 0
		}
		value |= int(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return value, i + 1
		}
	}
	return 0, -1
}

// Parse reads control packets.
func (m *mqttFlow) Parse(c *Context, b []byte) {
	s := &m.sides[c.side()]
	most := c.Limit + MaxHead
	for len(b) > 0 && !s.done {
		n := min(len(b), s.skip)
		s.skip, b = s.skip-n, b[n:]
		s.held, b = append(s.held, b...), nil
		for len(s.held) >= 2 && !s.done {
			size, n := mqttLength(s.held[1:])
			if n == 0 {
				break
			}
			if n < 0 {
				s.done, s.held = true, nil
				c.Host.GiveUp()
				return
			}
			end := 1 + n + size
			if len(s.held) < min(end, most) {
				break
			}
			m.packet(c, s.held[0], s.held[1+n:min(end, len(s.held))])
			s.skip = max(end-len(s.held), 0)
			s.held = s.held[min(end, len(s.held)):]
		}
		s.held = append([]byte(nil), s.held...) // not a part of what was
	}
}

// packet evaluates a control packet. Of one that is cut at the bound, or wrong, the fields before that are evaluated: a broker may
// have read them, too. Numbers are put as bigEndian writes them, which is what tests of integers read.
func (m *mqttFlow) packet(c *Context, first byte, b []byte) {
	t, r := c.Message, fields{b: b}
	kind := first >> 4
	t.Reset()
	t.Text = b
	t.Put(signature.MQTTType, bigEndian(uint64(kind)))
	t.Put(signature.MQTTFlags, bigEndian(uint64(first&15)))
	t.Put(signature.MQTTQoS, bigEndian(uint64(first>>1&3)))
	switch kind {
	case mqttConnect:
		m.connect(t, &r)
	case mqttConnack:
		t.Put(signature.MQTTSession, bigEndian(uint64(r.byte()&1)))
		m.reasons(t, &r, 1)
	case mqttPublish:
		topic := r.text16()
		if first>>1&3 > 0 { // the packet identifier, which QoS 0 has not (3.3.2.2)
			r.take(2)
		}
		m.properties(&r)
		if !r.failed {
			t.Put(signature.MQTTPublishTopic, topic)
			t.Put(signature.MQTTPublishMessage, r.b)
		}
	case mqttPuback, mqttPubrec, mqttPubrel, mqttPubcomp:
		r.take(2)
		m.reasons(t, &r, 1)
	case mqttSubscribe, mqttUnsubscribe:
		r.take(2)
		m.properties(&r)
		for range maxMQTTTopics {
			topic := r.text16()
			buffer := signature.MQTTUnsubscribeTopic
			if kind == mqttSubscribe {
				buffer = signature.MQTTSubscribeTopic
				r.byte()
			}
			if r.failed {
				break
			}
			t.Put(buffer, topic)
		}
	case mqttSuback, mqttUnsuback:
		r.take(2)
		m.properties(&r)
		m.reasons(t, &r, maxMQTTTopics)
	case mqttDisconnect, mqttAuth:
		m.reasons(t, &r, 1)
	}
	t.Put(signature.MQTTVersion, bigEndian(uint64(m.version)))
	c.inspect()
}

// maxMQTTTopics bounds the topics of a packet that are inspected.
const maxMQTTTopics = 1024

// connect reads a CONNECT (3.1): name and version of the protocol, flags, the keep-alive time, and then only the fields that the flags
// announce, in this order (3.1.2.3, 3.1.3):
//
//	| client ID | will properties, topic and message: 0x04 | user: 0x80 | password: 0x40 |
func (m *mqttFlow) connect(t *Message, r *fields) {
	r.text16()
	m.version = r.byte()
	flags := r.byte()
	r.take(2)
	m.properties(r)
	put := func(there bool, b signature.Buffer) {
		if !there {
			return
		}
		if text := r.text16(); !r.failed {
			t.Put(b, text)
		}
	}
	t.Put(signature.MQTTConnectFlags, bigEndian(uint64(flags)))
	put(true, signature.MQTTClientID)
	if flags&4 != 0 {
		m.properties(r)
	}
	put(flags&4 != 0, signature.MQTTWillTopic)
	put(flags&4 != 0, signature.MQTTWillMessage)
	put(flags&0x80 != 0, signature.MQTTUsername)
	put(flags&0x40 != 0, signature.MQTTPassword)
}

// properties skips the properties of version 5 (2.2.2). Before it there are none, so the version of CONNECT has to be known; in a
// flow whose CONNECT was not seen it is 0.
func (m *mqttFlow) properties(r *fields) {
	if m.version < 5 {
		return
	}
	size, n := mqttLength(r.b)
	if n <= 0 {
		r.failed = true
		return
	}
	r.take(n + size)
}

// reasons reads reason codes, of which there is none where the packet ends: success (2.4).
func (m *mqttFlow) reasons(t *Message, r *fields, most int) {
	for range min(most, len(r.b)) {
		if code := r.byte(); !r.failed {
			t.Put(signature.MQTTReason, bigEndian(uint64(code)))
		}
	}
}

// Size implements Parser.
func (m *mqttFlow) Size() int { return mqttSize + cap(m.sides[0].held) + cap(m.sides[1].held) }

const mqttSize = 96

// fields reads a message from its begin to its end. Behind the end failed is set, and what is read is empty: a parser then checks
// once for all of the fields of a message, and a wrong length cannot make it read what belongs to the next one.
type fields struct {
	b      []byte
	failed bool
}

// take returns the next n bytes.
func (r *fields) take(n int) []byte {
	if n < 0 || n > len(r.b) || r.failed {
		r.failed, r.b = true, nil
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *fields) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *fields) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *fields) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// text16 reads a text behind its length of two bytes.
func (r *fields) text16() []byte { return r.take(int(r.uint16())) }
