package http3

import (
	"errors"

	"github.com/millrace/millrace/http3/qpack"
)

// ErrPush is returned for pushes that the client does not permit.
var ErrPush = errors.New("http3: the client does not permit the push")

// ErrGoingAway is returned for requests on a connection whose peer takes no more.
var ErrGoingAway = errors.New("http3: the peer takes no more requests on the connection")

// Pending reports which of our three streams have something to send.
func (m *Machine) Pending() (control, encoder, decoder bool) {
	return len(m.control) > 0, m.encoder.Pending() || !m.encOpen, m.decoder.Pending() || !m.decOpen
}

// AppendControl appends what is due on the control stream, its type included.
func (m *Machine) AppendControl(dst []byte) []byte {
	dst = append(dst, m.control...)
	m.control = m.control[:0]
	return dst
}

// AppendEncoder appends what is due on the encoder stream, its type included. It should be sent before the
// headers that were appended since.
func (m *Machine) AppendEncoder(dst []byte) []byte {
	if !m.encOpen {
		dst, m.encOpen = append(dst, streamEncoder), true
	}
	return m.encoder.AppendStream(dst)
}

// AppendDecoder appends what is due on the decoder stream, its type included.
func (m *Machine) AppendDecoder(dst []byte) []byte {
	if !m.decOpen {
		dst, m.decOpen = append(dst, streamDecoder), true
	}
	return m.decoder.AppendStream(dst)
}

// AppendHeaders appends the HEADERS frame of a message, an interim response, or trailers, for a stream. The
// fields begin with the pseudo-headers and have names in lower case. It borrows them.
func (m *Machine) AppendHeaders(dst []byte, stream uint64, fields []qpack.Field) []byte {
	m.section = m.encoder.Encode(m.section[:0], stream, fields)
	return append(appendFrameHeader(dst, frameHeaders, uint64(len(m.section))), m.section...)
}

// AppendDataHeader appends the header of a DATA frame, whose length bytes of content the driver sends after it.
func AppendDataHeader(dst []byte, length int) []byte {
	return appendFrameHeader(dst, frameData, uint64(length))
}

// GoAway reports that requests from the stream id on, or at a client pushes from id on, will not be processed
// (RFC 9114 5.2). A later call can only lower id.
func (m *Machine) GoAway(id uint64) {
	if id < m.sentGoAway {
		m.sentGoAway = id
		m.control = appendVarintFrame(m.control, frameGoAway, id)
	}
}

// PermitPushes has the server push as many times in all, at a client (RFC 9114 7.2.7). It can only grow.
func (m *Machine) PermitPushes(n uint64) {
	if m.role == RoleClient && n > m.permitted {
		m.permitted = n
		m.control = appendVarintFrame(m.control, frameMaxPushID, n-1)
	}
}

// CancelPush reports that a push is not wanted, or will not be sent (RFC 9114 7.2.3).
func (m *Machine) CancelPush(id uint64) {
	m.control = appendVarintFrame(m.control, frameCancelPush, id)
}

// UpdatePriority changes the priority of a request, at a client (RFC 9218 7).
func (m *Machine) UpdatePriority(stream uint64, p Priority) {
	value := p.String()
	m.control = appendFrameHeader(m.control, framePriority, uint64(varintSize(stream)+len(value)))
	m.control = append(appendVarint(m.control, stream), value...)
}

// AppendPush appends the PUSH_PROMISE of a request with the fields, for the stream of the request that it
// belongs to. The response goes to a new unidirectional stream, which begins with AppendPushStream.
func (m *Machine) AppendPush(dst []byte, stream uint64, fields []qpack.Field) (out []byte, id uint64, err error) {
	if m.role != RoleServer || m.nextPush >= m.maxPush || m.nextPush >= m.gotGoAway {
		return dst, 0, ErrPush
	}
	id = m.nextPush
	m.nextPush++
	m.section = m.encoder.Encode(m.section[:0], stream, fields)
	dst = appendFrameHeader(dst, framePushPromise, uint64(varintSize(id)+len(m.section)))
	return append(appendVarint(dst, id), m.section...), id, nil
}

// AppendPushStream appends the beginning of the stream of a push.
func AppendPushStream(dst []byte, id uint64) []byte {
	return appendVarint(append(dst, streamPush), id)
}

// AppendWebTransport appends the beginning of a stream of the session.
func AppendWebTransport(dst []byte, session uint64, uni bool) []byte {
	if uni {
		return appendVarint(appendVarint(dst, streamWebTransport), session)
	}
	return appendVarint(appendVarint(dst, frameWebTransport), session)
}
