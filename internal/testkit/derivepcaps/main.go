// Command derivepcaps reads captures of Ethernet and writes what the kernel of a recording may lack: the
// same packets behind tags, in tunnels and under other link types. gopacket, not Millrace, encodes
// them, so that tests compare with another implementation.
//
//	cd internal/testkit/testpcaps/testdata && go run ../../derivepcaps start.pcap http.pcap
package main

import (
	"encoding/binary"
	"log"
	"net"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// perFile bounds the packets of a file.
const perFile = 60

var (
	src4, dst4 = net.IP{198, 18, 2, 1}, net.IP{198, 18, 2, 2}
	src6, dst6 = net.ParseIP("2001:db8:2::1"), net.ParseIP("2001:db8:2::2")
	srcMAC     = net.HardwareAddr{2, 0, 0, 0, 2, 1}
	dstMAC     = net.HardwareAddr{2, 0, 0, 0, 2, 2}
)

// packet is one packet of the input, taken apart.
type packet struct {
	at    time.Time
	frame []byte // with its Ethernet header
	ip    []byte // from the network header on; nil unless it is IP
	six   bool
}

func (p packet) etherType() layers.EthernetType {
	if p.six {
		return layers.EthernetTypeIPv6
	}
	return layers.EthernetTypeIPv4
}

func (p packet) protocol() layers.IPProtocol {
	if p.six {
		return layers.IPProtocolIPv6
	}
	return layers.IPProtocolIPv4
}

// form makes another packet of one, nil for none.
type form struct {
	link layers.LinkType
	make func(p packet) []byte
}

var forms = map[string]form{
	"vlan.pcap":   {layers.LinkTypeEthernet, func(p packet) []byte { return tagged(p, 7) }},
	"qinq.pcap":   {layers.LinkTypeEthernet, func(p packet) []byte { return tagged(p, 9, 8) }},
	"mpls.pcap":   {layers.LinkTypeEthernet, mpls},
	"pppoe.pcap":  {layers.LinkTypeEthernet, pppoe},
	"ipip.pcap":   {layers.LinkTypeEthernet, func(p packet) []byte { return over4(p, p.protocol()) }},
	"ip6tnl.pcap": {layers.LinkTypeEthernet, func(p packet) []byte { return over6(p, p.protocol()) }},
	"gre.pcap": {layers.LinkTypeEthernet, func(p packet) []byte {
		return over4(p, layers.IPProtocolGRE, &layers.GRE{Protocol: p.etherType(), KeyPresent: true, Key: 77})
	}},
	"gretap.pcap": {layers.LinkTypeEthernet, func(p packet) []byte {
		p.ip = p.frame
		return over6(p, layers.IPProtocolGRE, &layers.GRE{Protocol: layers.EthernetTypeTransparentEthernetBridging, ChecksumPresent: true})
	}},
	"geneve.pcap": {layers.LinkTypeEthernet, func(p packet) []byte {
		p.ip = p.frame
		head := []byte{0, 0, 0x65, 0x58, 0, 0, 6, 0} // RFC 8926 3.4: no options, Ethernet inside, VNI 6
		return over4(p, layers.IPProtocolUDP, &layers.UDP{SrcPort: 50_000, DstPort: 6081}, gopacket.Payload(head))
	}},
	"raw.pcap": {layers.LinkTypeRaw, func(p packet) []byte { return p.ip }},
	"ipv4.pcap": {layers.LinkTypeIPv4, func(p packet) []byte {
		if p.six {
			return nil
		}
		return p.ip
	}},
	"null.pcap": {layers.LinkTypeNull, func(p packet) []byte {
		family := uint32(2) // AF_INET
		if p.six {
			family = 30 // AF_INET6 of macOS
		}
		return append(binary.LittleEndian.AppendUint32(nil, family), p.ip...)
	}},
	"ppp.pcap": {layers.LinkTypePPP, func(p packet) []byte { return serialize(p.ip, &layers.PPP{PPPType: pppType(p), HasPPTPHeader: true}) }},
	"chdlc.pcap": {layers.LinkTypeC_HDLC, func(p packet) []byte {
		return append(binary.BigEndian.AppendUint16([]byte{0x0f, 0}, uint16(p.etherType())), p.ip...)
	}},
}

func serialize(payload []byte, stack ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(stack, gopacket.Payload(payload))...)
	if err != nil {
		log.Fatal(err)
	}
	return buf.Bytes()
}

