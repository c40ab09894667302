package http3

// uniType handles the type of a unidirectional stream of the peer (RFC 9114 6.2).
func (m *Machine) uniType(s *Stream, t uint64) (Event, error) {
	s.state = atFrame
	switch t {
	case streamControl, streamEncoder, streamDecoder:
		s.kind = map[uint64]kind{streamControl: control, streamEncoder: encoderStream, streamDecoder: decoderStream}[t]
		if m.unis&(1<<t) != 0 {
			return Event{}, connError(StreamCreationError, "a second control, encoder or decoder stream")
		}
		m.unis |= 1 << t
		return Event{}, nil
	case streamPush:
		if m.role == RoleServer {
			return Event{}, connError(StreamCreationError, "a push stream from a client") // RFC 9114 6.2.2
		}
		s.kind, s.state = push, atPushID
		return Event{}, nil
	case streamWebTransport:
		if m.options.WebTransport > 0 {
			s.state = atSession
			return Event{}, nil
		}
	}
	s.kind, s.state = unknown, discarding
	return Event{Kind: Unknown, ID: t}, m.idle()
}

// streamID handles the ID after the type of a push stream, or of a stream of WebTransport.
func (m *Machine) streamID(s *Stream, id uint64) (Event, error) {
	if s.kind == push {
		if id >= m.permitted {
			return Event{}, connError(IDError, "a push that was not permitted") // RFC 9114 4.6
		}
		s.state = atFrame
		return Event{Kind: PushStream, ID: id}, nil
	}
	if isUni(id) || !isClientOwned(id) {
		return Event{}, connError(IDError, "the session of a stream is no request")
	}
	s.kind, s.state, s.session, s.left = webTransport, raw, id, 0
	return Event{Kind: WebTransport, ID: id}, nil
}

// instructions takes bytes of the peer's encoder or decoder stream.
func (m *Machine) instructions(s *Stream, in []byte) (Event, error) {
	if s.kind == decoderStream {
		return Event{}, qpackError(m.encoder.Acknowledgments(in))
	}
	if err := m.decoder.Instructions(in); err != nil {
		return Event{}, qpackError(err)
	}
	return m.unblock(), nil
}

// unblock returns the event of one stream that is no longer blocked. Others follow by NextUnblocked.
func (m *Machine) unblock() Event {
	for {
		id, found := m.decoder.Unblocked()
		if !found {
			return Event{}
		}
		for _, s := range m.blocked {
			if s.id == id {
				m.forget(s)
				return Event{Kind: Unblocked, Blocked: s}
			}
		}
	}
}

// NextUnblocked returns a further stream that the same input has unblocked. The driver asks after an event
// Unblocked, until there is none.
func (m *Machine) NextUnblocked() (s *Stream, found bool) {
	ev := m.unblock()
	return ev.Blocked, ev.Kind == Unblocked
}

// beginControl checks a frame of the control stream (RFC 9114 7.2) and enters its payload.
func (m *Machine) beginControl(s *Stream, t, length uint64) error {
	if !m.hasPeer && t != frameSettings {
		return connError(MissingSettings, "the control stream does not begin with SETTINGS") // RFC 9114 6.2.1
	}
	switch t {
	case frameData, frameHeaders, framePushPromise, frameWebTransport:
		return connError(FrameUnexpected, "a frame of requests on the control stream")
	case frameSettings:
		if m.hasPeer {
			return connError(FrameUnexpected, "a second SETTINGS frame") // RFC 9114 7.2.4
		}
	case frameMaxPushID, framePriority, framePriorityPush:
		if m.role == RoleClient {
			return connError(FrameUnexpected, "a frame that only clients send")
		}
	case frameCancelPush, frameGoAway:
	default:
		return m.skip(s)
	}
	if length > maxControlFrame {
		return connError(ExcessiveLoad, "a frame of the control stream exceeds 16 KiB")
	}
	s.state, s.buf = inControl, s.buf[:0]
	return nil
}

// collectControl takes payload of a frame of the control stream.
func (m *Machine) collectControl(s *Stream, in []byte) (ev Event, used int, err error) {
	used = int(min(uint64(len(in)), s.left))
	p := in[:used]
	if s.left -= uint64(used); s.left > 0 || len(s.buf) > 0 {
		s.buf = append(s.buf, p...)
		p = s.buf
	}
	if s.left > 0 {
		return ev, used, nil
	}
	s.state = atFrame
	ev, err = m.controlFrame(s.frame, p)
	return ev, used, err
}

// controlFrame handles a frame of the control stream.
func (m *Machine) controlFrame(t uint64, p []byte) (Event, error) {
	if t == frameSettings {
		return m.settings(p)
	}
	if err := m.idle(); err != nil {
		return Event{}, err
	}
	id, n := varint(p)
	if n == 0 || n < len(p) && t != framePriority && t != framePriorityPush {
		return Event{}, connError(FrameError, "a frame of the control stream with a wrong length") // RFC 9114 7.1
	}
	switch t {
	case frameGoAway:
		return m.goAway(id)
	case frameMaxPushID:
		if id+1 < m.maxPush {
			return Event{}, connError(IDError, "MAX_PUSH_ID became smaller") // RFC 9114 7.2.7
		}
		m.maxPush = id + 1
		return Event{Kind: MaxPushID, ID: id}, nil
	case frameCancelPush:
		if m.role == RoleServer && id >= m.nextPush || m.role == RoleClient && id >= m.permitted {
			return Event{}, connError(IDError, "CANCEL_PUSH of a push that does not exist") // RFC 9114 7.2.3
		}
		return Event{Kind: CancelPush, ID: id}, nil
	}
	return m.priorityUpdate(t, id, string(p[n:]))
}

func (m *Machine) settings(p []byte) (Event, error) {
	s, err := parseSettings(p)
	if err != nil {
		return Event{}, err
	}
	if old := m.remembered; old != nil {
		switch {
		case old.TableCapacity > 0 && s.TableCapacity != old.TableCapacity: // RFC 9204 3.2.3
			return Event{}, connError(QPACKDecoderStreamError, "the table has another capacity than in the session that was resumed")
		case !s.permits(old): // RFC 9114 7.2.4.2
			return Event{}, connError(SettingsError, "less is permitted than in the session that was resumed")
		}
	}
	m.peer, m.hasPeer = s, true
	m.encoder.SetPeer(s.TableCapacity, s.BlockedStreams)
	return Event{Kind: PeerSettings}, nil
}

// goAway handles GOAWAY (RFC 9114 5.2, 7.2.6).
func (m *Machine) goAway(id uint64) (Event, error) {
	if m.role == RoleClient && (isUni(id) || !isClientOwned(id)) {
		return Event{}, connError(IDError, "GOAWAY does not name a request")
	}
	if id > m.gotGoAway {
		return Event{}, connError(IDError, "GOAWAY became greater")
	}
	m.gotGoAway = id
	return Event{Kind: GoAway, ID: id}, nil
}

// priorityUpdate handles PRIORITY_UPDATE (RFC 9218 7).
func (m *Machine) priorityUpdate(t, id uint64, value string) (Event, error) {
	if t == framePriority && (isUni(id) || !isClientOwned(id)) || t == framePriorityPush && id >= m.nextPush {
		return Event{}, connError(IDError, "PRIORITY_UPDATE names no request and no push")
	}
	p, ok := ParsePriority(value)
	if !ok {
		return Event{}, connError(GeneralProtocolError, "PRIORITY_UPDATE is malformed")
	}
	return Event{Kind: PriorityUpdate, ID: id, Priority: p, Push: t == framePriorityPush}, nil
}
