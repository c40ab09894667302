package control

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// synWith returns a segment with the given options.
func synWith(src, dst, flags string, options []byte) []byte {
	s := client(src, dst, flags)
	s.options = options
	return s.bytes()
}

// mssOf returns the MSS option that gopacket finds, 0 for none.
func mssOf(t *testing.T, p []byte) uint16 {
	t.Helper()
	tcp := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP)
	for _, o := range tcp.Options {
		if o.OptionType == layers.TCPOptionKindMSS && len(o.OptionData) == 2 {
			return uint16(o.OptionData[0])<<8 | uint16(o.OptionData[1])
		}
	}
	return 0
}

func TestTheMSSIsClampedWhereverItLies(t *testing.T) {
	for name, c := range map[string]struct {
		options []byte
		want    uint16
	}{
		"first":                   {[]byte{2, 4, 5, 0xb4, 1, 3, 3, 7}, 1000},
		"at an odd offset":        {[]byte{1, 2, 4, 5, 0xb4, 3, 3, 7}, 1000},
		"behind timestamps":       {append([]byte{8, 10, 1, 2, 3, 4, 5, 6, 7, 8}, 2, 4, 0xff, 0xff, 1, 1), 1000},
		"odd, all ones":           {[]byte{1, 1, 1, 2, 4, 0xff, 0xff, 0}, 1000},
		"already small":           {[]byte{2, 4, 2, 0x18}, 536},
		"just right":              {[]byte{2, 4, 0x03, 0xe8}, 1000},
		"one more":                {[]byte{2, 4, 0x03, 0xe9}, 1000},
		"absent":                  {[]byte{1, 1, 1, 1}, 0},
		"no options at all":       {nil, 0},
		"behind the end":          {[]byte{0, 2, 4, 5, 0xb4, 0, 0, 0}, 0},
		"behind a length of 0":    {[]byte{9, 0, 2, 4, 5, 0xb4, 0, 0}, 0},
		"behind a length too far": {[]byte{9, 40, 2, 4, 5, 0xb4, 0, 0}, 0},
		"kind without length":     {[]byte{1, 1, 1, 2}, 0},
		"cut off":                 {[]byte{1, 2, 4, 5}, 0},
		"of another length":       {[]byte{2, 3, 5, 1}, 0},
	} {
		for _, at := range [][2]string{{host, web}, {"[2001:db8::9]:40000", "[2001:db8:1::1]:80"}} {
			t.Run(name+" "+at[0], func(t *testing.T) {
				w := newWorld(t, strings.ReplaceAll(fill(""), "- name: web", "- name: web\n    mss: 1000"))
				in := synWith(at[0], at[1], "S", c.options)
				out := w.expect(0, in, 1)
				if got := mssOf(t, out); c.want != 0 && got != c.want {
					t.Errorf("MSS %d, want %d", got, c.want)
				}
				l4 := 54
				if at[0] == host {
					l4 = 34
				}
				if c.want == 0 && !bytes.Equal(in[l4+20:], out[l4+20:]) {
					t.Errorf("options %x became %x", in[l4+20:], out[l4+20:])
				}
				w.transportRight(out)
			})
		}
	}
}

// transportRight checks the transport checksum by the slow sum: gopacket writes some options anew.
func (w *world) transportRight(p []byte) {
	w.t.Helper()
	nl := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default).NetworkLayer()
	body := nl.LayerPayload()
	if wire.Fold(wire.SumPlain(body, pseudoOf(nl, wire.ProtoTCP, len(body)))) != 0 {
		w.t.Errorf("the checksum of %x is wrong", body)
	}
}

var mss1460 = []byte{2, 4, 5, 0xb4}

