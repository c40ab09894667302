package appid

import (
	"encoding/binary"
	"strings"
	"testing"
)

func le16(n int) string { return string(binary.LittleEndian.AppendUint16(nil, uint16(n))) }

// ip6 is an IPv6 packet without content between two addresses, the first of Teredo.
func ip6(first string) string {
	return "\x60" + zeros(5) + "\x3b\xff" + first + "\xff\x02" + zeros(13) + "\x02"
}

// masked is a frame of a WebSocket's client with a text of less than 126 bytes.
func masked(opcode byte, s string) string {
	b := []byte{0x80 | opcode, 0x80 | byte(len(s)), 1, 2, 3, 4}
	for i := range len(s) {
		b = append(b, s[i]^b[2+i&3])
	}
	return string(b)
}

const (
	teredoClient = "\x20\x01\x00\x00\xc0\x00\x02\x01\x00\x00\x12\x34\x3f\xff\xfd\xfe"
	linkLocal    = "\xfe\x80" + "\x00\x00\x00\x00\x00\x00\x00\x00\x12\x34\x3f\xff\xfd\xfe"
	rdpSizes     = "\x04\xd0\x04\xd0"
	session      = "ABCDEFGH"
)

// amqpMethod is basic.ack of AMQP 0-9-1 on a channel.
var amqpMethod = "\x01\x00\x01" + be32(13) + be16(60) + be16(80) + zeros(7) + "\x01\x00\xce"

// rakFrame is a datagram of RakNet with one reliable ordered message of 4 bytes.
var rakFrame = "\x84\x01\x00\x00\x60" + be16(32) + "\x00\x00\x00\x00\x00\x00\x00data"

// allHeaders is ALL_HEADERS of a batch, with the descriptor of a transaction.
var allHeaders = le32(22) + le32(18) + le16(2) + zeros(8) + le32(1)

func tdsOf(kind byte, s string) string {
	return string(kind) + "\x01" + be16(8+len(s)) + "\x00\x34\x01\x00" + s
}

