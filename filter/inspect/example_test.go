package inspect_test

import (
	"fmt"
	"log"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// One rule about requests for a name is evaluated on two frames.
func ExampleEngine() {
	file := signature.Parse("local.rules", `alert udp any any -> any 53 (msg:"a forbidden name"; content:"|09|forbidden"; nocase; sid:1;)`, nil)
	rules, err := inspect.Compile(file.Rules)
	if err != nil {
		log.Fatal(err)
	}
	engine := inspect.New(rules, inspect.Config{}, func(a *inspect.Alert) {
		fmt.Printf("packet %d from %s: %s\n", a.Packet, a.Src, a.Rule.Msg)
	})
	for _, name := range []string{"\x07example\x03com\x00", "\x09Forbidden\x07example\x00"} {
		engine.Packet(0, query(name))
	}
	// Output: packet 2 from 198.18.0.1: a forbidden name
}

// query returns an Ethernet frame with a DNS query (RFC 1035 4.1) for the addresses of a name in wire format.
func query(name string) []byte {
	dns := append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, name...)
	dns = append(dns, 0, 1, 0, 1)
	frame := wire.AppendEthernet(nil, wire.MAC{2}, wire.MAC{2, 1}, wire.EtherTypeIPv4)
	frame = wire.AppendIPv4(frame, &wire.IPv4Header{
		TTL: 64, Proto: wire.ProtoUDP, Src: [4]byte{198, 18, 0, 1}, Dst: [4]byte{198, 18, 0, 2}, PayloadLen: wire.UDPLen + len(dns),
	})
	return append(wire.AppendUDP(frame, 40000, 53, len(dns)), dns...)
}
