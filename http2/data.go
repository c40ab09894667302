package http2

// beginData checks the header of DATA (RFC 9113 6.1). All of the payload counts against the windows, padding too.
func (m *Machine) beginData() (Event, error) {
	f := &m.frame
	if f.stream == 0 {
		return Event{}, errStreamZero
	}
	n := int64(f.length)
	if n > m.recvWindow {
		return Event{}, errWindow // RFC 9113 6.9.1
	}
	m.recvWindow -= n
	m.current, m.pad = nil, 0
	s, err := m.find(f.stream)
	if err != nil {
		return Event{}, err
	}
	var ev Event
	if s != nil {
		if refusal := m.checkData(s, n); refusal != nil {
			if ev, err = m.failStream(s, refusal); err != nil {
				return ev, err
			}
			s = nil
		}
	}
	if m.current = s; s == nil {
		m.credit += n
		m.creditConnection()
		m.state = inPadding // the content of a stream that is reset is passed over
		if m.left == 0 {
			m.state = atHeader
		}
		return ev, m.idle()
	}
	s.recvWindow -= n
	if f.has(flagPadded) {
		if f.length == 0 {
			return Event{}, errPadding
		}
		m.state = atPadLength
		return ev, nil
	}
	return ev, m.enterData()
}

// checkData checks that content may come on a stream.
func (m *Machine) checkData(s *Stream, n int64) *StreamError {
	switch {
	case s.received:
		return errHalfClosed
	case !s.began:
		return errDataFirst
	case n > s.recvWindow:
		return errStreamWindow
	}
	return nil
}

// enterData enters what follows the length of the padding. A frame without content has an effect only if it ends the stream.
func (m *Machine) enterData() error {
	switch {
	case m.left > m.pad:
		m.state = inData
	case m.left > 0:
		m.state = inPadding
	default:
		m.state = m.afterData()
	}
	if m.current == nil {
		return nil
	}
	if overhead := m.frame.length - (m.left - m.pad); overhead > 0 { // the driver does not see the padding
		m.current.outstanding += int64(overhead)
		m.Consumed(m.current, overhead)
	}
	if m.left == m.pad && !m.frame.has(flagEndStream) {
		return m.idle()
	}
	return nil
}

// afterData returns the state after the payload of DATA.
func (m *Machine) afterData() state {
	if m.current != nil && m.frame.has(flagEndStream) && !m.current.gone {
		return atEnd
	}
	return atHeader
}

// data takes a part of content.
func (m *Machine) data(in []byte) (ev Event, used int, err error) {
	used = min(len(in), m.left-m.pad)
	if m.left -= used; m.left == m.pad {
		if m.state = inPadding; m.left == 0 {
			m.state = m.afterData()
		}
	}
	s := m.current
	if s == nil || s.gone { // the driver has reset it since the frame began
		m.credit += int64(used)
		m.creditConnection()
		return Event{}, used, nil
	}
	s.outstanding += int64(used)
	s.content += int64(used)
	if s.length >= 0 && s.content > s.length { // RFC 9113 8.1.1
		ev, err = m.failStream(s, errLengthDiffers)
		return ev, used, err
	}
	return Event{Kind: Data, Stream: s, Payload: in[:used]}, used, nil
}

// endStream is the end of what the peer sends on a stream.
func (m *Machine) endStream(s *Stream) (Event, error) {
	if s == nil || s.gone {
		return Event{}, nil
	}
	if !s.began {
		return m.failStream(s, errNoHeader)
	}
	if s.length >= 0 && s.content != s.length && !(s.noContent && s.content == 0) {
		return m.failStream(s, errLengthDiffers)
	}
	s.received = true
	m.closeIfDone(s)
	return Event{Kind: End, Stream: s}, nil
}

// Consumed reports that the driver has used n bytes of the content of a stream, so that the peer may send as many more (RFC 9113
// 6.9). Updates go out by halves of a window.
func (m *Machine) Consumed(s *Stream, n int) {
	s.outstanding -= int64(n)
	m.credit += int64(n)
	m.creditConnection()
	if s.gone || s.received {
		return
	}
	if s.credit += int64(n); s.credit >= int64(m.options.Window)/2 {
		m.control = appendWord(m.control, frameWindowUpdate, s.id, uint32(s.credit))
		s.recvWindow += s.credit
		s.credit = 0
	}
}

// creditConnection updates the window of the connection.
func (m *Machine) creditConnection() {
	if m.credit >= int64(m.options.ConnWindow)/2 {
		m.control = appendWord(m.control, frameWindowUpdate, 0, uint32(m.credit))
		m.recvWindow += m.credit
		m.credit = 0
	}
}