func TestOnlyTheSYNsOfBothSidesAreClamped(t *testing.T) {
	w := newWorld(t, strings.ReplaceAll(fill(""), "- name: web", "- name: web\n    mss: 1000"))
	there := w.expect(0, synWith(host, web, "S", mss1460), 1)
	if got := mssOf(t, there); got != 1000 {
		t.Errorf("SYN: %d", got)
	}
	a := answer(there, "SA")
	a.options = mss1460
	back := w.expect(1, a.bytes(), 0)
	w.checksumsRight(back)
	if got := mssOf(t, back); got != 1000 {
		t.Errorf("SYN+ACK: %d", got)
	}
	if got := mssOf(t, w.expect(0, synWith(host, web, "PA", mss1460), 1)); got != 1460 {
		t.Errorf("segment: %d", got)
	}
	w = newWorld(t, fill(""))
	if got := mssOf(t, w.expect(0, synWith(host, web, "S", mss1460), 1)); got != 1460 {
		t.Errorf("without mss: %d", got)
	}
	bad := synWith(host, web, "S", mss1460)
	bad[len(bad)-1] ^= 1
	w = newWorld(t, strings.ReplaceAll(fill(""), "- name: web", "- name: web\n    mss: 1000"))
	if p := w.expect(0, bad, 1); bytes.Equal(p, recomputed(p)) {
		t.Error("a wrong checksum became right")
	}
}

// auto is what fits the smaller of both ways, less what a tunnel takes.
func TestTheMSSThatFits(t *testing.T) {
	big := []byte{2, 4, 0xff, 0xff}
	for _, c := range []struct {
		mode, backend string
		mtu           [2]int // of port 0, port 1
		want4, want6  uint16
	}{
		{"ipip", backend4, [2]int{1500, 1500}, 1440, 1420},
		{"ipip", backend6, [2]int{1500, 1500}, 1420, 1400},
		{"gue", backend4, [2]int{1500, 1500}, 1428, 1408},
		{"gue", backend6, [2]int{1500, 1500}, 1408, 1388},
		{"l2", backend4, [2]int{1500, 1400}, 1360, 1340},
		{"l2", backend4, [2]int{1400, 1500}, 1360, 1340},
		{"ipip", backend4, [2]int{1400, 9000}, 1360, 1340},
		{"l2", backend4, [2]int{0, 1500}, 1460, 1440},
		{"l2", backend4, [2]int{1500, 0}, 1460, 1440},
		{"ipip", backend4, [2]int{0, 0}, 65535, 65535},
	} {
		t.Run(fmt.Sprint(c.mode, " ", c.backend, " ", c.mtu), func(t *testing.T) {
			w := newWorld(t, strings.ReplaceAll(fmt.Sprintf(tunnelConfig, c.mode, c.backend), "{name: web,", "{name: web, mss: auto,"))
			w.g.SetDevice(0, datapath.Device{Name: "gw0", MAC: macGw0, MTU: c.mtu[0]})
			w.g.SetDevice(1, datapath.Device{Name: "gw1", MAC: macGw1, MTU: c.mtu[1]})
			for at, want := range map[[2]string]uint16{
				{host, web}: c.want4,
				{"[2001:db8::9]:40000", "[2001:db8:1::1]:80"}: c.want6,
			} {
				out := w.expect(0, synWith(at[0], at[1], "S", big), 1)
				inner := out
				if c.mode != "l2" {
					_, _, inner = unwrap(t, c.mode, out)
					inner[12], inner[13] = 0x08, 0
					if inner[14]>>4 == 6 {
						inner[12], inner[13] = 0x86, 0xdd
					}
				}
				if got := mssOf(t, inner); got != want {
					t.Errorf("from %s: MSS %d, want %d", at[0], got, want)
				}
				w.transportRight(inner)
			}
		})
	}
}

// The checksum of a SYN that is left to the device is made when the option says what it will.
func TestTheMSSOfAnUnfinishedSYN(t *testing.T) {
	w := newWorld(t, strings.ReplaceAll(fill(""), "- name: web", "- name: web\n    mss: 1000"))
	got, flags := w.large(0, synWith(host, web, "S", mss1460), 1460)
	if got.verdict != packet.Forward || !flags.Has(packet.FlagOffload) || mssOf(t, got.p) != 1000 {
		t.Fatalf("%v, flags %#x, MSS %d", got.verdict, flags, mssOf(t, got.p))
	}
	w.checksumsRight(got.p)
}
