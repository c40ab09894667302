package websocket

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"unicode/utf8"
)

// Limits bounds what a peer may send. Zero fields have the documented defaults.
type Limits struct {
	// Frame is the most payload of one frame in bytes; 0 or less is no limit besides Message.
	Frame int64
	// Message is the most payload of one message in bytes, after decompression.
	// 0 is DefaultMessageLimit, a negative number is no limit.
	Message int64
	// Fragments is the most frames of one message. 0 is DefaultFragmentLimit, a negative number is
	// no limit.
	Fragments int
	// Conn is the most payload of all data frames of the connection in bytes, as they came over the
	// wire; 0 or less is no limit.
	Conn int64
	// Ratio bounds the size of a message as a multiple of its compressed form, once it exceeds
	// RatioFloor bytes. 0 is DefaultRatioLimit, a negative number is no limit.
	Ratio int
}

// Defaults of Limits.
const (
	DefaultMessageLimit  = 16 << 20
	DefaultFragmentLimit = 1 << 17
	DefaultRatioLimit    = 200
	RatioFloor           = 1 << 20
)

// withDefaults returns the limits with every default filled in; no limit is the largest number.
func (l Limits) withDefaults() Limits {
	const none = 1<<62 - 1
	fill := func(v *int64, zero int64) {
		if *v == 0 {
			*v = zero
		}
		if *v < 0 {
			*v = none
		}
	}
	fragments, ratio := int64(l.Fragments), int64(l.Ratio)
	fill(&l.Frame, none)
	fill(&l.Message, DefaultMessageLimit)
	fill(&l.Conn, none)
	fill(&fragments, DefaultFragmentLimit)
	fill(&ratio, DefaultRatioLimit)
	l.Fragments, l.Ratio = int(fragments), int(min(ratio, 1<<31))
	return l
}

// MachineOptions configures a Machine. The zero value is valid.
type MachineOptions struct {
	Limits Limits
	// Deflate is the result of the handshake, the zero value for no compression.
	Deflate Deflate
	// Random is the source of a client's masking keys; nil is crypto/rand, as RFC 6455 5.3 demands.
	// It must not fail.
	Random io.Reader
}

// EventKind is the kind of an Event.
type EventKind uint8

// Values of EventKind.
const (
	// NeedInput ends the events: all input was consumed.
	NeedInput EventKind = iota
	// Message is a part of a message.
	Message
	// Ping is to be answered by AppendPong with the same payload, as soon as is practical
	// (RFC 6455 5.5.3). Of several, only the last needs an answer.
	Ping
	// Pong answers a ping, or comes unasked.
	Pong
	// Close is the peer's Close frame. It is answered by AppendClose with the same code unless one
	// was sent before; then the stream is closed, by the server first. Input after it is ignored.
	Close
)

// Event is a report of a Machine on its input.
type Event struct {
	// Payload is a part of a message (it may be empty in the last part), or the whole payload of a
	// ping or pong, or the reason of a close. It is valid until the next call of Next, and lies in
	// the input or in the machine.
	Payload []byte
	Code    CloseCode // of a Close; CloseNoStatus if the frame had none
	Kind    EventKind
	Opcode  Opcode // of a Message: Text or Binary
	First   bool   // of a Message: its first part
	Last    bool   // of a Message: its last part
}

// readState is where in the input a Machine is.
type readState uint8

const (
	atHeader  readState = iota
	inControl           // inside the payload of a control frame
	inData              // inside the payload of a data frame
	inflating           // a compressed message is complete and has output left
	ended               // after the peer's Close frame
)

// Machine is one end of a WebSocket connection after the handshake. Bytes go in by Next, frames come
// out by the Append methods. The two directions share nothing but the options: one goroutine may read
// while another appends, but no two may do the same.
type Machine struct {
	role   Role
	limits Limits
	read   reader
	write  writer
}

// reader is the receiving half of a Machine.
type reader struct {
	state   readState
	key     uint32 // for the next payload byte
	left    uint64 // payload bytes of the frame still to come
	fin     bool   // of the current data frame
	opcode  Opcode // of the current message, Continuation outside of one
	first   bool   // no part of the message was delivered yet
	zipped  bool   // the message is compressed
	control Opcode // of the current control frame

	fragments int
	size      int64 // payload of the message so far, on the wire
	total     int64 // payload of all data frames
	text      utf8Checker
	err       error

	headerReader
	ctl     [maxControl]byte
	ctlHeld int
	inflate *inflater // nil unless compression was agreed on
}

