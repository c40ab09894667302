package capture

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/millrace/millrace/wire"
)

const tag = "\x81\x00\x00\x07"

// v4Packet is an IPv4 packet of 40 bytes with a length of its own and the right checksum for that.
func v4Packet(length uint16) string {
	h := []byte("\x45\x00..\x00\x00\x00\x00\x40\x06\x00\x00\xc6\x12\x00\x01\xc6\x12\x00\x02")
	binary.BigEndian.PutUint16(h[2:], length)
	binary.BigEndian.PutUint16(h[10:], wire.Fold(wire.SumPlain(h, 0)))
	return string(h) + strings.Repeat("t", 20)
}

// v6Packet is an IPv6 packet of 60 bytes.
func v6Packet(length uint16, next byte) string {
	return string([]byte{0x60, 0, 0, 0, byte(length >> 8), byte(length), next, 64}) + strings.Repeat("a", 32) + strings.Repeat("t", 20)
}

func TestRebaseFindsIPBehindWhatTheHeaderPassDoesNotRead(t *testing.T) {
	const snap = "\xaa\xaa\x03\x00\x00\x00\x08\x00"
	for name, c := range map[string]struct {
		frame string
		want  Rebased
	}{
		"Ethernet":                  {noMACs + "\x08\x00" + ip4, Rebased{}},
		"two tags":                  {noMACs + tag + tag + "\x08\x00" + ip4, Rebased{}},
		"three tags":                {noMACs + tag + tag + tag + "\x86\xdd" + ip6, Rebased{Shift: 12, Ether: etherIPv6, Tagged: true}},
		"three tags of ARP":         {noMACs + tag + tag + tag + "\x08\x06arp", Rebased{}},
		"three tags of MPLS":        {noMACs + tag + tag + tag + "\x88\x47label", Rebased{Shift: 12, Ether: etherMPLS, Tagged: true}},
		"three tags, cut":           {noMACs + tag + tag + tag[:3], Rebased{}},
		"tag 9100":                  {noMACs + "\x91\x00\x00\x07\x08\x00" + ip4, Rebased{Shift: 4, Ether: etherIPv4, Tagged: true}},
		"tag 9100 and another":      {noMACs + "\x91\x00\x00\x07" + tag + "\x08\x00" + ip4, Rebased{Shift: 8, Ether: etherIPv4, Tagged: true}},
		"SNAP":                      {noMACs + "\x00\x0c" + snap + ip4, Rebased{Shift: 8, Ether: etherIPv4}},
		"SNAP behind a tag":         {noMACs + tag + "\x00\x0c" + snap + ip4, Rebased{Shift: 12, Ether: etherIPv4, Tagged: true}},
		"SNAP of another":           {noMACs + "\x00\x0c\xaa\xaa\x03\x00\x00\x0c\x20\x00cdp", Rebased{}},
		"SNAP, not unnumbered":      {noMACs + "\x00\x0c\xaa\xaa\x00\x00\x00\x00\x08\x00" + ip4, Rebased{}},
		"LLC of IP":                 {noMACs + "\x00\x07\x06\x06\x03" + ip4, Rebased{Shift: 3, Ether: etherIPv4, Moved: true}},
		"LLC of STP":                {noMACs + "\x00\x07\x42\x42\x03stp!", Rebased{}},
		"PPPoE":                     {noMACs + "\x88\x64\x11\x00\x00\x01\x00\x05\x00\x21" + ip4, Rebased{}},
		"PPPoE, one octet":          {noMACs + "\x88\x64\x11\x00\x00\x01\x00\x04\x21" + ip4, Rebased{Shift: 7, Ether: etherIPv4, Moved: true}},
		"PPPoE, one octet, IPv6":    {noMACs + tag + "\x88\x64\x11\x00\x00\x01\x00\x04\x57" + ip6, Rebased{Shift: 11, Ether: etherIPv6, Moved: true, Tagged: true}},
		"PPPoE, one octet, Van J.":  {noMACs + "\x88\x64\x11\x00\x00\x01\x00\x04\x2d" + ip4, Rebased{}},
		"PPPoE discovery":           {noMACs + "\x88\x64\x11\x09\x00\x00\x00\x04\x21" + ip4, Rebased{}},
		"tags without an end":       {noMACs + strings.Repeat(tag, 32) + "\x08\x00" + ip4, Rebased{}},
		"cut in front of EtherType": {noMACs + "\x81", Rebased{}},
	} {
		if got := Rebase([]byte(c.frame)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	got := Readable([]byte(noMACs+"\x00\x2b\x06\x06\x03"+v4Packet(0)), 0)
	if want := "\x08\x00" + v4Packet(40); string(got[macs:]) != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Readable([]byte("short"), 5); string(got) != "short" {
		t.Errorf("%q", got)
	}
}

func TestLengthsOfZeroAreFilledIn(t *testing.T) {
	jumbo := "\x06\x00\xc2\x04\x00\x01\x00\x00"
	for name, c := range map[string]struct {
		ether      uint16
		p          string
		cut        int // bytes that were not captured
		want       string
		unsupplied bool
	}{
		"IPv4":                       {etherIPv4, v4Packet(0), 0, v4Packet(40), false},
		"IPv4, cut":                  {etherIPv4, v4Packet(0), 1000, v4Packet(1040), false},
		"IPv4 beyond the field":      {etherIPv4, v4Packet(0), 70000, v4Packet(65535), false},
		"IPv4 with a length":         {etherIPv4, v4Packet(39), 0, "", true},
		"IPv4 with a length of 256":  {etherIPv4, v4Packet(256), 0, "", true},
		"IPv4, its header cut":       {etherIPv4, v4Packet(0)[:19], 21, "", true},
		"IPv4 of version 5":          {etherIPv4, "\x55" + v4Packet(0)[1:], 0, "", true},
		"behind a tag":               {etherVLAN, tag[2:] + "\x08\x00" + v4Packet(0), 0, tag[2:] + "\x08\x00" + v4Packet(40), false},
		"behind PPPoE":               {etherPPPoE, "\x11\x00\x00\x01\x00\x2a\x00\x21" + v4Packet(0), 0, "\x11\x00\x00\x01\x00\x2a\x00\x21" + v4Packet(40), false},
		"behind PPPoE, IPv6":         {etherPPPoE, "\x11\x00\x00\x01\x00\x2a\x00\x57" + v6Packet(0, 6), 0, "\x11\x00\x00\x01\x00\x2a\x00\x57" + v6Packet(20, 6), false},
		"behind PPPoE, one octet":    {etherPPPoE, "\x11\x00\x00\x01\x00\x2a\x21" + v4Packet(0), 0, "\x11\x00\x00\x01\x00\x2a\x21" + v4Packet(40), false},
		"behind two labels":          {etherMPLS, "\x00\x01\x00\x40\x00\x01\x01\x40" + v4Packet(0), 0, "\x00\x01\x00\x40\x00\x01\x01\x40" + v4Packet(40), false},
		"labels without a bottom":    {etherMPLS, strings.Repeat("\x00\x01\x00\x40", 12) + v4Packet(0), 0, "", true},
		"IPv6":                       {etherIPv6, v6Packet(0, 6), 0, v6Packet(20, 6), false},
		"IPv6, cut":                  {etherIPv6, v6Packet(0, 6), 3000, v6Packet(3020, 6), false},
		"IPv6, a jumbogram":          {etherIPv6, v6Packet(0, 0)[:40] + jumbo + "tcp", 66000, v6Packet(65535, 0)[:40] + jumbo + "tcp", false},
		"IPv6 with a length":         {etherIPv6, v6Packet(19, 6), 0, "", true},
		"IPv6 with a length of 256":  {etherIPv6, v6Packet(256, 6), 0, "", true},
		"IPv6 without a next header": {etherIPv6, v6Packet(0, 59), 0, "", true},
		"IPv6, nothing behind it":    {etherIPv6, v6Packet(0, 6)[:40], 0, "", true},
		"ARP":                        {0x0806, v4Packet(0), 0, "", true},
		"nothing":                    {etherIPv4, "", 0, "", true},
		"cut within a tag":           {etherVLAN, "\x00", 0, "", true},
	} {
		p := []byte(c.p)
		wrote := FillLength(c.ether, p, len(p)+c.cut)
		want := c.want
		if c.unsupplied {
			want = c.p
		}
		if wrote == c.unsupplied || string(p) != want {
			t.Errorf("%s: %v, %q, want %q", name, wrote, p, want)
		}
	}
	wrong := []byte(v4Packet(0))
	wrong[10]++
	FillLength(etherIPv4, wrong, len(wrong))
	if wire.Fold(wire.SumPlain(wrong[:20], 0)) == 0 {
		t.Error("a wrong checksum became right")
	}
}

// FuzzReadable checks that nothing is written but a length, its checksum and an EtherType.
func FuzzReadable(f *testing.F) {
	f.Add([]byte(noMACs+tag+tag+tag+"\x08\x00"+v4Packet(0)), 60)
	f.Add([]byte(noMACs+"\x88\x47\x00\x01\x01\x40"+v6Packet(0, 6)), 3000)
	f.Add([]byte(noMACs+"\x88\x64\x11\x00\x00\x01\x00\x2a\x21"+v4Packet(0)), 0)
	f.Fuzz(func(t *testing.T, frame []byte, size int) {
		was := string(frame)
		got := Readable(frame, size)
		changed := 0
		for i := range frame {
			if frame[i] != was[i] {
				changed++
			}
		}
		if len(got) > len(was) || changed > 6 || string(Readable(got, size)[:min(12, len(got))]) != string(got[:min(12, len(got))]) {
			t.Fatalf("%d bytes of %d, %d changed", len(got), len(was), changed)
		}
	})
}
