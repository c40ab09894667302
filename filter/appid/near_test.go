package appid

import (
	"strings"
	"testing"
)

// key is what looks like a key or a name that is encrypted.
const key = "\x9b\x12\x83\xfe\x47\xa1\x5d\xc3\x0e\x77\x28\x91\xbb\x64\xd2\x3f"

// v4In is an IPv4 datagram of n bytes behind an outer header.
func v4In(n int) string { return "\x45\x00" + be16(n) + zeros(n-4) }

// more are further messages of protocols, written from their specifications.
var more = []example{
	{WireGuard, udp, 1, []string{"\x01\x00\x00\x00\x01\x02\x03\x04" + strings.Repeat(key, 8) + zeros(12)}},
	{LISP, udp, 4342, []string{"\x10\x00\x00\x01" + key[:8] + zeros(12)}},
	{LISP, udp, 4342, []string{"\x40\x00\x00\x01" + key + zeros(12)}},
	{LISP, udp, 4342, []string{"\x70\x00\x00\x00" + key}},
	{LISP, udp, 4342, []string{"\x80\x00\x00\x00" + v4In(40)}},
	{LISP, udp, 4341, []string{key[:8] + v4In(40)}},
	{LISP, udp, 4341, []string{key[:8] + "\x60\x00\x00\x00" + be16(20) + zeros(54)}},
	{NATPMP, udp, 5351, []string{"S:\x00\x80\x00\x00" + zeros(8)}},
	{NATPMP, udp, 5351, []string{"\x00\x01\x00\x00\x12\x34" + zeros(6)}},
	{NATPMP, udp, 5351, []string{"S:\x00\x82\x00\x00" + zeros(12)}},
	{NATPMP, udp, 5351, []string{"\x02\x01\x00\x00" + be32(120) + zeros(10) + "\xff\xff\xc0\x00\x02\x01" + zeros(36)}},
	{CAPWAP, udp, 5247, []string{"\x00\x10\x02\x00" + zeros(12)}},
	{GTP, udp, 3386, []string{"\x0f\x01" + be16(0) + zeros(2)}},
	{ZooKeeper, tcp, 2181, []string{"S:" + sized(zeros(4)+be32(30000)+key[:8]+be32(16)+key+"\x00")}},
	{MongoDB, tcp, 27017, []string{"S:" + le32(36) + le32(1) + le32(2) + le32(1) + zeros(20)}},
	{NTP, udp, 123, []string{"\x23\x02\x06\xec" + zeros(64)}},
	{NTP, udp, 123, []string{"\x16\x02" + zeros(8) + be16(3) + "a=1\x00"}},
	{NTP, udp, 123, []string{"\x16\x02" + zeros(8) + be16(3) + "a=1\x00" + zeros(20)}},
	{NTP, udp, 123, []string{"\x17\x00\x03\x2a" + zeros(4)}},
	{DHCPv6, udp, 547, []string{"\x0c\x01" + zeros(32) + "\x00\x09\x00\x02ab"}},
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xb4time\xff" + "x"}},
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xbd\x01" + "fourteen bytes"}},
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xd1\x0f" + "x"}},
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xe0\x06\xf3"}}, // option 269+1779 = 2048
	{CoAP, udp, 5683, []string{"\x40\x00\x12\x34"}},
	{HSRP, udp, 1985, []string{"\x00\x03\x00\x01\x00\x0a" + zeros(10)}},
	{DCERPC, tcp, 4000, []string{"\x05\x00\x0b\x03\x00\x00\x00\x00\x00\x48\x00\x00" + zeros(60)}},
	{DCERPC, tcp, 4000, []string{"\x05\x00\x00\x03\x10\x00\x00\x00\x00\x08\x00\x00" + zeros(600)}},
	{DCERPC, tcp, 4000, []string{"\x05\x00\x0e\x03\x10\x00\x00\x00\x18\x00\x00\x00" + zeros(12) + "\x05\x00"}},
	{NetFlow, udp, 2055, []string{be16(9) + be16(1) + be32(9) + be32(1_700_000_000) + zeros(8) + be16(0) + be16(4)}},
	{NetFlow, udp, 2055, []string{be16(10) + be16(20) + be32(1_700_000_000) + zeros(8) + be16(2) + be16(4)}},
	{SMPP, tcp, 2775, []string{be32(16) + be32(0x15) + be32(0) + be32(1)}},
	{Git, tcp, 9418, []string{"0036", "git-upload-pack /a.git\x00host=a\x00"}},
	{Minecraft, tcp, 25565, []string{"\x10", "\x00\xf6\x05\x09localhost\x63\xdd\x01"}},
	{Oracle, tcp, 1521, []string{be16(74) + zeros(2) + "\x01\x00\x00\x00\x01\x3f\x01\x2c" + zeros(12) + be16(200) + be16(74) + zeros(46)}},
	{Whois, tcp, 43, []string{"AS64500\r\n"}},
	{DLEP, tcp, 854, []string{be16(1) + be16(8) + be16(4) + be16(4) + "peer"}},
}