func ethernet(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: srcMAC, DstMAC: dstMAC, EthernetType: t}
}

// tagged puts one or more tags behind the addresses; the outer of several is an S-tag (802.1ad).
func tagged(p packet, ids ...uint16) []byte {
	f := append([]byte(nil), p.frame[:12]...)
	for i, id := range ids {
		tpid := layers.EthernetTypeDot1Q
		if i < len(ids)-1 {
			tpid = layers.EthernetTypeQinQ
		}
		f = binary.BigEndian.AppendUint16(f, uint16(tpid))
		f = binary.BigEndian.AppendUint16(f, 3<<13|id)
	}
	return append(f, p.frame[12:]...)
}

func mpls(p packet) []byte {
	return serialize(p.ip, ethernet(layers.EthernetTypeMPLSUnicast),
		&layers.MPLS{Label: 1000, TTL: 64}, &layers.MPLS{Label: 2000, TTL: 64, StackBottom: true})
}

func pppType(p packet) layers.PPPType {
	if p.six {
		return layers.PPPTypeIPv6
	}
	return layers.PPPTypeIPv4
}

func pppoe(p packet) []byte {
	return serialize(p.ip, ethernet(layers.EthernetTypePPPoESession),
		&layers.PPPoE{Version: 1, Type: 1, Code: layers.PPPoECodeSession, SessionId: 5}, &layers.PPP{PPPType: pppType(p)})
}

// over4 carries a packet in IPv4, behind the headers of more.
func over4(p packet, proto layers.IPProtocol, more ...gopacket.SerializableLayer) []byte {
	outer := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src4, DstIP: dst4, Flags: layers.IPv4DontFragment}
	return carry(p, ethernet(layers.EthernetTypeIPv4), outer, more)
}

// over6 carries a packet in IPv6, behind the headers of more.
func over6(p packet, proto layers.IPProtocol, more ...gopacket.SerializableLayer) []byte {
	outer := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: src6, DstIP: dst6}
	return carry(p, ethernet(layers.EthernetTypeIPv6), outer, more)
}

func carry(p packet, eth, outer gopacket.SerializableLayer, more []gopacket.SerializableLayer) []byte {
	stack := []gopacket.SerializableLayer{eth, outer}
	for _, l := range more {
		if u, ok := l.(*layers.UDP); ok {
			if err := u.SetNetworkLayerForChecksum(outer.(gopacket.NetworkLayer)); err != nil {
				log.Fatal(err)
			}
		}
		stack = append(stack, l)
	}
	return serialize(p.ip, stack...)
}

// read returns the IP packets of a capture of Ethernet.
func read(path string) (all []packet) {
	f, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		log.Fatal(err)
	}
	for {
		b, info, err := r.ReadPacketData()
		if err != nil {
			return all
		}
		p := packet{at: info.Timestamp, frame: b}
		switch t := layers.EthernetType(binary.BigEndian.Uint16(b[12:])); t {
		case layers.EthernetTypeIPv4:
			p.ip = b[14 : 14+binary.BigEndian.Uint16(b[16:])]
		case layers.EthernetTypeIPv6:
			p.ip, p.six = b[14:54+binary.BigEndian.Uint16(b[18:])], true
		default:
			continue
		}
		if len(p.ip) < 1400 { // what a tunnel can carry
			all = append(all, p)
		}
	}
}

func write(path string, f form, packets []packet) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w := pcapgo.NewWriter(file)
	if err := w.WriteFileHeader(1<<18, f.link); err != nil {
		return err
	}
	n := 0
	for _, p := range packets {
		b := f.make(p)
		if b == nil || n == perFile {
			continue
		}
		n++
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: p.at, CaptureLength: len(b), Length: len(b)}, b); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	var packets []packet
	for _, path := range os.Args[1:] {
		all := read(path)
		packets = append(packets, all[:min(len(all), perFile/(len(os.Args)-1))]...)
	}
	for name, f := range forms {
		if err := write(name, f, packets); err != nil {
			log.Fatal(err)
		}
	}
}
