package http2

import "encoding/binary"

// priority takes PRIORITY, which has no meaning any more (RFC 9113 6.3).
func (m *Machine) priority(p []byte) (Event, error) {
	id := m.frame.stream
	if id == 0 {
		return Event{}, errStreamZero
	}
	var refusal *StreamError
	switch {
	case len(p) != 5:
		refusal = errPriority
	case binary.BigEndian.Uint32(p)&maxStreamID == id:
		refusal = errDependsOnItself
	default:
		return Event{}, m.idle()
	}
	if s := m.streams[id]; s != nil {
		return m.failStream(s, refusal)
	}
	return Event{}, connError(refusal.Code, refusal.Text)
}

// resetFrame takes RST_STREAM (RFC 9113 6.4).
func (m *Machine) resetFrame(p []byte) (Event, error) {
	switch {
	case len(p) != 4:
		return Event{}, errFrameSize
	case m.frame.stream == 0:
		return Event{}, errStreamZero
	case m.isIdle(m.frame.stream):
		return Event{}, errIdleStream
	}
	s := m.streams[m.frame.stream]
	if s == nil {
		return Event{}, m.idle()
	}
	if m.role == RoleServer {
		if err := m.countReset(); err != nil {
			return Event{}, err
		}
	}
	m.close(s)
	return Event{Kind: Failed, Stream: s, Code: ErrorCode(binary.BigEndian.Uint32(p))}, nil
}

// settingsFrame takes SETTINGS (RFC 9113 6.5).
func (m *Machine) settingsFrame(p []byte) (Event, error) {
	switch {
	case m.frame.stream != 0:
		return Event{}, errNotStreamZero
	case m.frame.has(flagAck):
		if len(p) != 0 {
			return Event{}, errFrameSize
		}
		return Event{}, m.idle()
	case len(p)%6 != 0:
		return Event{}, errFrameSize
	}
	m.hasPeer = true
	before := m.peer.Window
	if err := m.peer.read(p, 1-m.role); err != nil {
		return Event{}, err
	}
	if delta := int64(m.peer.Window) - int64(before); delta != 0 {
		for _, s := range m.streams { // RFC 9113 6.9.2
			if s.sendWindow += delta; s.sendWindow > maxWindow {
				return Event{}, errWindowSetting
			}
		}
	}
	m.control = appendHeader(m.control, 0, frameSettings, flagAck, 0)
	return Event{Kind: PeerSettings}, m.idle()
}

// ping takes PING (RFC 9113 6.7).
func (m *Machine) ping(p []byte) (Event, error) {
	switch {
	case len(p) != 8:
		return Event{}, errFrameSize
	case m.frame.stream != 0:
		return Event{}, errNotStreamZero
	case m.frame.has(flagAck):
		return Event{Kind: Pong, Payload: p}, m.idle()
	}
	m.control = append(appendHeader(m.control, 8, framePing, flagAck, 0), p...)
	return Event{}, m.idle()
}

// goAwayFrame takes GOAWAY (RFC 9113 6.8).
func (m *Machine) goAwayFrame(p []byte) (Event, error) {
	switch {
	case len(p) < 8:
		return Event{}, errFrameSize
	case m.frame.stream != 0:
		return Event{}, errNotStreamZero
	}
	m.peerGone = true
	return Event{
		Kind: GoAway, Last: binary.BigEndian.Uint32(p) & maxStreamID, Code: ErrorCode(binary.BigEndian.Uint32(p[4:])),
	}, m.idle()
}

// windowUpdate takes WINDOW_UPDATE (RFC 9113 6.9).
func (m *Machine) windowUpdate(p []byte) (Event, error) {
	if len(p) != 4 {
		return Event{}, errFrameSize
	}
	n := int64(binary.BigEndian.Uint32(p) & maxWindow)
	if m.frame.stream == 0 {
		m.sendWindow += n
		switch {
		case n == 0:
			return Event{}, errWindowZero
		case m.sendWindow > maxWindow:
			return Event{}, errWindowLarge
		}
		return Event{Kind: Window}, m.idle()
	}
	s := m.streams[m.frame.stream]
	if s == nil {
		if m.isIdle(m.frame.stream) {
			return Event{}, errIdleStream
		}
		return Event{}, m.idle() // of a stream that has ended: it crossed the end
	}
	s.sendWindow += n
	switch {
	case n == 0:
		return m.failStream(s, errStreamWindowZero)
	case s.sendWindow > maxWindow:
		return m.failStream(s, errStreamWindowLarge)
	}
	return Event{Kind: Window, Stream: s}, m.idle()
}