// specified are written from the documents that the recognisers cite; wrong differs from them in one field.
var specified = []struct {
	example
	wrong []string
}{
	{example{WebSocket, tcp, 80, []string{masked(1, "{\"type\":\"subscribe\"}")}}, []string{"\xc1" + masked(1, "{\"type\":\"subscribe\"}")[1:]}},
	{example{WebSocket, tcp, 80, []string{"S:\x81\x14" + "{\"type\":\"subscribe\"}"}}, []string{"S:\x81\x13" + "{\"type\":\"subscribe\"}"}},
	{example{WebSocket, tcp, 80, []string{masked(2, "ab\x01"), "S:\x82\x02\x00\x01", masked(2, "\x00\x01")}}, []string{masked(2, "ab\x01"), "S:" + masked(2, "ab\x01"), masked(2, "\x00\x01")}},
	{example{ProxyProtocol, tcp, 80, []string{"PROXY TCP4 192.0.2.1 192.0.2.2 5 80\r\n"}}, []string{"PROXY TCP5 192.0.2.1 192.0.2.2 5 80\r\n"}},
	{example{ProxyProtocol, tcp, 80, []string{"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + zeros(12)}}, []string{"\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c" + zeros(12)}},
	{example{ICAP, tcp, 1344, []string{"REQMOD icap://a.test/x ICAP/1.0\r\nHost: a.test\r\n\r\n"}}, []string{"REQMOD icap://a.test/x ICAP/2.0\r\n\r\n"}},
	{example{ICAP, tcp, 9999, []string{"S:ICAP/1.0 204 Unmodified\r\n"}}, []string{"S:ICAP/1.0 OK\r\n"}},
	{example{AJP, tcp, 8009, []string{"\x12\x34\x00\x0e\x02\x02\x00\x08HTTP/1.1\x00\x00"}}, []string{"\x12\x34\x00\x0e\x02\x1c\x00\x08HTTP/1.1\x00\x00"}},
	{example{AJP, tcp, 9999, []string{"\x12\x34\x00\x01\x0a", "S:AB\x00\x01\x09"}}, []string{"\x12\x34\x00\x02\x0a", "S:AB\x00\x01\x09"}},
	{example{FastCGI, tcp, 9000, []string{"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x01\x00" + zeros(5)}}, []string{"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x04\x00" + zeros(5)}},
	{example{OpenFlow, tcp, 6653, []string{"\x04\x00\x00\x08\x00\x00\x00\x01"}}, []string{"\x04\x24\x00\x08\x00\x00\x00\x01"}},
	{example{OpenFlow, tcp, 9999, []string{"\x04\x00\x00\x10\x00\x00\x00\x01\x00\x01\x00\x08\x00\x00\x00\x12"}}, []string{"\x04\x00\x00\x10\x00\x00\x00\x01\x00\x02\x00\x08\x00\x00\x00\x12"}},
	{example{Thrift, tcp, 9090, []string{sized("\x80\x01\x00\x01" + sized("ping") + be32(1) + "\x00")}}, []string{sized("\x80\x01\x00\x05" + sized("ping") + be32(1) + "\x00")}},
	{example{Thrift, tcp, 9090, []string{"\x82\x21\x01\x04ping\x00"}}, []string{"\x82\x22\x01\x04ping\x00"}},
	{example{ZeroMQ, tcp, 5555, []string{"\xff" + zeros(8) + "\x7f"}}, []string{"\xff" + zeros(8) + "\x7e"}},
	{example{OpenWire, tcp, 61616, []string{sized("\x01ActiveMQ" + be32(12) + zeros(8))}}, []string{sized("\x02ActiveMQ" + be32(12) + zeros(8))}},
	{example{GIOP, tcp, 2809, []string{"GIOP\x01\x02\x01\x00" + zeros(8)}}, []string{"GIOP\x01\x02\x01\x08" + zeros(8)}},
	{example{RMI, tcp, 1099, []string{"JRMI\x00\x02\x4b"}}, []string{"JRMI\x00\x02\x4e"}},
	{example{DICOM, tcp, 104, []string{"\x01\x00" + be32(100) + "\x00\x01\x00\x00" + strings.Repeat("A", 32) + zeros(64)}}, []string{"\x01\x01" + be32(100) + "\x00\x01\x00\x00" + strings.Repeat("A", 32) + zeros(64)}},
	{example{HL7, tcp, 2575, []string{"\x0bMSH|^~\\&|A|B\r\x1c\r"}}, []string{"\x0bMSG|^~\\&|A|B\r\x1c\r"}},
	{example{Z3950, tcp, 210, []string{"\xb4\x08\x83\x02\x00\xe0\x84\x02\x00\x00"}}, []string{"\xb4\x08\x83\x02\x00\xe0\x85\x02\x00\x00"}},
	{example{Icecast, tcp, 8000, []string{"S:ICY 200 OK\r\nicy-name:a\r\n"}}, []string{"S:ICY 100 OK\r\nicy-name:a\r\n"}},
	{example{RSH, tcp, 514, []string{"1023\x00", "local\x00remote\x00ls\x00"}}, []string{"1023\x00", "local\x00remote\x00ls"}},
	{example{Munin, tcp, 4949, []string{"S:# munin node at a.test\n"}}, []string{"# munin node at a.test\n"}},
	{example{Checkmk, tcp, 6556, []string{"S:<<<check_mk>>>\nVersion: 2\n"}}, []string{"S:<<check_mk>>\nVersion: 2\n"}},
	{example{BFCP, tcp, 9999, []string{"\x20\x0b\x00\x01" + be32(7) + be16(1) + be16(2) + "\x05\x04\x00\x01"}}, []string{"\x20\x13\x00\x01" + be32(7) + be16(1) + be16(2) + "\x05\x04\x00\x01"}},
	{example{BFCP, udp, 9999, []string{"\x20\x0b\x00\x01" + be32(7) + be16(1) + be16(2) + "\x05\x04\x00\x01"}}, []string{"\x20\x0b\x00\x02" + be32(7) + be16(1) + be16(2) + "\x05\x04\x00\x01"}},
	{example{ADS, tcp, 48898, []string{"\x00\x00" + le32(32) + "\xc0\x00\x02\x01\x01\x01\x21\x03\xc0\x00\x02\x02\x01\x01\x00\x80" + le16(4) + le16(4) + le32(0) + le32(0) + le32(1)}}, []string{"\x00\x00" + le32(32) + zeros(16) + le16(10) + le16(4) + zeros(12)}},
	{example{ADS, tcp, 48898, []string{"\x00\x00" + le32(33) + zeros(16) + le16(2) + le16(5) + le32(1) + zeros(8) + "x"}}, []string{"\x00\x00" + le32(33) + zeros(16) + le16(2) + le16(5) + le32(2) + zeros(8) + "x"}},
	{example{MMS, tcp, 102, []string{"\x03\x00\x00\x14\x02\xf0\x80\x01\x00\x01\x00\x61" + zeros(8)}}, []string{"\x03\x00\x00\x14\x02\xf0\x80\x01\x00\x02\x00\x61" + zeros(8)}},
	{example{UMAS, tcp, 502, []string{"\x00\x01\x00\x00\x00\x04\x00\x5a\x00\x02"}}, []string{"\x00\x01\x00\x00\x00\x04\x00\x5b\x00\x02"}},
	{example{SLMP, tcp, 5007, []string{"\x50\x00\x00\xff\xff\x03\x00" + le16(6) + zeros(6)}}, []string{"\x50\x00\x00\xff\xff\x03\x00" + le16(7) + zeros(6)}},
	{example{SLMP, udp, 5007, []string{"\x54\x00\x12\x34\x00\x00\x00\xff\xff\x03\x00" + le16(6) + zeros(6)}}, []string{"\x54\x00\x12\x34\x00\x01\x00\xff\xff\x03\x00" + le16(6) + zeros(6)}},
	{example{DoIP, tcp, 13400, []string{"\x02\xfd\x00\x05" + be32(7) + zeros(7)}}, []string{"\x02\xfc\x00\x05" + be32(7) + zeros(7)}},
	{example{DoIP, udp, 13400, []string{"\x02\xfd\x00\x01" + be32(0)}}, []string{"\x02\xfd\x00\x09" + be32(0)}},
	{example{Tuya, tcp, 6668, []string{be32(0x55aa) + be32(1) + be32(10) + be32(8) + zeros(4) + be32(0xaa55)}}, []string{be32(0x55aa) + be32(1) + be32(10) + be32(9) + zeros(4) + be32(0xaa55)}},
	{example{Tuya, udp, 6667, []string{be32(0x55aa) + be32(1) + be32(10) + be32(8) + zeros(4) + be32(0xaa55)}}, []string{be32(0x55aa) + be32(1) + be32(10) + be32(8) + zeros(4) + be32(0xaa54)}},
	{example{Ethereum, tcp, 30303, []string{be16(321) + "\x04" + strings.Repeat(key, 20)}}, []string{be16(321) + "\x03" + strings.Repeat(key, 20)}},
	{example{Ethereum, udp, 30303, []string{strings.Repeat(key, 6) + "\x01\x01\xc3\x04\xc0\x80"}}, []string{strings.Repeat(key, 6) + "\x02\x01\xc3\x04\xc0\x80"}},
	{example{EDonkey, tcp, 4662, []string{"\xe3" + le32(30) + "\x01\x10" + key + zeros(12)}}, []string{"\xe3" + le32(31) + "\x01\x10" + key + zeros(12)}},
	{example{RDP, udp, 3389, []string{"\xff\xff\xff\xff\x00\x40\x00\x01" + be32(7) + rdpSizes + zeros(1216)}}, []string{"\xff\xff\xff\xff\x00\x40\x00\x01" + be32(7) + "\x04\x00\x04\xd0" + zeros(1216)}},
	{example{RDP, udp, 3389, []string{"S:" + be32(7) + "\x00\x40\x00\x05" + be32(9) + rdpSizes + zeros(1216)}}, []string{"S:" + be32(7) + "\x00\x40\x00\x04" + be32(9) + rdpSizes + zeros(1216)}},
	{example{OpenFlow, tcp, 6653, []string{"\x01\x05\x00\x08\x00\x00\x00\x02"}}, []string{"\x03\x00\x00\x16\x11\xe0\x00\x00\x00\x01" + zeros(12)}},
	{example{Teredo, udp, 3544, []string{ip6(teredoClient)}}, []string{ip6("\x20\x01\x00\x01" + teredoClient[4:])}},
	{example{Teredo, udp, 3544, []string{"\x00\x01\x00\x00" + zeros(9) + ip6(linkLocal)}}, []string{"\x00\x01\x00\x01" + zeros(9) + ip6(linkLocal)}},
	{example{PFCP, udp, 8805, []string{"\x20\x01\x00\x0c\x00\x00\x01\x00" + be16(96) + be16(4) + "\xe0\x00\x00\x01"}}, []string{"\x20\x01\x00\x0c\x00\x00\x01\x00" + be16(96) + be16(5) + "\xe0\x00\x00\x01"}},
	{example{PFCP, udp, 8805, []string{"\x21\x36\x00\x0c" + zeros(11) + "\x01"}}, []string{"\x20\x36\x00\x0c" + zeros(11) + "\x01"}},
	{example{RMCP, udp, 623, []string{"\x06\x00\xff\x06" + be32(4542) + "\x80\x00\x00\x00"}}, []string{"\x06\x00\xff\x06" + be32(4543) + "\x80\x00\x00\x00"}},
	{example{RMCP, udp, 623, []string{"\x06\x00\xff\x07" + zeros(9) + "\x09\x20\x18\xc8\x81\x00\x38\x8e\x04\xb5"}}, []string{"\x06\x00\xff\x07" + zeros(9) + "\x0b\x20\x18\xc8\x81\x00\x38\x8e\x04\xb5"}},
	{example{WCCP, udp, 2048, []string{be32(10) + be16(0x200) + be16(12) + be16(0) + be16(8) + zeros(8)}}, []string{be32(14) + be16(0x200) + be16(12) + be16(0) + be16(8) + zeros(8)}},
	{example{GLBP, udp, 3222, []string{"\x01\x00\x00\x0a\x00\x00" + key[:6] + "\x01\x04\x00\x00"}}, []string{"\x01\x00\x00\x0a\x00\x00" + key[:6] + "\x01\x05\x00\x00"}},
	{example{SAP, udp, 9875, []string{"\x20\x00\x12\x34\xc0\x00\x02\x01application/sdp\x00v=0\r\n"}}, []string{"\x40\x00\x12\x34\xc0\x00\x02\x01application/sdp\x00v=0\r\n"}},
	{example{Collectd, udp, 25826, []string{be16(0) + be16(6) + "a\x00" + be16(1) + be16(12) + zeros(8)}}, []string{be16(0) + be16(6) + "a\x00" + be16(1) + be16(11) + zeros(8)}},
	{example{Roughtime, udp, 2002, []string{"ROUGHTIM" + le32(8) + zeros(8)}}, []string{"ROUGHTIM" + le32(9) + zeros(8)}},
	{example{RX, udp, 7000, []string{be32(1<<31) + be32(2) + be32(1) + be32(1) + be32(1) + "\x01\x05\x00\x00" + be16(0) + be16(52)}}, []string{be32(1<<31) + be32(2) + be32(1) + be32(1) + be32(1) + "\x0e\x05\x00\x00" + be16(0) + be16(52)}},
	{example{TRDP, udp, 17224, []string{be32(9) + be16(0x0100) + "Pd" + be32(1000) + zeros(8) + be32(0) + zeros(16)}}, []string{be32(9) + be16(0x0100) + "Px" + be32(1000) + zeros(8) + be32(0) + zeros(16)}},
	{example{EtherSBus, udp, 5050, []string{be32(12) + "\x01\x00\x00\x01\x00\x01\x12\x34"}}, []string{be32(12) + "\x01\x00\x00\x01\x03\x01\x12\x34"}},
	{example{MAVLink, udp, 14550, []string{"\xfe\x09\x01\x01\x01\x00" + zeros(11)}}, []string{"\xfe\x08\x01\x01\x01\x00" + zeros(11)}},
	{example{MAVLink, udp, 9999, []string{"\xfd\x09\x00\x00\x01\x01\x01" + zeros(14), "\xfd\x09\x00\x00\x02\x01\x01" + zeros(14)}}, []string{"\xfd\x09\x00\x00\x01\x01\x01" + zeros(14), "\xfd\x09\x00\x00\x02\x02\x01" + zeros(14)}},
	{example{LoRaWAN, udp, 1700, []string{"\x02\x12\x34\x00" + key[:8] + `{"stat":{}}`}}, []string{"\x02\x12\x34\x06" + key[:8] + `{"stat":{}}`}},
	{example{BJNP, udp, 8611, []string{"BJNP\x01\x01\x00\x00\x00\x01\x00\x00" + be32(0)}}, []string{"BJNP\x01\x01\x00\x00\x00\x01\x00\x00" + be32(1)}},
	{example{TeamSpeak, udp, 9987, []string{"TS3INIT1\x00\x65\x00\x00\x88" + zeros(21)}}, []string{"TS2INIT1\x00\x65\x00\x00\x88" + zeros(21)}},
	{example{Quake, udp, 27960, []string{"\xff\xff\xff\xffgetstatus\n"}}, []string{"\xff\xff\xff\xffsetstatus\n"}},
	{example{TDS, tcp, 9999, []string{tdsOf(1, allHeaders+"s\x00")}}, []string{tdsOf(1, le32(22)+le32(17)+allHeaders[8:]+"s\x00")}},
	{example{TDS, tcp, 1433, []string{"S:" + tdsOf(4, "\xfd\x10\x00\xc1\x00"+zeros(8))}}, []string{"S:" + tdsOf(4, "\xfc\x10\x00\xc1\x00"+zeros(8))}},
	{example{AMQP, tcp, 9999, []string{amqpMethod}}, []string{amqpMethod[:len(amqpMethod)-1] + "\xcd"}},
	{example{AMQP, tcp, 9999, []string{"\x08\x00\x00" + be32(0) + "\xce"}}, []string{"\x08\x00\x01" + be32(0) + "\xce"}},
	{example{AMQP, tcp, 9999, []string{be32(14) + "\x02\x00\x00\x01\x00\x53\x14\xc0\x01\x00"}}, []string{be32(14) + "\x02\x00\x00\x01\x00\x53\x19\xc0\x01\x00"}},
	{example{MQTT, tcp, 9999, []string{"\x30\x08\x00\x04a/bcxy"}}, []string{"\x30\x08\x00\x04a+bcxy"}},
	{example{MQTT, tcp, 1883, []string{"\x82\x08\x00\x01\x00\x03a/b\x01"}}, []string{"\x82\x08\x00\x01\x00\x03a/b\x41"}},
	{example{MQTT, tcp, 1883, []string{"S:\x20\x03\x00\x00\x00"}}, []string{"S:\x20\x03\x00\x00\x01"}},
	{example{MQTT, tcp, 1883, []string{"\xc0\x00"}}, []string{"\xc0\x01"}},
	{example{STUN, udp, 3478, []string{"\x00\x01\x00\x18" + key + "\x01\x01\x00\x14" + zeros(20)}}, []string{"\x00\x01\x00\x18" + key + "\x01\x01\x00\x15" + zeros(20)}},
	{example{TLS, tcp, 9999, []string{"\x17\x03\x03\x05\xbb" + key, "S:\x17\x03\x03\x05\xbb" + key}}, []string{"\x17\x03\x03\x05\xbb" + key, "S:\x17\x03\x05\x05\xbb" + key}},
	{example{MGCP, udp, 2727, []string{"S:200 1234 OK\r\n"}}, []string{"S:600 1234 OK\r\n"}},
	{example{OpenVPN, udp, 9999, []string{"\x38" + session + zeros(5), "\x38" + session + zeros(5), "S:\x40abcdefgh\x01" + zeros(4) + session + zeros(4)}}, []string{"\x38" + session + zeros(5), "S:\x40abcdefgh\x01" + zeros(4) + "ABCDEFGI" + zeros(4)}},
	{example{OpenVPN, udp, 1194, []string{"\x48\x00\x00\x01" + be32(7) + key, "\x48\x00\x00\x01" + be32(8) + key}}, []string{"\x48\x00\x00\x01" + be32(7) + key, "\x48\x00\x00\x02" + be32(8) + key}},
	{example{IPsec, udp, 4500, []string{key[:8] + zeros(8) + "\x21\x20\x22\x08" + be32(0) + be32(28)}}, []string{key[:8] + zeros(8) + "\x21\x20\x22\x08" + be32(0) + be32(29)}},
	{example{IPsec, udp, 4500, []string{key[:4] + be32(7) + key + key, key[:4] + be32(8) + key + key}}, []string{key[:4] + be32(7) + key + key, key[:4] + be32(7) + key + key}},
	{example{L2TP, udp, 1701, []string{"\x00\x02" + be16(1) + be16(2) + "\xff\x03\x00\x21" + zeros(20), "\x00\x02" + be16(1) + be16(2) + "\xff\x03\x00\x21" + zeros(20)}}, []string{"\x00\x02" + be16(1) + be16(2) + "\xff\x03\x00\x21" + zeros(20), "\x00\x02" + be16(1) + be16(3) + "\xff\x03\x00\x21" + zeros(20)}},
	{example{DTLS, udp, 4433, []string{"\x19\xfe\xfd" + be16(1) + zeros(6) + "ID" + be16(32) + key + key, "\x19\xfe\xfd" + be16(1) + zeros(5) + "\x01ID" + be16(32) + key + key}}, []string{"\x19\xfe\xfd" + be16(1) + zeros(6) + "ID" + be16(32) + key + key, "\x19\xfe\xfd" + be16(0) + zeros(5) + "\x01ID" + be16(32) + key + key}},
	{example{TFTP, udp, 45000, []string{"\x00\x03\x00\x01data", "S:\x00\x04\x00\x01"}}, []string{"\x00\x03\x00\x01data", "S:\x00\x04\x00\x02"}},
	{example{TFTP, udp, 45000, []string{"\x00\x06blksize\x001024\x00"}}, []string{"\x00\x06blocks\x001024\x00"}},
	{example{TFTP, udp, 45000, []string{"\x00\x05\x00\x01File not found\x00"}}, []string{"\x00\x05\x00\x09File not found\x00"}},
	{example{RakNet, udp, 9999, []string{rakFrame, "S:\xc0\x00\x01\x01\x01\x00\x00"}}, []string{rakFrame, "S:\xc0\x00\x02\x01\x01\x00\x00"}},
	{example{RakNet, udp, 9999, []string{"S:\xc0\x00\x01\x01\x01\x00\x00", rakFrame}}, []string{"S:\xc0\x00\x01\x01\x01\x00\x00", rakFrame + "\x00"}},
}

func TestSpecified(t *testing.T) {
	for i := range specified {
		e := specified[i].example
		if got := play(&e).Protocol(); got != e.protocol {
			t.Errorf("%v over %d at %d: %v: %.60q", e.protocol, e.transport, e.port, got, e.payloads)
		}
		e.payloads = specified[i].wrong
		if got := play(&e).Protocol(); got == e.protocol {
			t.Errorf("%v over %d at %d although a field is wrong: %.60q", got, e.transport, e.port, e.payloads)
		}
	}
}
