package http3

// Settings hold the settings of one end (RFC 9114 7.2.4.1).
type Settings struct {
	// TableCapacity and BlockedStreams are those of QPACK (RFC 9204 5).
	TableCapacity, BlockedStreams uint64
	// MaxFieldSection is the largest field section that is accepted, in bytes; 0 is no limit.
	MaxFieldSection uint64
	// ExtendedConnect permits CONNECT with :protocol (RFC 9220 3). Only a server's has a meaning.
	ExtendedConnect bool
	// Datagrams reports that HTTP datagrams are understood (RFC 9297 2.1.1).
	Datagrams bool
	// WebTransport is the number of sessions of WebTransport; 0 is none. Session is the credit that the peer has in
	// each at its begin.
	WebTransport uint64
	Session      SessionLimits

	// sessions reports that this end knows draft 15 of WebTransport, whose :protocol has another name.
	sessions bool
}

// append appends the SETTINGS frame.
func (s Settings) append(dst []byte) []byte {
	p := s.appendPayload(nil)
	return append(appendFrameHeader(dst, frameSettings, uint64(len(p))), p...)
}

// appendPayload appends the payload of the frame.
func (s Settings) appendPayload(p []byte) []byte {
	put := func(id, v uint64) {
		if v > 0 {
			p = appendVarint(appendVarint(p, id), min(v, maxVarint))
		}
	}
	flag := map[bool]uint64{true: 1}
	put(settingTable, s.TableCapacity)
	put(settingSection, s.MaxFieldSection)
	put(settingBlocked, s.BlockedStreams)
	put(settingConnect, flag[s.ExtendedConnect])
	put(settingDatagram, flag[s.Datagrams])
	put(settingSessionsOldest, flag[s.WebTransport > 0])
	put(settingSessionsOld, s.WebTransport)
	put(settingSessions14, s.WebTransport)
	put(settingSessions, flag[s.sessions])
	put(settingSessionData, s.Session.Data)
	put(settingSessionUniStreams, s.Session.UniStreams)
	put(settingSessionStreams, s.Session.Streams)
	return p
}

// permits reports whether what a client does by the settings old is within s.
func (s *Settings) permits(old *Settings) bool {
	section := s.MaxFieldSection == 0 || old.MaxFieldSection > 0 && old.MaxFieldSection <= s.MaxFieldSection
	flags := (s.ExtendedConnect || !old.ExtendedConnect) && (s.Datagrams || !old.Datagrams) && (s.sessions || !old.sessions)
	sessions := s.WebTransport >= old.WebTransport && s.Session.Streams >= old.Session.Streams &&
		s.Session.UniStreams >= old.Session.UniStreams && s.Session.Data >= old.Session.Data
	return section && flags && sessions && s.BlockedStreams >= old.BlockedStreams
}

// parseSettings parses the payload of a SETTINGS frame.
func parseSettings(p []byte) (s Settings, err error) {
	var seen []uint64
	for len(p) > 0 {
		id, a := varint(p)
		v, b := varint(p[a:])
		if a == 0 || b == 0 {
			return s, connError(FrameError, "the SETTINGS frame is cut")
		}
		p = p[a+b:]
		for _, other := range seen {
			if other == id {
				return s, connError(SettingsError, "a setting comes twice") // RFC 9114 7.2.4
			}
		}
		if seen = append(seen, id); len(seen) > 256 {
			return s, connError(ExcessiveLoad, "more than 256 settings")
		}
		if err := s.set(id, v); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *Settings) set(id, v uint64) error {
	flag := false
	switch id {
	case settingTable:
		s.TableCapacity = v
	case settingSection:
		s.MaxFieldSection = max(v, 1) // 0 would be no limit
	case settingBlocked:
		s.BlockedStreams = v
	case settingConnect:
		flag, s.ExtendedConnect = true, v == 1
	case settingDatagram:
		flag, s.Datagrams = true, v == 1
	case settingSessionsOld, settingSessions14:
		s.WebTransport = max(s.WebTransport, v)
	case settingSessionsOldest:
		s.WebTransport = max(s.WebTransport, min(v, 1))
	case settingSessions:
		s.WebTransport, s.sessions = max(s.WebTransport, min(v, 1)), v > 0
	case settingSessionData:
		s.Session.Data = v
	case settingSessionUniStreams:
		s.Session.UniStreams = v
	case settingSessionStreams:
		s.Session.Streams = v
	case 0x2, 0x3, 0x4, 0x5:
		return connError(SettingsError, "a setting of HTTP/2") // RFC 9114 7.2.4.1
	}
	if flag && v > 1 {
		return connError(SettingsError, "a setting that is neither 0 nor 1") // RFC 8441 3, RFC 9297 2.1.1
	}
	return nil
}
