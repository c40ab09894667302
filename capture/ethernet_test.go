package capture

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

const (
	ip4    = "\x45v4"
	ip6    = "\x60v6"
	noMACs = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	sender = "\x02\x00\x00\x00\x00\x09"

	llcSNAP = "\xaa\xaa\x03\x00\x00\x00" // without its EtherType
)

func TestToEthernetKnowsEveryLinkHeader(t *testing.T) {
	sll := func(kind, proto string) string { return kind + "\x00\x01\x00\x06" + sender + "\x00\x00" + proto }
	sll2 := func(proto, kind string) string {
		return proto + "\x00\x00\x00\x00\x00\x03\x00\x01" + kind + "\x06" + sender + "\x00\x00"
	}
	for _, c := range []struct {
		name, data string
		lt         LinkType
		want       string // "" where err is set
		err        error
	}{
		{"ethernet", "anything", LinkTypeEthernet, "anything", nil},
		{"raw v4", ip4, LinkTypeRaw, noMACs + "\x08\x00" + ip4, nil},
		{"raw v6", ip6, LinkTypeRawBSD, noMACs + "\x86\xdd" + ip6, nil},
		{"raw of OpenBSD", ip6, LinkTypeRawOpenBSD, noMACs + "\x86\xdd" + ip6, nil},
		{"raw neither", "\x10?", LinkTypeRaw, "", ErrNotIP},
		{"raw empty", "", LinkTypeRaw, "", ErrTruncated},
		{"ipv4", ip4, LinkTypeIPv4, noMACs + "\x08\x00" + ip4, nil},
		{"ipv6", ip6, LinkTypeIPv6, noMACs + "\x86\xdd" + ip6, nil},
		{"mpls", "label", LinkTypeMPLS, noMACs + "\x88\x47label", nil},
		{"null little-endian", "\x02\x00\x00\x00" + ip4, LinkTypeNull, noMACs + "\x08\x00" + ip4, nil},
		{"null big-endian", "\x00\x00\x00\x02" + ip4, LinkTypeNull, noMACs + "\x08\x00" + ip4, nil},
		{"null of Darwin", "\x1e\x00\x00\x00" + ip6, LinkTypeNull, noMACs + "\x86\xdd" + ip6, nil},
		{"null of FreeBSD", "\x00\x00\x00\x1c" + ip6, LinkTypeNull, noMACs + "\x86\xdd" + ip6, nil},
		{"null IPX", "\x17\x01\x00\x00x", LinkTypeNull, "", ErrNotIP},
		{"null short", "\x02\x00\x00", LinkTypeNull, "", ErrTruncated},
		{"loop", "\x00\x00\x00\x18" + ip6, LinkTypeLoop, noMACs + "\x86\xdd" + ip6, nil},
		{"loop is big-endian", "\x02\x00\x00\x00" + ip4, LinkTypeLoop, "", ErrNotIP},
		{"ppp", "\xff\x03\x00\x21" + ip4, LinkTypePPP, noMACs + "\x08\x00" + ip4, nil},
		{"ppp without address", "\x00\x57" + ip6, LinkTypePPP, noMACs + "\x86\xdd" + ip6, nil},
		{"ppp compressed", "\x21" + ip4, LinkTypePPPHDLC, noMACs + "\x08\x00" + ip4, nil},
		{"ppp mpls", "\xff\x03\x02\x81label", LinkTypePPPHDLC, noMACs + "\x88\x47label", nil},
		{"ppp lcp", "\xff\x03\xc0\x21lcp", LinkTypePPP, noMACs + "\x88\x0b\xc0\x21lcp", nil},
		{"ppp short", "\xff\x03", LinkTypePPP, "", ErrTruncated},
		{"ppp cut protocol", "\xff\x03\x00", LinkTypePPP, "", ErrTruncated},
		{"ppp empty", "", LinkTypePPP, "", ErrTruncated},
		{"ppp with direction", "\x01\xff\x03\x00\x21" + ip4, LinkTypePPPWithDir, noMACs + "\x08\x00" + ip4, nil},
		{"ppp of pppd", "\x00\x00\x57" + ip6, LinkTypePPPPPPD, noMACs + "\x86\xdd" + ip6, nil},
		{"ppp with direction empty", "", LinkTypePPPWithDir, "", ErrTruncated},
		{"pppoe", "\x11\x00", LinkTypePPPEther, noMACs + "\x88\x64\x11\x00", nil},
		{"chdlc", "\x0f\x00\x08\x00" + ip4, LinkTypeCHDLC, noMACs + "\x08\x00" + ip4, nil},
		{"chdlc as ppp", "\x8f\x00\x86\xdd" + ip6, LinkTypePPPHDLC, noMACs + "\x86\xdd" + ip6, nil},
		{"chdlc short", "\x0f\x00\x08", LinkTypeCHDLC, "", ErrTruncated},
		{"sll", sll("\x00\x00", "\x08\x00") + ip4, LinkTypeLinuxSLL, "\x00\x00\x00\x00\x00\x00" + sender + "\x08\x00" + ip4, nil},
		{"sll broadcast", sll("\x00\x01", "\x08\x06") + "arp", LinkTypeLinuxSLL, "\xff\xff\xff\xff\xff\xff" + sender + "\x08\x06arp", nil},
		{"sll llc", sll("\x00\x00", "\x00\x04") + "stp", LinkTypeLinuxSLL, "\x00\x00\x00\x00\x00\x00" + sender + "\x00\x03stp", nil},
		{"sll without address", "\x00\x00\x00\x01\x00\x00garbage!\x08\x00" + ip4, LinkTypeLinuxSLL, noMACs + "\x08\x00" + ip4, nil},
		{"sll with a long address", "\x00\x00\x00\x20\x00\x08longaddr\x08\x00" + ip4, LinkTypeLinuxSLL, noMACs + "\x08\x00" + ip4, nil},
		{"sll long llc", sll("\x00\x00", "\x00\x04") + strings.Repeat("x", 0x600), LinkTypeLinuxSLL, "", ErrNotIP},
		{"sll can", sll("\x00\x00", "\x00\x0c") + "can", LinkTypeLinuxSLL, "", ErrNotIP},
		{"sll short", "fifteen bytes..", LinkTypeLinuxSLL, "", ErrTruncated},
		{"sll2", sll2("\x86\xdd", "\x04") + ip6, LinkTypeLinuxSLL2, "\x00\x00\x00\x00\x00\x00" + sender + "\x86\xdd" + ip6, nil},
		{"sll2 broadcast", sll2("\x08\x00", "\x01") + ip4, LinkTypeLinuxSLL2, "\xff\xff\xff\xff\xff\xff" + sender + "\x08\x00" + ip4, nil},
		{"sll2 short", "nineteen bytes.....", LinkTypeLinuxSLL2, "", ErrTruncated},
		{"ppi of ethernet", "\x00\x00\x08\x00\x01\x00\x00\x00" + noMACs + "\x08\x00" + ip4, LinkTypePPI, noMACs + "\x08\x00" + ip4, nil},
		{"ppi with a field", "\x00\x00\x0c\x00\x65\x00\x00\x00\x02\x00\x00\x00" + ip6, LinkTypePPI, noMACs + "\x86\xdd" + ip6, nil},
		{"ppi of sll", "\x00\x00\x08\x00\x71\x00\x00\x00" + sll("\x00\x00", "\x08\x00") + ip4, LinkTypePPI, "\x00\x00\x00\x00\x00\x00" + sender + "\x08\x00" + ip4, nil},
		{"ppi short", "\x00\x00\x08\x00\x01\x00\x00", LinkTypePPI, "", ErrTruncated},
		{"ppi with a short length", "\x00\x00\x07\x00\x01\x00\x00\x00" + noMACs + "\x08\x00", LinkTypePPI, "", ErrNotIP},
		{"ppi with fields cut", "\x00\x00\x09\x00\x01\x00\x00\x00", LinkTypePPI, "", ErrTruncated},
		{"ppi with ethernet cut", "\x00\x00\x08\x00\x01\x00\x00\x00" + noMACs + "\x08", LinkTypePPI, "", ErrTruncated},
		{"ppi of ppi", "\x00\x00\x08\x00\xc0\x00\x00\x00\x00\x00\x08\x00\x01\x00\x00\x00" + noMACs + "\x08\x00", LinkTypePPI, "", ErrLinkType},
		{"ppi of USB", "\x00\x00\x08\x00\xbd\x00\x00\x00wlan", LinkTypePPI, "", ErrLinkType},
		{"ppi of a number beyond 16 bits", "\x00\x00\x08\x00\x01\x00\x01\x00" + noMACs + "\x08\x00", LinkTypePPI, "", ErrLinkType},
		{"frame relay", "\x18\x41\x03\xcc" + ip4, LinkTypeFrameRelay, noMACs + "\x08\x00" + ip4, nil},
		{"frame relay v6", "\x18\x41\x03\x8e" + ip6, LinkTypeFrameRelay, noMACs + "\x86\xdd" + ip6, nil},
		{"frame relay snap", "\x18\x41\x03\x80\x00\x00\x00\x86\xdd" + ip6, LinkTypeFrameRelay, noMACs + "\x86\xdd" + ip6, nil},
		{"frame relay snap with a pad", "\x18\x41\x03\x00\x80\x00\x00\x00\x08\x00" + ip4, LinkTypeFrameRelay, noMACs + "\x08\x00" + ip4, nil},
		{"frame relay bridged", "\x18\x41\x03\x00\x80\x00\x80\xc2\x00\x07" + sender + sender + "\x08\x00" + ip4, LinkTypeFrameRelay, sender + sender + "\x08\x00" + ip4, nil},
		{"frame relay of Cisco", "\x18\x41\x08\x00" + ip4, LinkTypeFrameRelay, noMACs + "\x08\x00" + ip4, nil},
		{"frame relay, long address", "\x18\x40\x00\x01\x03\xcc" + ip4, LinkTypeFrameRelay, noMACs + "\x08\x00" + ip4, nil},
		{"frame relay, longer address", "\x18\x40\x00\x02\x01\x03\xcc" + ip4, LinkTypeFrameRelay, "", ErrNotIP},
		{"frame relay, short address", "\x19\x03\xcc" + ip4, LinkTypeFrameRelay, "", ErrNotIP},
		{"frame relay q.933", "\x18\x41\x03\x08\x00", LinkTypeFrameRelay, "", ErrNotIP},
		{"frame relay snap of another", "\x18\x41\x03\x80\x00\x00\x0c\x20\x00cdp", LinkTypeFrameRelay, "", ErrNotIP},
		{"frame relay lmi of Cisco", "\xfc\xf1\x00\x75\x51", LinkTypeFrameRelay, "", ErrNotIP},
		{"frame relay cut address", "\x18", LinkTypeFrameRelay, "", ErrTruncated},
		{"frame relay cut pad", "\x18\x41\x03\x00", LinkTypeFrameRelay, "", ErrTruncated},
		{"frame relay cut snap", "\x18\x41\x03\x80\x00\x00\x00\x08", LinkTypeFrameRelay, "", ErrTruncated},
		{"frame relay with direction", "\x01\x18\x41\x03\xcc" + ip4, LinkTypeFrameRelayDir, noMACs + "\x08\x00" + ip4, nil},
		{"fddi", "\x50" + sender + sender + llcSNAP + "\x08\x00" + ip4, LinkTypeFDDI, sender + sender + "\x08\x00" + ip4, nil},
		{"fddi with a priority", "\x57" + sender + sender + llcSNAP + "\x86\xdd" + ip6, LinkTypeFDDI, sender + sender + "\x86\xdd" + ip6, nil},
		{"fddi synchronous", "\xd0" + sender + sender + llcSNAP + "\x08\x00" + ip4, LinkTypeFDDI, "", ErrNotIP},
		{"fddi of the station management", "\x41" + sender + sender + llcSNAP + "\x08\x00" + ip4, LinkTypeFDDI, "", ErrNotIP},
		{"fddi llc of IP", "\x50" + sender + sender + "\x06\x06\x03" + ip4, LinkTypeFDDI, sender + sender + "\x08\x00" + ip4, nil},
		{"fddi llc of STP", "\x50" + sender + sender + "\x42\x42\x03stp!", LinkTypeFDDI, "", ErrNotIP},
		{"fddi llc, not unnumbered", "\x50" + sender + sender + "\xaa\xaa\x00\x00\x00\x00\x08\x00" + ip4, LinkTypeFDDI, "", ErrNotIP},
		{"fddi llc of two SAPs", "\x50" + sender + sender + "\x06\xaa\x03" + ip4, LinkTypeFDDI, "", ErrNotIP},
		{"fddi cut", "\x50" + sender, LinkTypeFDDI, "", ErrTruncated},
		{"fddi cut llc", "\x50" + sender + sender + "\xaa\xaa", LinkTypeFDDI, "", ErrTruncated},
		{"token ring", "\x10\x40" + sender + sender + llcSNAP + "\x08\x00" + ip4, LinkTypeTokenRing, sender + sender + "\x08\x00" + ip4, nil},
		{"token ring with a route", "\x10\x40" + sender + "\x82" + sender[1:] + "\x06\x30\x00\x11\x00\x20" + llcSNAP + "\x86\xdd" + ip6, LinkTypeTokenRing, sender + "\x02" + sender[1:] + "\x86\xdd" + ip6, nil},
		{"token ring with a route of nothing", "\x10\x40" + sender + "\x82" + sender[1:] + "\x00\x30" + llcSNAP + "\x08\x00" + ip4, LinkTypeTokenRing, "", ErrNotIP},
		{"token ring of the ring itself", "\x10\x00" + sender + sender + llcSNAP + "\x08\x00" + ip4, LinkTypeTokenRing, "", ErrNotIP},
		{"token ring cut", "\x10\x40" + sender, LinkTypeTokenRing, "", ErrTruncated},
		{"token ring cut route", "\x10\x40" + sender + "\x82" + sender[1:], LinkTypeTokenRing, "", ErrTruncated},
		{"token ring cut within its route", "\x10\x40" + sender + "\x82" + sender[1:] + "\x1f\x30" + llcSNAP + "\x08\x00", LinkTypeTokenRing, "", ErrTruncated},
		{"atm", llcSNAP + "\x08\x00" + ip4, LinkTypeATMRFC1483, noMACs + "\x08\x00" + ip4, nil},
		{"atm nlpid", "\xfe\xfe\x03\xcc" + ip4, LinkTypeATMRFC1483, noMACs + "\x08\x00" + ip4, nil},
		{"atm nlpid v6", "\xfe\xfe\x03\x8e" + ip6, LinkTypeATMRFC1483, noMACs + "\x86\xdd" + ip6, nil},
		{"atm nlpid of PPP", "\xfe\xfe\x03\xcf\x00\x21" + ip4, LinkTypeATMRFC1483, noMACs + "\x08\x00" + ip4, nil},
		{"atm nlpid of snap", "\xfe\xfe\x03\x80\x00\x00\x00\x08\x00" + ip4, LinkTypeATMRFC1483, "", ErrNotIP},
		{"atm nlpid of is-is", "\xfe\xfe\x03\x83isis", LinkTypeATMRFC1483, "", ErrNotIP},
		{"atm bridged", "\xaa\xaa\x03\x00\x80\xc2\x00\x07\x00\x00" + sender + sender + "\x08\x00" + ip4, LinkTypeATMRFC1483, sender + sender + "\x08\x00" + ip4, nil},
		{"atm bridged token ring", "\xaa\xaa\x03\x00\x80\xc2\x00\x09\x00\x00\x10\x40" + sender + sender + llcSNAP + "\x08\x00" + ip4, LinkTypeATMRFC1483, sender + sender + "\x08\x00" + ip4, nil},
		{"atm bridged fddi", "\xaa\xaa\x03\x00\x80\xc2\x00\x0a\x00\x00\x00\x50" + sender + sender + llcSNAP + "\x08\x00" + ip4, LinkTypeATMRFC1483, sender + sender + "\x08\x00" + ip4, nil},
		{"atm bridged spanning tree", "\xaa\xaa\x03\x00\x80\xc2\x00\x0e" + "bpdu", LinkTypeATMRFC1483, "", ErrNotIP},
		{"atm bridged cut pad", "\xaa\xaa\x03\x00\x80\xc2\x00\x07\x00", LinkTypeATMRFC1483, "", ErrTruncated},
		{"atm bridged cut", "\xaa\xaa\x03\x00\x80\xc2\x00\x07\x00\x00" + sender, LinkTypeATMRFC1483, "", ErrTruncated},
		{"atm without llc", ip4, LinkTypeATMRFC1483, "", ErrNotIP},
		{"atm empty", "", LinkTypeATMRFC1483, "", ErrTruncated},
		{"sunatm", "\x82\x00\x00\x20" + llcSNAP + "\x86\xdd" + ip6, LinkTypeSunATM, noMACs + "\x86\xdd" + ip6, nil},
		{"sunatm without a type", "\x00\x00\x00\x20" + llcSNAP + "\x08\x00" + ip4, LinkTypeSunATM, noMACs + "\x08\x00" + ip4, nil},
		{"sunatm lane", "\x01\x00\x00\x20\x00\x05" + sender + sender + "\x08\x00" + ip4, LinkTypeSunATM, sender + sender + "\x08\x00" + ip4, nil},
		{"sunatm signalling", "\x06\x00\x00\x05" + llcSNAP + "\x08\x00" + ip4, LinkTypeSunATM, "", ErrNotIP},
		{"sunatm lane cut", "\x01\x00\x00\x20\x00", LinkTypeSunATM, "", ErrTruncated},
		{"sunatm cut", "\x02\x00", LinkTypeSunATM, "", ErrTruncated},
		{"frame relay of PPP", "\x18\x41\x03\xcf\x00\x21" + ip4, LinkTypeFrameRelay, noMACs + "\x08\x00" + ip4, nil},
		{"frame relay with direction empty", "", LinkTypeFrameRelayDir, "", ErrTruncated},
		{"chdlc with direction", "\x01\x0f\x00\x08\x00" + ip4, LinkTypeCHDLCDir, noMACs + "\x08\x00" + ip4, nil},
		{"ipoib", strings.Repeat("g", 40) + "\x08\x00\x00\x00" + ip4, LinkTypeIPoIB, noMACs + "\x08\x00" + ip4, nil},
		{"ipoib short", strings.Repeat("g", 40) + "\x08\x00\x00", LinkTypeIPoIB, "", ErrTruncated},
		{"dsa", sender + sender + "\x40\x00\x00\x00\x08\x00" + ip4, LinkTypeDSA, sender + sender + "\x08\x00" + ip4, nil},
		{"dsa tagged", sender + sender + "\x60\x00\x20\x05\x08\x00" + ip4, LinkTypeDSA, sender + sender + "\x81\x00\x20\x05\x08\x00" + ip4, nil},
		{"dsa short", sender + sender + "\x40\x00\x00\x00\x08", LinkTypeDSA, "", ErrTruncated},
		{"edsa", sender + sender + "\xda\xda\x00\x00\x40\x00\x00\x00\x08\x00" + ip4, LinkTypeEDSA, sender + sender + "\x08\x00" + ip4, nil},
		{"edsa without tag", sender + sender + "\x08\x00" + ip4, LinkTypeEDSA, sender + sender + "\x08\x00" + ip4, nil},
		{"edsa without tag, second octet", sender + sender + "\xda\x00" + ip4, LinkTypeEDSA, sender + sender + "\xda\x00" + ip4, nil},
		{"edsa short", sender + sender + "\xda", LinkTypeEDSA, "", ErrTruncated},
		{"brcm", sender + sender + "\x00\x00\x00\x01\x08\x00" + ip4, LinkTypeBRCM, sender + sender + "\x08\x00" + ip4, nil},
		{"brcm short", sender + sender + "\x00\x00\x00\x01\x08", LinkTypeBRCM, "", ErrTruncated},
		{"brcm in front", "\x00\x00\x00\x01" + sender + sender + "\x08\x00" + ip4, LinkTypeBRCMPrepend, sender + sender + "\x08\x00" + ip4, nil},
		{"brcm in front short", "\x00\x00\x00", LinkTypeBRCMPrepend, "", ErrTruncated},
		{"usb", "usb", LinkTypeUSBLinux, "", ErrLinkType},
		{"can", "can", LinkTypeSocketCAN, "", ErrLinkType},
		{"USB", "wlan", LinkTypeUSBLinux, "", ErrLinkType},
	} {
		got, err := ToEthernet(c.lt, []byte(c.data), nil)
		if string(got) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
}

func TestUnsupportedLinkTypesAreNamed(t *testing.T) {
	for lt, want := range map[LinkType]string{189: "USB_LINUX (189)", 227: "CAN_SOCKETCAN (227)", 119: "IEEE802_11_PRISM (119)", 286: "ELEE (286)", 4321: "LINKTYPE_4321 (4321)"} {
		if _, err := ToEthernet(lt, nil, nil); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%d: %v", lt, err)
		}
	}
}

