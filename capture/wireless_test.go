package capture

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

var snapIPv4 = []byte{0xAA, 0xAA, 3, 0, 0, 0, 8, 0}

// dot11Frame makes a data frame with addresses 1 to 4 and a first byte of the body.
func dot11Frame(control uint16, qos byte, four bool) []byte {
	f := []byte{byte(control), byte(control >> 8), 0, 0}
	for a := byte(1); a <= 3; a++ {
		f = append(f, bytes.Repeat([]byte{a}, 6)...)
	}
	f = append(f, 0, 0)
	if four {
		f = append(f, bytes.Repeat([]byte{4}, 6)...)
	}
	if control&dot11QoS != 0 {
		f = append(f, qos, 0)
		if control&dot11Order != 0 {
			f = append(f, 0, 0, 0, 0)
		}
	}
	return append(append(f, snapIPv4...), 0x45)
}

func TestLinkTypesWithAPacketInside(t *testing.T) {
	radiotap := []byte{0, 0, 9, 0, 0, 0, 0, 0, 0}
	nf := []byte{2, 0, 0, 0, 8, 0, 1, 0, 8, 0, 3, 2, 5, 0, 10, 0, 'x', 0, 0, 0, 5, 0, 9, 0, 0x45}
	nfBig := []byte{10, 0, 0, 0, 0, 8, 0, 1, 8, 0, 3, 2, 0, 5, 0, 9, 0x60}
	ethernet := append(bytes.Repeat([]byte{7}, 12), 8, 0, 0x45)
	tap := func(inner byte, p ...byte) []byte {
		return append([]byte{16, 0, 0, 0, 1, 0, 0, 0, inner, 0, 0, 0, 9, 9, 9, 9}, p...)
	}
	for name, c := range map[string]struct {
		lt       LinkType
		data     []byte
		dst, src byte
		ether    uint16
		err      error
	}{
		"802.11":              {LinkTypeIEEE80211, dot11Frame(8, 0, false), 1, 2, etherIPv4, nil},
		"to the network":      {LinkTypeIEEE80211, dot11Frame(8|dot11ToDS, 0, false), 3, 2, etherIPv4, nil},
		"from the network":    {LinkTypeRadiotap, slices.Concat(radiotap, dot11Frame(8|dot11FromDS, 0, false)), 1, 3, etherIPv4, nil},
		"between two":         {LinkTypeIEEE80211, dot11Frame(8|dot11ToDS|dot11FromDS, 0, true), 3, 4, etherIPv4, nil},
		"QoS":                 {LinkTypeRadiotap, slices.Concat(radiotap, dot11Frame(8|dot11QoS, 0, false)), 1, 2, etherIPv4, nil},
		"QoS and HT":          {LinkTypeIEEE80211, dot11Frame(8|dot11QoS|dot11Order, 0, false), 1, 2, etherIPv4, nil},
		"several packets":     {LinkTypeIEEE80211, dot11Frame(8|dot11QoS, 0x80, false), 0, 0, 0, ErrNotIP},
		"encrypted":           {LinkTypeIEEE80211, dot11Frame(8|dot11Protected, 0, false), 0, 0, 0, ErrNotIP},
		"a beacon":            {LinkTypeIEEE80211, dot11Frame(0x80, 0, false), 0, 0, 0, ErrNotIP},
		"no body":             {LinkTypeIEEE80211, dot11Frame(0x48, 0, false), 0, 0, 0, ErrNotIP},
		"cut":                 {LinkTypeIEEE80211, dot11Frame(8, 0, false)[:31], 0, 0, 0, ErrTruncated},
		"NFLOG":               {LinkTypeNFLOG, nf, 0, 0, etherIPv4, nil},
		"NFLOG, big-endian":   {LinkTypeNFLOG, nfBig, 0, 0, etherIPv6, nil},
		"NFLOG of ARP":        {LinkTypeNFLOG, append([]byte{3}, nf[1:]...), 0, 0, 0, ErrNotIP},
		"NFLOG, no payload":   {LinkTypeNFLOG, nf[:12], 0, 0, 0, ErrTruncated},
		"NFLOG, no length":    {LinkTypeNFLOG, []byte{2, 0, 0, 0, 0, 0, 1, 0}, 0, 0, 0, ErrNotIP},
		"PKTAP of Ethernet":   {LinkTypePKTAP, tap(1, ethernet...), 7, 7, etherIPv4, nil},
		"PKTAP of IP":         {LinkTypePKTAP, tap(101, 0x45), 0, 0, etherIPv4, nil},
		"PKTAP of PKTAP":      {LinkTypePKTAP, tap(0, 0x45), 0, 0, 0, ErrTruncated},
		"PKTAP, short":        {LinkTypePKTAP, tap(1, ethernet...)[:20], 0, 0, 0, ErrTruncated},
		"PKTAP of 802.11 QoS": {LinkTypePKTAP, tap(105, dot11Frame(8|dot11QoS, 0, false)...), 1, 2, etherIPv4, nil},
	} {
		h, skip, err := Replace(c.lt, c.data)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
			continue
		}
		if err != nil {
			continue
		}
		if h[0] != c.dst || h[11] != c.src || uint16(h[12])<<8|uint16(h[13]) != c.ether || len(c.data)-skip != 1 {
			t.Errorf("%s: %x, %d bytes of packet", name, h, len(c.data)-skip)
		}
	}
}
