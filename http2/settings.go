package http2

import "encoding/binary"

// Identifiers of settings (RFC 9113 6.5.2, RFC 8441 3).
const (
	settingHeaderTable     = 1
	settingPush            = 2
	settingMaxStreams      = 3
	settingWindow          = 4
	settingMaxFrame        = 5
	settingMaxFieldSection = 6
	settingExtendedConnect = 8
)

// Settings hold the limits that a peer announces (RFC 9113 6.5.2).
type Settings struct {
	MaxStreams      uint32 // streams at a time that this end opens
	Window          uint32 // bytes of content in flight on a new stream
	MaxFrame        uint32 // bytes of payload
	MaxFieldSection uint64 // bytes; 0 if the peer does not say
	ExtendedConnect bool   // CONNECT with :protocol (RFC 8441 3)
}

// initialSettings apply until the peer's arrive.
func initialSettings() Settings {
	return Settings{MaxStreams: 100, Window: defaultWindow, MaxFrame: minFrame}
}

// read takes the payload of SETTINGS. Settings that are not known are ignored.
func (s *Settings) read(p []byte, from Role) error {
	for ; len(p) >= 6; p = p[6:] {
		v := binary.BigEndian.Uint32(p[2:])
		switch binary.BigEndian.Uint16(p) {
		case settingPush:
			if v > 1 || v == 1 && from == RoleServer {
				return errSettingsValue
			}
		case settingMaxStreams:
			s.MaxStreams = v
		case settingWindow:
			if v > maxWindow {
				return errWindowSetting
			}
			s.Window = v
		case settingMaxFrame:
			if v < minFrame || v > maxFrame {
				return errSettingsValue
			}
			s.MaxFrame = v
		case settingMaxFieldSection:
			s.MaxFieldSection = uint64(v)
		case settingExtendedConnect:
			if v > 1 || v == 0 && s.ExtendedConnect {
				return errSettingsValue
			}
			s.ExtendedConnect = v == 1
		}
	}
	return nil
}

// appendSettings appends the SETTINGS frame of a machine.
func (m *Machine) appendSettings(dst []byte) []byte {
	at := len(dst)
	dst = appendHeader(dst, 0, frameSettings, 0, 0)
	put := func(id uint16, v uint32) {
		dst = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(dst, id), v)
	}
	o := &m.options
	put(settingHeaderTable, uint32(o.HeaderTable))
	if m.role == RoleClient {
		put(settingPush, 0)
	} else {
		put(settingMaxStreams, uint32(o.MaxStreams))
		if o.ExtendedConnect {
			put(settingExtendedConnect, 1)
		}
	}
	put(settingWindow, uint32(o.Window))
	put(settingMaxFieldSection, uint32(o.MaxFieldSection))
	length := len(dst) - at - frameHeaderLen
	dst[at+1], dst[at+2] = byte(length>>8), byte(length)
	if more := o.ConnWindow - defaultWindow; more > 0 {
		dst = appendWord(dst, frameWindowUpdate, 0, uint32(more))
	}
	return dst
}