func TestToEthernetReusesTheBuffer(t *testing.T) {
	dst := make([]byte, 0, 100)
	data := []byte(ip4)
	n := testing.AllocsPerRun(100, func() {
		got, _ := ToEthernet(LinkTypeRaw, data, dst)
		if &got[0] != &dst[:1][0] {
			t.Fatal("another buffer")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// upper names the layers from IP on, by gopacket.
func upper(data []byte, first gopacket.Decoder) string {
	var names []string
	for _, l := range gopacket.NewPacket(data, first, gopacket.NoCopy).Layers() {
		switch l.LayerType() {
		case layers.LayerTypeEthernet, layers.LayerTypeLinuxSLL, layers.LayerTypeLinuxSLL2, layers.LayerTypeLoopback, layers.LayerTypePPP:
		default:
			names = append(names, l.LayerType().String()+" "+string(l.LayerContents()))
		}
	}
	return strings.Join(names, "\n")
}

func TestConvertedPacketsDecodeAsBefore(t *testing.T) {
	checked := map[LinkType]int{}
	for _, path := range testpcaps.Files(t) {
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for rec, err := r.Next(); err == nil; rec, err = r.Next() {
			lt := rec.LinkType
			if lt == LinkTypeEthernet {
				continue
			}
			frame, err := ToEthernet(lt, rec.Data, nil)
			if err != nil {
				t.Logf("%s: record %d: %v", filepath.Base(path), r.Records(), err)
				continue
			}
			want := upper(rec.Data, layers.LinkType(lt))
			if lt == LinkTypeIPv4 {
				want = upper(rec.Data, layers.LayerTypeIPv4)
			}
			if lt == LinkTypeCHDLC {
				want = upper(rec.Data[4:], layers.EthernetType(bigEndian.u16(rec.Data[2:])))
			}
			if strings.HasPrefix(want, "DecodeFailure") {
				continue // gopacket refuses address lengths that are not 6
			}
			if got := upper(frame, layers.LayerTypeEthernet); got != want {
				t.Errorf("%s: record %d: %v decodes as\n%.300q, want\n%.300q", filepath.Base(path), r.Records(), lt, got, want)
				break
			}
			checked[lt]++
		}
		r.Close()
	}
	t.Logf("packets by link type: %v", checked)
}

func TestEveryTextOfALinkTypeIsUsable(t *testing.T) {
	if s := LinkTypeEthernet.String(); s != "ETHERNET" {
		t.Error(s)
	}
	for lt, name := range linkNames {
		if name != strings.ToUpper(name) || lt.String() != name {
			t.Errorf("%d: %q", lt, name)
		}
	}
}