// NewMachine returns the machine of one end.
func NewMachine(role Role, o MachineOptions) *Machine {
	m := &Machine{role: role, limits: o.Limits.withDefaults()}
	m.write.random = o.Random
	if m.write.random == nil {
		m.write.random = rand.Reader
	}
	m.write.nextKey = len(m.write.keys)
	if o.Deflate.Enabled {
		m.read.inflate = newInflater(role, o.Deflate)
		m.write.deflate = newDeflater(role, o.Deflate)
	}
	return m
}

// Role returns the end that the machine is.
func (m *Machine) Role() Role { return m.role }

// Next takes input and returns the next event and how many bytes of the input it consumed. It is called
// again with the rest until it returns NeedInput. It borrows the input for the time that the event is
// valid and unmasks payload in place.
//
// An error is a *ProtocolError; every later call returns the same.
func (m *Machine) Next(in []byte) (ev Event, n int, err error) {
	r := &m.read
	if r.state == atHeader {
		m.releaseInput()
		if ev, n = m.shortMessage(in); n > 0 {
			return ev, n, nil
		}
	}
	for r.err == nil {
		switch r.state {
		case atHeader:
			h, used, ok := r.header(in[n:])
			n += used
			if !ok {
				return Event{}, n, nil
			}
			r.err = m.begin(h)
		case inControl:
			payload, used := r.controlPayload(in[n:])
			n += used
			if payload == nil {
				return Event{}, n, nil
			}
			ev, r.err = r.controlEvent(payload)
			return ev, n, r.err
		case inData:
			if r.left > 0 && n == len(in) {
				return Event{}, n, nil
			}
			var used int
			var ok bool
			ev, used, ok = m.data(in[n:])
			n += used
			if ok || r.err != nil {
				return ev, n, r.err
			}
		case inflating:
			ev, r.err = m.inflated()
			return ev, n, r.err
		case ended:
			return Event{}, len(in), nil
		}
	}
	return Event{}, n, r.err
}

// shortMessage is the fast path of Next between frames: a message of up to 125 bytes in one frame, which is complete in the input,
// not compressed, and within all limits. It returns 0 for anything else, of which it has changed nothing.
func (m *Machine) shortMessage(in []byte) (ev Event, n int) {
	r := &m.read
	if len(in) < 2 || r.held > 0 || r.opcode != Continuation || r.err != nil {
		return ev, 0
	}
	op, length, at := Opcode(in[0]&^bitFin), int(in[1]), 2
	if m.role == Server {
		length, at = length^bitMask, 6 // without the bit it becomes too long
	}
	n = at + length
	switch {
	case in[0]&bitFin == 0, !op.isMessage(), length >= length16, len(in) < n:
		return ev, 0
	case int64(length) > min(m.limits.Frame, m.limits.Message, m.limits.Conn-r.total), m.limits.Fragments < 1:
		return ev, 0
	}
	p := in[at:n:n]
	if m.role == Server {
		key := binary.LittleEndian.Uint32(in[2:])
		xorKeyGeneric(p, p, key)
		if op == Text && !utf8.Valid(p) {
			xorKeyGeneric(p, p, key)
			return ev, 0
		}
	} else if op == Text && !utf8.Valid(p) {
		return ev, 0
	}
	r.total += int64(length)
	return Event{Kind: Message, Opcode: op, First: true, Last: true, Payload: p}, n
}

// Needed returns how many bytes the frame of an uncompressed message still needs, 0 outside of one. A
// driver may read as many straight into the buffer of the message's reader and pass that to Next.
func (m *Machine) Needed() uint64 {
	if r := &m.read; r.state == inData && !r.zipped {
		return r.left
	}
	return 0
}

// atHeader reports whether Next has no event without more input, since it is between frames.
func (m *Machine) atHeader() bool { return m.read.state == atHeader }

// releaseInput gives back what the last event lay in, between frames.
func (m *Machine) releaseInput() {
	if m.read.inflate != nil && m.atHeader() {
		m.read.inflate.release()
	}
}

// begin checks a header and enters its payload.
func (m *Machine) begin(h header) error {
	r := &m.read
	op := h.opcode()
	switch {
	case h.first&bitsRSV23 != 0:
		return errReservedBits
	case h.first&bitRSV1 != 0 && (r.inflate == nil || !op.isMessage()):
		return errReservedBits // RFC 7692 6: only the first frame of a message has it
	case op > opPong || op > Binary && op < opClose:
		return errReservedOpcode
	case h.masked && m.role == Client:
		return errMasked
	case !h.masked && m.role == Server:
		return errNotMasked
	case !h.minimal || h.length>>63 != 0:
		return errLength
	}
	r.key, r.left = h.key, h.length
	if op.isControl() {
		return r.beginControl(h)
	}
	return m.beginData(h)
}

func (r *reader) beginControl(h header) error {
	switch {
	case !h.fin():
		return errControlFragment
	case h.length > maxControl:
		return errControlLength
	}
	r.state, r.control, r.ctlHeld = inControl, h.opcode(), 0
	return nil
}