// nearly are payloads that differ from a message of the protocol in one field.
var nearly = []example{
	{WireGuard, udp, 1, []string{"\x01\x00\x00\x00\x01\x02\x03\x04" + zeros(32) + strings.Repeat(key, 6) + zeros(12)}},
	{WireGuard, udp, 1, []string{"\x02\x00\x00\x00" + key[:8] + zeros(32) + key + key + key}},
	{LISP, udp, 4342, []string{"\x10\x1f\x00\x01" + key[:8] + zeros(12)}},            // reserved
	{LISP, udp, 4342, []string{"\x10\x00\x00\x00" + key[:8] + zeros(12)}},            // no record
	{LISP, udp, 4342, []string{"\x30\x00\xff\x01" + key + zeros(12)}},                // reserved
	{LISP, udp, 4342, []string{"\x40\x00\xff\x01" + key + zeros(12)}},                // reserved
	{LISP, udp, 4342, []string{"\x70\x00\x00\x01" + key}},                            // reserved
	{LISP, udp, 4342, []string{"\x80\x00\x00\x00\x45\x00" + be16(39) + zeros(36)}},   // the datagram is longer
	{LISP, udp, 4342, []string{"\x80\x00\x00\x00\x44\x00" + be16(40) + zeros(36)}},   // a header of 16 bytes
	{LISP, udp, 4341, []string{key[:8] + "\x60\x00\x00\x00" + be16(21) + zeros(54)}}, // the datagram is longer
	{RoCE, udp, 4791, []string{"\x04\x40\xff\xff\x3f\x00\x00\x11" + zeros(12)}},      // reserved
	{RoCE, udp, 4791, []string{"\x04\x40\xff\xff\x00\x00\x00\x11\x7f" + zeros(11)}},  // reserved
	{RoCE, udp, 4791, []string{"\x04\x40\xff\xff\x00\x00\x00\x00" + zeros(12)}},      // queue 0
	{RoCE, udp, 4791, []string{"\x04\x40\xff\xff\x00\x00\x00\x11" + zeros(13)}},      // no whole words
	{GTP, udp, 3386, []string{"\x01\x01" + be16(0) + zeros(2)}},                      // spare bits
	{GTP, udp, 2152, []string{"\x38\xff" + be16(4) + be32(1) + zeros(4)}},            // the spare bit
	{GTP, udp, 2152, []string{"\x30\x00" + be16(4) + be32(1) + zeros(4)}},            // type 0
	{CAPWAP, udp, 5246, []string{"\x00\x10\x02\x00" + zeros(4) + be32(27) + "\x00\x00\x05" + zeros(3)}},
	{CAPWAP, udp, 5246, []string{"\x00\x10\x02\x00" + zeros(4) + be32(1) + "\x00\x00\x07" + zeros(3)}}, // longer
	{CAPWAP, udp, 5246, []string{"\x00\x10\x02\x07" + zeros(4) + be32(1) + "\x00\x00\x05" + zeros(3)}}, // reserved
	{CAPWAP, udp, 5247, []string{"\x00\x10\x00\x00" + zeros(12)}},                                      // no binding
	{NATPMP, udp, 5351, []string{"S:\x00\x80\x00\x06" + zeros(8)}},                                     // result 6
	{NATPMP, udp, 5351, []string{"\x00\x01\x00\x01\x12\x34" + zeros(6)}},                               // reserved
	{NATPMP, udp, 5351, []string{"\x02\x01\x00\x00" + be32(120) + zeros(52)}},                          // no address
	{NATPMP, udp, 5351, []string{"\x02\x04\x00\x00" + be32(120) + zeros(10) + "\xff\xff\xc0\x00\x02\x01"}},
	{ZooKeeper, tcp, 2181, []string{sized(zeros(24) + be32(15) + zeros(17))}},
	{ZooKeeper, tcp, 2181, []string{"S:" + sized(zeros(4)+be32(30000)+key[:8]+be32(15)+key+"\x00")}},
	{MongoDB, tcp, 27017, []string{le32(36) + le32(1) + le32(2) + le32(1) + zeros(20)}}, // an answer of a client
	{MongoDB, tcp, 27017, []string{le32(40) + le32(1) + le32(0) + le32(2013) + zeros(5) + le32(4) + zeros(15)}},
	{MongoDB, tcp, 27017, []string{le32(40) + le32(1) + le32(0) + le32(2013) + zeros(4) + "\x03" + le32(19) + zeros(15)}},
	{NTP, udp, 123, []string{"\x23\x00\x12\xec" + zeros(44)}},                         // a poll of 2^18 seconds
	{NTP, udp, 123, []string{"\x23\x00\x06\x10" + zeros(44)}},                         // a precision of 2^16 seconds
	{NTP, udp, 123, []string{"\x23\x00\x06\xec" + zeros(45)}},                         // no whole words
	{NTP, udp, 123, []string{"\x16\x02" + zeros(8) + be16(3) + "a=1\x00" + zeros(4)}}, // no digest
	{NTP, udp, 123, []string{"\x17\x00\x03\x2a\x00\x01\x00\x08"}},                     // an item of 8 bytes
	{NTP, udp, 123, []string{"\x17\x00\x04\x2a" + zeros(4)}},                          // implementation 4
	{DHCPv6, udp, 547, []string{"\x0c\x21" + zeros(32) + "\x00\x09\x00\x02ab"}},       // 33 hops
	{DHCPv6, udp, 547, []string{"\x01\x00\x00\x01\x00\x08\x00\x03\x00\x00"}},          // an option that is longer
	{DHCPv6, udp, 547, []string{"\x01\x00\x00\x01\x00\x00\x00\x02\x00\x00"}},          // option 0
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xb4time\xff"}},                       // no payload behind the marker
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xbd\x02" + "fourteen bytes"}},        // 15 bytes
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xe0\x07\x28"}},                       // option 269+1832 = 2101
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xe0\xff\x00"}},                       // option 65549
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xf0"}},                               // reserved
	{CoAP, udp, 5683, []string{"\x40\x00\x12\x34\x00"}},                               // empty, and more
	{CoAP, udp, 5683, []string{"\x40\x40\x12\x34"}},                                   // 2.00
	{HSRP, udp, 1985, []string{"\x00\x00\x10\x0a\x03\x64\x01\x00cisco\x00\x00\x00\xc0\x00\x02\x01"}},
	{HSRP, udp, 1985, []string{"\x00\x00\x03\x03\x0a\x64\x01\x00cisco\x00\x00\x00\xc0\x00\x02\x01"}}, // two states
	{HSRP, udp, 1985, []string{"\x00\x00\x10\x03\x0a\x64\x01\x00cisco\x00\x00\x00\x00\x00\x02\x01"}},
	{HSRP, udp, 1985, []string{"\x00\x00\x10\x03\x0a\x64\x01\x00cisco\x00\x00\x00\xc0\x00\x02\x01\x05\x1c"}},
	{DCERPC, tcp, 4000, []string{"\x05\x00\x0b\x03\x00\x00\x00\x00\x48\x00\x00\x00" + zeros(60)}}, // the other order
	{DCERPC, tcp, 4000, []string{"\x05\x00\x0e\x03\x10\x00\x00\x00\x18\x00\x00\x00" + zeros(12) + "\x06\x00"}},
	{DCERPC, tcp, 4000, []string{"\x05\x00\x0b\x03\x10\x00\x00\x00\x49\x00\x00\x00" + zeros(60)}}, // cut, though short
	{DCERPC, tcp, 4000, []string{"\x05\x00\x0b\x03\x10\x00\x00\x01\x48\x00\x00\x00" + zeros(60)}}, // reserved
	{NetFlow, udp, 2055, []string{be16(9) + be16(1) + be32(9) + be32(700_000_000) + zeros(8) + be16(0) + be16(4)}},
	{NetFlow, udp, 2055, []string{be16(10) + be16(20) + be32(700_000_000) + zeros(8) + be16(2) + be16(4)}},
	{SMPP, tcp, 2776, []string{be32(16) + be32(0x15) + be32(0) + be32(1)}},
	{SMPP, tcp, 2775, []string{be32(25) + be32(2) + be32(1) + be32(1) + "user\x00pass"}}, // a request with a status
	{PTP, udp, 319, []string{"\x00\x02\x00\x2c" + zeros(28) + "\x06" + zeros(11)}},
	{Gnutella, udp, 6346, []string{zeros(16) + "\x00\x01\x00" + le32(5) + zeros(5)}},
	{Photon, udp, 5055, []string{zeros(3) + "\x01" + zeros(8) + "\x02\x00\x00\x00" + be32(45) + zeros(36)}},
	{QUIC, udp, 443, []string{"\x80\x00\x00\x00\x01\x08abcdefgh\x00" + zeros(1180)}}, // no fixed bit
	{QUIC, udp, 443, []string{"\xc0\xff\x00\x00\x11\x08abcdefgh\x00" + zeros(1180)}}, // draft 17
	{QUIC, udp, 443, []string{"S:\x80\x00\x00\x00\x00\x00\x07abcdefg\x00\x00\x00\x01"}},
	{HTTP2, tcp, 80, []string{"S:" + "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00\x64"}},
	{NetBIOS, udp, 137, []string{"\x12\x34\x85\x00\x00\x00\x00\x01" + zeros(4) + "\x21" + strings.Repeat("CA", 16) + zeros(10)}},
	{Minecraft, tcp, 25565, []string{"\x10\x00\xf6\x05\x09localhost\x63\xde\x01"}}, // another port
	{Minecraft, tcp, 25565, []string{"\x10\x00\x2e\x05\x09localhost\x63\xdd\x01"}}, // version 46
	{Minecraft, tcp, 25565, []string{"\x11", "\x00\xf6\x05\x09localhost\x63\xdd\x01"}},
	{Git, tcp, 9418, []string{"00036", "git-upload-pack /a.git\x00host=a\x00"}},
	{Oracle, tcp, 1521, []string{be16(74) + zeros(2) + "\x01\x00\x00\x00\x01\x3f\x01\x2c" + zeros(12) + be16(200) + be16(73) + zeros(46)}},
	{Whois, tcp, 43, []string{"S:hello\r\n", "a.test\r\n"}},
	{Whois, tcp, 43, []string{"stats\r\n"}},
	{DLEP, tcp, 854, []string{be16(1) + be16(8) + be16(4) + be16(5) + "peer"}},
	{IMO, udp, 9, []string{"\x07", "S:\x76", "\x08"}},
	{IMO, udp, 9, []string{"\x17", "S:\x66", "\x17"}},
	{IMO, udp, 9, []string{"\x06", "S:\x76", "\x07"}},
	{Rlogin, tcp, 513, []string{"\x00local\x00remote\x00xterm\x00"}},
	{TLS, tcp, 443, []string{"\x17", "\x03\x03\x00\x14" + zeros(20)}},
}

func TestMoreExamples(t *testing.T) {
	for i := range more {
		if got := play(&more[i]).Protocol(); got != more[i].protocol {
			t.Errorf("%v at %d: %v: %.40q", more[i].protocol, more[i].port, got, more[i].payloads)
		}
	}
}

// What differs in one field that the specification fixes is not the protocol.
func TestNearlyExamples(t *testing.T) {
	for i := range nearly {
		if got := play(&nearly[i]).Protocol(); got == nearly[i].protocol {
			t.Errorf("%v at %d: %.40q", got, nearly[i].port, nearly[i].payloads)
		}
	}
}