func (m *Machine) beginData(h header) error {
	r := &m.read
	op := h.opcode()
	switch {
	case op == Continuation && r.opcode == Continuation:
		return errNoMessage
	case op != Continuation && r.opcode != Continuation:
		return errInMessage
	}
	if op != Continuation {
		r.opcode, r.first, r.zipped = op, true, h.first&bitRSV1 != 0
		r.size, r.fragments = 0, 0
	}
	r.state, r.fin = inData, h.fin()
	if r.fragments++; r.fragments > m.limits.Fragments {
		return errTooManyFragments
	}
	// Each limit is below 2^62 and each sum was checked before: nothing overflows.
	length := int64(h.length)
	switch {
	case length > m.limits.Frame:
		return errFrameTooBig
	case length > m.wireLimit()-r.size:
		return errMessageTooBig
	case length > m.limits.Conn-r.total:
		return errConnTooBig
	}
	r.size += length
	r.total += length
	return nil
}

// wireLimit is the most payload of a message on the wire. Compressed, data that has no redundancy grows
// by 5 bytes for each stored block (RFC 1951 3.2.4); the machine holds it until the message is complete.
func (m *Machine) wireLimit() int64 {
	if m.read.zipped {
		return m.limits.Message + m.limits.Message>>10 + 64
	}
	return m.limits.Message
}

// controlPayload returns the unmasked payload of a control frame once it is complete, otherwise nil.
func (r *reader) controlPayload(in []byte) (payload []byte, used int) {
	if r.ctlHeld == 0 && uint64(len(in)) >= r.left {
		used = int(r.left)
		payload = in[:used:used]
	} else {
		used = min(len(in), int(r.left))
		copy(r.ctl[r.ctlHeld:], in[:used])
		r.ctlHeld += used
		if r.left -= uint64(used); r.left > 0 {
			return nil, used
		}
		payload = r.ctl[:r.ctlHeld]
	}
	if payload == nil {
		payload = r.ctl[:0] // of an empty frame at the end of nil input
	}
	xorKey(payload, payload, r.key)
	r.state = atHeader
	return payload, used
}

func (r *reader) controlEvent(payload []byte) (Event, error) {
	switch r.control {
	case opPing:
		return Event{Kind: Ping, Payload: payload}, nil
	case opPong:
		return Event{Kind: Pong, Payload: payload}, nil
	}
	code, reason, err := parseClose(payload)
	if err != nil {
		return Event{}, err
	}
	r.state = ended
	return Event{Kind: Close, Code: code, Payload: reason}, nil
}

// parseClose decodes the payload of a Close frame (RFC 6455 5.5.1).
func parseClose(p []byte) (code CloseCode, reason []byte, err error) {
	switch len(p) {
	case 0:
		return CloseNoStatus, p, nil
	case 1:
		return 0, nil, errCloseLength
	}
	code, reason = CloseCode(binary.BigEndian.Uint16(p)), p[2:]
	if !code.Valid() {
		return 0, nil, errCloseCode
	}
	if !utf8.Valid(reason) {
		return 0, nil, errUTF8
	}
	return code, reason, nil
}

// data takes payload of a data frame. ok reports that there is an event.
func (m *Machine) data(in []byte) (ev Event, used int, ok bool) {
	r := &m.read
	p := in
	if uint64(len(p)) > r.left {
		p = p[:r.left]
	}
	r.left -= uint64(len(p))
	if m.role == Server {
		r.key = xorKey(p, p, r.key)
	}
	last := r.left == 0 && r.fin
	if r.left == 0 {
		r.state = atHeader
	}
	if r.zipped {
		r.inflate.in = append(r.inflate.in, p...)
		if last {
			r.inflate.begin()
			r.state = inflating
		}
		return ev, len(p), false
	}
	if len(p) == 0 && !last {
		return ev, 0, false // an empty fragment
	}
	ev, r.err = r.part(p, last)
	return ev, len(p), true
}

// part returns the event of a part of a message, which is plain.
func (r *reader) part(p []byte, last bool) (Event, error) {
	ev := Event{Kind: Message, Opcode: r.opcode, First: r.first, Last: last, Payload: p}
	if r.opcode == Text && (!r.text.write(p) || last && !r.text.complete()) {
		return Event{}, errUTF8
	}
	r.first = false
	if last {
		r.opcode = Continuation
	}
	return ev, nil
}

// inflated returns the next part of a compressed message.
func (m *Machine) inflated() (Event, error) {
	r := &m.read
	p, last, err := r.inflate.next(m.limits)
	if err != nil {
		return Event{}, err
	}
	if last {
		r.state = atHeader
	}
	return r.part(p, last)
}
