package appid

import (
	"encoding/binary"
	"strings"
	"testing"
)

// example is the beginning of a flow. "S:" before a payload says that the server sends it.
type example struct {
	protocol  Protocol
	transport uint8
	port      uint16
	payloads  []string
}

func be16(n int) string    { return string(binary.BigEndian.AppendUint16(nil, uint16(n))) }
func be32(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
func le32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
func zeros(n int) string   { return strings.Repeat("\x00", n) }

// sized is s with its length in 32 bits before it.
func sized(s string) string { return be32(uint32(len(s))) + s }

const question = "\x01a\x04test\x00\x00\x01\x00\x01"

// examples are written from the specifications, one for each recogniser at least.
var examples = []example{
	{TLS, tcp, 443, []string{"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + zeros(32)}},
	{TLS, tcp, 443, []string{"\x17\x03\x03\x00\x14" + zeros(20)}},
	{TLS, tcp, 443, []string{"\x80\x1c\x01\x03\x01\x00\x03\x00\x00\x00\x10\x00\x00\x2f" + zeros(16)}},
	{HTTP, tcp, 80, []string{"GET /index.html HTTP/1.1\r\nHost: a.test\r\n\r\n"}},
	{HTTP, tcp, 80, []string{"S:HTTP/1.1 200 OK\r\n\r\n"}},
	{HTTPConnect, tcp, 3128, []string{"CONNECT a.test:443 HTTP/1.1\r\n\r\n"}},
	{HTTP2, tcp, 80, []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}},
	{HTTP2, tcp, 80, []string{"S:" + "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"}},
	{SSH, tcp, 22, []string{"S:SSH-2.0-OpenSSH_9.2\r\n"}},
	{SMTP, tcp, 25, []string{"S:220 mail.test ESMTP\r\n", "EHLO a.test\r\n"}},
	{FTP, tcp, 21, []string{"S:220 (vsFTPd 3.0.3)\r\n"}},
	{FTP, tcp, 2121, []string{"S:220 welcome\r\n", "AUTH TLS\r\n"}},
	{POP3, tcp, 110, []string{"S:+OK POP3 ready\r\n"}},
	{POP3, tcp, 1100, []string{"S:+OK ready\r\n", "CAPA\r\n"}},
	{IMAP, tcp, 143, []string{"S:* OK IMAP4rev1 ready\r\n"}},
	{IMAP, tcp, 1143, []string{"S:* OK ready\r\n", "a1 LOGIN u p\r\n"}},
	{IRC, tcp, 6667, []string{"NICK a\r\n", "USER a 0 * :a\r\n"}},
	{NNTP, tcp, 119, []string{"S:200 news.test NNTP ready\r\n"}},
	{Telnet, tcp, 23, []string{"S:\xff\xfd\x18\xff\xfd\x20"}},
	{DNS, tcp, 53, []string{be16(12+len(question)) + "\x12\x34\x01\x00\x00\x01" + zeros(6) + question}},
	{NetBIOS, tcp, 139, []string{"\x81\x00\x00\x44\x20" + strings.Repeat("CA", 16) + "\x00\x20" + strings.Repeat("CA", 16) + "\x00"}},
	{SMB, tcp, 445, []string{"\x00\x00\x00\x45\xffSMB\x72" + zeros(60)}},
	{SMB, tcp, 445, []string{"\x00\x00\x00\x45\xfeSMB\x40" + zeros(60)}},
	{RTSP, tcp, 554, []string{"OPTIONS rtsp://a.test/ RTSP/1.0\r\nCSeq: 1\r\n\r\n"}},
	{XMPP, tcp, 5222, []string{"<stream:stream xmlns='jabber:client'>"}},
	{Stratum, tcp, 3333, []string{`{"id":1,"method":"mining.subscribe","params":[]}`}},
	{JSONRPC, tcp, 4000, []string{`{"jsonrpc":"2.0","method":"echo","id":1}`}},
	{RTMP, tcp, 1935, []string{"\x03" + zeros(1536), "S:\x03\x00\x00\x00\x01\x05" + zeros(1531)}},
	{SOCKS, tcp, 1080, []string{"\x05\x01\x00"}},
	{SOCKS, tcp, 9999, []string{"\x04\x01\x00\x50\xc0\x00\x02\x01user\x00"}},
	{RDP, tcp, 3389, []string{"\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00"}},
	{VNC, tcp, 5900, []string{"S:RFB 003.008\n"}},
	{X11, tcp, 6000, []string{"l\x00\x0b\x00\x00\x00\x00\x00\x00\x00\x00\x00"}},
	{TeamViewer, tcp, 5938, []string{"\x17\x24\x0a\x20" + zeros(33)}},
	{Citrix, tcp, 1494, []string{"S:\x7f\x7fICA\x00"}},
	{Rlogin, tcp, 513, []string{"\x00local\x00remote\x00xterm/38400\x00"}},
	{MySQL, tcp, 3306, []string{"S:\x1e\x00\x00\x00\x0a8.0.36\x00" + zeros(22)}},
	{PostgreSQL, tcp, 5432, []string{"\x00\x00\x00\x08\x04\xd2\x16\x2f"}},
	{PostgreSQL, tcp, 5432, []string{"\x00\x00\x00\x14\x00\x03\x00\x00user\x00post\x00\x00\x00"}},
	{MongoDB, tcp, 27017, []string{le32(40) + le32(1) + le32(0) + le32(2013) + zeros(5) + le32(19) + zeros(15)}},
	{Redis, tcp, 6379, []string{"*1\r\n$4\r\nPING\r\n"}},
	{Memcached, tcp, 11211, []string{"get a\r\n"}},
	{TDS, tcp, 1433, []string{"\x12\x01\x00\x2f\x00\x00\x00\x00\x00" + zeros(38)}},
	{Oracle, tcp, 1521, []string{"\x00\x3a\x00\x00\x01\x00\x00\x00" + zeros(20) + "(DESCRIPTION=(CONNECT_DATA=()))"[1:31]}},
	{DRDA, tcp, 50000, []string{"\x00\x14\xd0\x01\x00\x01\x00\x0e\x10\x41" + zeros(10)}},
	{Cassandra, tcp, 9042, []string{"\x04\x00\x00\x00\x05\x00\x00\x00\x00"}},
	{Kafka, tcp, 9092, []string{sized("\x00\x12\x00\x03\x00\x00\x00\x01\x00\x04test")}},
	{ZooKeeper, tcp, 2181, []string{sized(zeros(24) + be32(16) + zeros(17))}},
	{AMQP, tcp, 5672, []string{"AMQP\x00\x00\x09\x01"}},
	{MQTT, tcp, 1883, []string{"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a"}},
	{STOMP, tcp, 61613, []string{"CONNECT\naccept-version:1.2\nhost:a\n\n\x00"}},
	{NATS, tcp, 4222, []string{`S:INFO {"server_id":"a"}`}},
	{Gearman, tcp, 4730, []string{"\x00REQ\x00\x00\x00\x10\x00\x00\x00\x00"}},
	{Ceph, tcp, 6789, []string{"S:ceph v2\n"}},
	{Zabbix, tcp, 10051, []string{"ZBXD\x01\x05\x00\x00\x00\x00\x00\x00\x00hello"}},
	{NFS, tcp, 2049, []string{"\x80\x00\x00\x28" + be32(7) + be32(0) + be32(2) + be32(100003) + be32(3) + be32(0) + zeros(16)}},
	{AFP, tcp, 548, []string{"\x00\x03\x00\x01" + zeros(12)}},
	{Rsync, tcp, 873, []string{"S:@RSYNCD: 31.0\n"}},
	{ISCSI, tcp, 3260, []string{"\x43\x87\x00\x00" + zeros(44) + "InitiatorName=iqn.test\x00"}},
	{SVN, tcp, 3690, []string{"S:( success ( 2 2 ( ) ( edit-pipeline ) ) )"}},
	{Git, tcp, 9418, []string{"0026git-upload-pack /a.git\x00host=a.test\x00"}},
	{OPCUA, tcp, 4840, []string{"HELF" + le32(32) + zeros(24)}},
	{SIP, tcp, 5060, []string{"REGISTER sip:a.test SIP/2.0\r\n"}},
	{STUN, tcp, 3478, []string{"\x00\x01\x00\x00\x21\x12\xa4\x42" + zeros(12)}},
	{H323, tcp, 1720, []string{"\x03\x00\x00\x0c\x08\x02\x00\x01\x05\x00\x00\x00"}},
	{Skinny, tcp, 2000, []string{le32(8) + le32(0) + le32(1) + zeros(8)}},
	{PPTP, tcp, 1723, []string{"\x00\x10\x00\x01\x1a\x2b\x3c\x4d" + zeros(8)}},
	{OpenVPN, tcp, 1194, []string{"\x00\x0e\x38ABCDEFGH\x00\x00\x00\x00\x00", "S:\x00\x1a\x40abcdefgh\x01\x00\x00\x00\x00ABCDEFGH" + zeros(4)}},
	{LISP, tcp, 4342, []string{"\x00\x14\x00\x0f" + zeros(7) + "\x9f\xac\xad\xe9"}},
	{Tinc, tcp, 655, []string{"0 a 17\n", "S:0 b 17\n"}},
	{LDAP, tcp, 389, []string{"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00"}},
	{Kerberos, tcp, 88, []string{sized("\x6a\x10\x30\x0e\xa1\x03\x02\x01\x05" + zeros(9))}},
	{Diameter, tcp, 3868, []string{"\x01\x00\x00\x14\x80\x00\x01\x01\x00\x00\x00\x00" + zeros(8)}},
	{TACACS, tcp, 49, []string{"\xc0\x01\x01\x00\x00\x00\x00\x01\x00\x00\x00\x04" + zeros(4)}},
	{Syslog, tcp, 514, []string{"<34>1 2026-01-01T00:00:00Z a b - - - text"}},
	{BGP, tcp, 179, []string{strings.Repeat("\xff", 16) + "\x00\x13\x04"}},
	{LDP, tcp, 646, []string{"\x00\x01\x00\x12\xc0\x00\x02\x01\x00\x00\x02\x01\x00\x08" + zeros(8)}},
	{Whois, tcp, 43, []string{"example.test\r\n"}},
	{DLEP, tcp, 854, []string{"\x00\x01\x00\x08" + zeros(8)}},
	{DCERPC, tcp, 135, []string{"\x05\x00\x0b\x03\x10\x00\x00\x00\x48\x00\x00\x00" + zeros(60)}},
	{RIPEAtlas, tcp, 9000, []string{"MGLNDD_192.0.2.1_80\n"}},
	{FIX, tcp, 4000, []string{"8=FIX.4.4\x019=5\x0135=0\x01"}},
	{SMPP, tcp, 2775, []string{be32(25) + be32(2) + be32(0) + be32(1) + "user\x00pass\x00"[:9]}},
	{Modbus, tcp, 502, []string{"\x00\x01\x00\x00\x00\x06\x01\x03\x00\x00\x00\x0a"}},
	{DNP3, tcp, 20000, []string{"\x05\x64\x05\xc0\x01\x00\x00\x04\xe9\x21"}},
	{S7, tcp, 102, []string{"\x03\x00\x00\x19\x02\xf0\x80\x32\x01" + zeros(16)}},
	{S7Plus, tcp, 102, []string{"\x03\x00\x00\x19\x02\xf0\x80\x72\x01" + zeros(16)}},
	{IEC104, tcp, 2404, []string{"\x68\x04\x07\x00\x00\x00"}},
	{EtherNetIP, tcp, 44818, []string{"\x65\x00\x04\x00" + zeros(20) + "\x01\x00\x00\x00"}},
	{HARTIP, tcp, 5094, []string{"\x01\x00\x00\x00\x00\x02\x00\x0d\x01\x00\x00\x75\x30"}},
	{KNX, tcp, 3671, []string{"\x06\x10\x04\x20\x00\x08\x04\x01"}},
	{FINS, tcp, 9600, []string{"FINS\x00\x00\x00\x0c" + zeros(12)}},
	{Synchrophasor, tcp, 4712, []string{"\xaa\x41\x00\x12" + zeros(14)}},
	{C1222, tcp, 1153, []string{"\x60\x06\xa2\x04\x06\x02\x2b\x06"}},
	{HiSLIP, tcp, 4880, []string{"HS\x00\x00" + zeros(12)}},
	{Raft, tcp, 9001, []string{le32(1) + zeros(4) + le32(2) + zeros(4) + le32(16) + zeros(4) + "127.0.0.1:9002\x00\x00"}},
	{BitTorrent, tcp, 6881, []string{"\x13BitTorrent protocol" + zeros(48)}},
	{Gnutella, tcp, 6346, []string{"GNUTELLA CONNECT/0.6\r\n"}},
	{Spotify, tcp, 4070, []string{"\x00\x04\x00\x00\x00\x08\x52\x0e"}},
	{WhatsApp, tcp, 5222, []string{"WA\x05\x02" + zeros(20)}},
	{Threema, tcp, 5222, []string{strings.Repeat("a", 48), "S:" + strings.Repeat("b", 80), strings.Repeat("c", 100)}},
	{Monero, tcp, 18080, []string{"\x01\x21\x01\x01\x01\x01\x01\x01" + zeros(8) + "\x01" + le32(1001) + zeros(20)}},
	{Bitcoin, tcp, 8333, []string{"\xf9\xbe\xb4\xd9version" + zeros(20)}},
	{Avast, tcp, 80, []string{"NOSA\x00\x60\x01\x01" + zeros(8)}},
	{Minecraft, tcp, 25565, []string{"\x10\x00\xf6\x05\x09localhost\x63\xdd\x01"}},
	{GenshinImpact, tcp, 10012, []string{"\x01\x00\x00\x00\x1c\x07\x00\x00\x00\x00ABCDEFGH" + zeros(10), "S:\x01\x00\x00\x00\x1c\x08\x00\x00\x00\x01ABCDEFGH" + zeros(10)}},
	{Tencent, tcp, 65010, []string{"\x33\x66\x00\x0b\x00\x0b\x10\x01" + zeros(8)}},
	{ElderScrolls, tcp, 24504, []string{be32(20) + "\x00\x01\x00\x01" + be32(12) + zeros(12)}},
	{PathOfExile, tcp, 6112, []string{"\x00\x03\x00\x37\x75\x60\x00\x02\x00\x09test_test" + zeros(4)}},
	{Starcraft, tcp, 1119, []string{"\x4a\x00\x00\x0a\x66\x02\x0a\xed\x2d\x66"}},
	{HPVirtual, tcp, 5223, []string{"\x16\x00\x10" + strings.Repeat("a", 13), "S:\x17\x00\x08abcde"}},
	{Photon, tcp, 4530, []string{zeros(3) + "\x01" + zeros(8) + "\x02\x00\x00\x00" + be32(12) + zeros(4)}},
	{SOAP, tcp, 8081, []string{`<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/">`}},

	{DNS, udp, 53, []string{"\x12\x34\x01\x00\x00\x01" + zeros(6) + question}},
	{DNS, udp, 7777, []string{"\x12\x34\x01\x00\x00\x01" + zeros(6) + question}},
	{MDNS, udp, 5353, []string{zeros(5) + "\x01" + zeros(6) + question}},
	{LLMNR, udp, 5355, []string{"\x12\x34\x00\x00\x00\x01" + zeros(6) + question}},
	{DNSCrypt, udp, 443, []string{strings.Repeat("a", 100), "S:r6fnvWj8" + zeros(60)}},
	{NetBIOS, udp, 137, []string{"\x12\x34\x01\x10\x00\x01" + zeros(6) + "\x20" + strings.Repeat("CA", 16) + "\x00\x00\x20\x00\x01"}},
	{NetBIOS, udp, 138, []string{"\x11\x02\x00\x01\xc0\x00\x02\x01\x00\x8a" + zeros(10)}},
	{QUIC, udp, 443, []string{"\xc0\x00\x00\x00\x01\x08abcdefgh\x00" + zeros(1180)}},
	{QUIC, udp, 443, []string{"\xc0\x00\x00\x00\x01\x08abcdefgh\x00" + zeros(10), "S:\x80\x00\x00\x00\x00\x00\x08abcdefgh\x00\x00\x00\x01"}},
	{NTP, udp, 123, []string{"\x23\x00\x06\xec" + zeros(44)}},
	{DHCP, udp, 67, []string{"\x01\x01\x06\x00" + zeros(232) + "\x63\x82\x53\x63\x35\x01\x01\xff"}},
	{DHCPv6, udp, 547, []string{"\x01\x00\x00\x01\x00\x08\x00\x02\x00\x00"}},
	{SSDP, udp, 1900, []string{"M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\n\r\n"}},
	{STUN, udp, 3478, []string{"\x00\x01\x00\x00\x21\x12\xa4\x42" + zeros(12)}},
	{DTLS, udp, 4433, []string{"\x16\xfe\xfd" + zeros(8) + "\x00\x20\x01" + zeros(31)}},
	{DTLS, udp, 4433, []string{"\x00\x01\x00\x00\x21\x12\xa4\x42" + zeros(12), "\x16\xfe\xfd" + zeros(8) + "\x00\x20\x01" + zeros(31)}},
	{SIP, udp, 5060, []string{"S:SIP/2.0 200 OK\r\n"}},
	{BitTorrent, udp, 6881, []string{"d1:ad2:id20:" + strings.Repeat("a", 20) + "e1:q4:ping1:t2:aa1:y1:qe"}},
	{BitTorrent, udp, 6881, []string{"\x41\x00\x12\x34" + be32(9) + be32(0) + be32(100) + "\x00\x01\x00\x00", "S:\x21\x00\x12\x34" + zeros(16)}},
	{SNMP, udp, 161, []string{"\x30\x13\x02\x01\x01\x04\x06public\xa0\x06" + zeros(4) + "\x30\x00"}},
	{LDAP, udp, 389, []string{"\x30\x0c\x02\x01\x01\x63\x07\x04\x00" + zeros(5)}},
	{Kerberos, udp, 88, []string{"\x6a\x10\x30\x0e\xa1\x03\x02\x01\x05" + zeros(9)}},
	{RADIUS, udp, 1812, []string{"\x01\x07\x00\x1a" + zeros(16) + "\x01\x06user"}},
	{Syslog, udp, 514, []string{"<34>Oct 11 22:14:15 a su: text"}},
	{TFTP, udp, 69, []string{"\x00\x01file.txt\x00octet\x00"}},
	{NetFlow, udp, 2055, []string{"\x00\x05\x00\x01" + zeros(68)}},
	{SFlow, udp, 6343, []string{be32(5) + be32(1) + zeros(24)}},
	{WireGuard, udp, 51820, []string{"\x01\x00\x00\x00" + strings.Repeat("k", 144)}},
	{IPsec, udp, 500, []string{"ABCDEFGH" + zeros(8) + "\x21\x20\x22\x08" + be32(0) + be32(40) + zeros(12)}},
	{GTP, udp, 2152, []string{"\x30\xff\x00\x04" + be32(1) + zeros(4)}},
	{VXLAN, udp, 4789, []string{"\x08\x00\x00\x00\x00\x00\x01\x00" + zeros(12) + "\x08\x00\x45" + zeros(19)}},
	{Geneve, udp, 6081, []string{"\x00\x00\x65\x58\x00\x00\x01\x00" + zeros(20)}},
	{L2TP, udp, 1701, []string{"\xc8\x02\x00\x0c" + zeros(8)}},
	{LISP, udp, 4342, []string{"\x30\x00\x00\x01" + zeros(12)}},
	{RoCE, udp, 4791, []string{"\x04\x40\xff\xff\x00\x00\x00\x11" + zeros(12)}},
	{CAPWAP, udp, 5246, []string{"\x00\x10\x02\x00" + zeros(4) + be32(1) + "\x00\x00\x05" + zeros(3)}},
	{NATPMP, udp, 5351, []string{"\x00\x00"}},
	{PTP, udp, 319, []string{"\x00\x02\x00\x2c" + zeros(40)}},
	{SLP, udp, 427, []string{"\x02\x01\x00\x00\x0e" + zeros(9)}},
	{BFD, udp, 3784, []string{"\x20\x40\x03\x18" + zeros(20)}},
	{HSRP, udp, 1985, []string{"\x00\x00\x10\x03\x0a\x64\x01\x00cisco\x00\x00\x00\xc0\x00\x02\x01"}},
	{RIP, udp, 520, []string{"\x02\x02\x00\x00" + zeros(20)}},
	{LDP, udp, 646, []string{"\x00\x01\x00\x08\xc0\x00\x02\x01\x00\x00\x00\x00"}},
	{CoAP, udp, 5683, []string{"\x40\x01\x12\x34\xb1a"}},
	{DLEP, udp, 854, []string{"DLEP\x00\x01\x00\x00"}},
	{CPHA, udp, 8116, []string{"\x1a\x90\x0c\x31" + zeros(20)}},
	{XDMCP, udp, 177, []string{"\x00\x01\x00\x02\x00\x01\x00"}},
	{WSDiscovery, udp, 3702, []string{"<?xml version=\"1.0\"?><s:Envelope xmlns=\"http://schemas.xmlsoap.org/ws/2005/04/discovery\">"}},
	{MGCP, udp, 2427, []string{"CRCX 1 a@b.test MGCP 1.0\r\n"}},
	{Megaco, udp, 2944, []string{"!/1 [192.0.2.1]:2944\nT=1{C=-{}}"}},
	{IAX2, udp, 4569, []string{"\x80\x01\x00\x00" + zeros(4) + "\x00\x00\x06\x01"}},
	{NFS, udp, 2049, []string{be32(7) + be32(0) + be32(2) + be32(100003) + be32(3) + be32(0) + zeros(16)}},
	{RPC, udp, 700, []string{be32(7) + be32(0) + be32(2) + be32(200001) + be32(3) + be32(0) + zeros(16)}},
	{DCERPC, udp, 34964, []string{"\x04\x00\x20\x00\x10\x00\x00\x00" + zeros(72)}},
	{RIPEAtlas, udp, 9000, []string{"MGLNDD_192.0.2.1_80"}},
	{BACnet, udp, 47808, []string{"\x81\x0b\x00\x0c\x01\x20\xff\xff\x00\xff\x10\x08"}},
	{HARTIP, udp, 5094, []string{"\x01\x00\x00\x00\x00\x02\x00\x0d\x01\x00\x00\x75\x30"}},
	{KNX, udp, 3671, []string{"\x06\x10\x02\x01\x00\x0e\x08\x01" + zeros(6)}},
	{FINS, udp, 9600, []string{"\x80\x00\x02" + zeros(9)}},
	{Synchrophasor, udp, 4713, []string{"\xaa\x01\x00\x12" + zeros(14)}},
	{C1222, udp, 1153, []string{"\x60\x06\xa2\x04\x06\x02\x2b\x06"}},
	{EtherNetIP, udp, 44818, []string{"\x63\x00\x00\x00" + zeros(20)}},
	{DNP3, udp, 20000, []string{"\x05\x64\x05\xc0\x01\x00\x00\x04\xe9\x21"}},
	{EGD, udp, 18246, []string{"\x0d\x01" + zeros(40)}},
	{EtherSIO, udp, 6060, []string{"ESIO" + zeros(20)}},
	{CNPIP, udp, 1628, []string{"\x00\x14\x01\x01" + zeros(16)}},
	{CAN, udp, 11898, []string{"ISO11898\x01\x02"}},
	{SOMEIP, udp, 30490, []string{"\x12\x34\x00\x08" + be32(8) + "\x00\x00\x00\x01\x01\x01\x00\x00"}},
	{RTPS, udp, 7400, []string{"RTPS\x02\x01\x01\x01" + zeros(12)}},
	{H323, udp, 1719, []string{"\x16\x80\x00\x05\x06\x00\x08\x91\x4a\x00\x03" + zeros(6)}},
	{MPEGTS, udp, 1234, []string{"G\x00\x11\x10" + zeros(184) + "G\x00\x11\x10" + zeros(184)}},
	{FLUTE, udp, 4001, []string{"\x10\x10\x08\x00" + zeros(28) + "\x3c?xml version"}},
	{Mumble, udp, 64738, []string{zeros(4) + "ABCDEFGH", "S:\x00\x01\x02\x03ABCDEFGH" + zeros(12)}},
	{TeamViewer, udp, 5938, []string{zeros(10) + "\x03\x17\x24" + zeros(20)}},
	{SoftEther, udp, 5004, []string{be32(3) + be32(7) + "opcode" + zeros(8)}},
	{Gnutella, udp, 6346, []string{strings.Repeat("g", 16) + "\x00\x01\x00" + le32(5) + zeros(5)}},
	{Dropbox, udp, 17500, []string{`{"host_int": 1, "version": [2, 0]}`}},
	{Spotify, udp, 57621, []string{"SpotUdp0" + zeros(30)}},
	{Syncthing, udp, 21027, []string{"\x2e\xa7\xd9\x0b\x0a\x20"}},
	{Zoom, udp, 8801, []string{"\x01\x00\x02" + zeros(40)}},
	{Discord, udp, 50004, []string{"\x13\x37\xca\xfe\x01\x00\x00\x00"}},
	{OICQ, udp, 8000, []string{"\x02\x3b\x0b\x00\x01" + zeros(20) + "\x03"}},
	{LINE, udp, 20610, []string{"\xdb\x00\x00\x60\x01" + zeros(100), "S:\xd8\x00\x00\x60\x01" + zeros(100), "\xdb\x00\x00\x61\x01" + zeros(100)}},
	{IMO, udp, 36535, []string{"\x07", "S:\x76", "\x07"}},
	{TPLink, udp, 9999, []string{"\xd0\xf2\x81\xf8\x8b\xff\x9a\xf7\xd5\xef"}},
	{Ubiquiti, udp, 10001, []string{"\x01\x00\x00\x00"}},
	{Meraki, udp, 7351, []string{"\xfe\xf7\x28\x91" + zeros(20)}},
	{Sonos, udp, 7080, []string{"\x00\x13\x59\x84" + zeros(8)}},
	{Nintendo, udp, 50251, []string{"\x32\xab\x98\x64\x02" + zeros(50)}},
	{SteamDatagram, udp, 27045, []string{"\x01\x81sdping" + zeros(90)}},
	{Steam, udp, 27015, []string{"\xff\xff\xff\xffTSource Engine Query\x00"}},
	{RakNet, udp, 19132, []string{"\x01" + zeros(8) + "\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x12\x34\x56\x78" + zeros(8)}},
	{GenshinImpact, udp, 22101, []string{be32(0xff) + zeros(8) + "\x49\x96\x02\xd2\xff\xff\xff\xff"}},
	{WildRift, udp, 18001, []string{"\x01\x02\xc8\x41" + zeros(18)}},
	{CoDMobile, udp, 7500, []string{"abcdefghping", "S:abcdefghping"}},
	{AmongUs, udp, 22023, []string{"\x08\x00\x01\x00\x80\xd9\x02\x03\x06AAAAAA"}},
	{Activision, udp, 3074, []string{"\x0d\x02" + strings.Repeat("a", 27), "S:\x0c\x02" + strings.Repeat("a", 27)}},
	{CryNetwork, udp, 20250, []string{"\x3c\x00\x00\x08\xed" + zeros(14) + "\x01" + zeros(50)}},
	{Gaijin, udp, 20011, []string{"app.stage,env=production,circuit=a"}},
	{NetEase, udp, 4170, []string{"abcdef" + zeros(24), "S:abcdef" + zeros(24)}},
	{Photon, udp, 5055, []string{zeros(3) + "\x01" + zeros(8) + "\x02\x00\x00\x00" + be32(44) + zeros(36)}},
	{Yojimbo, udp, 40000, []string{"\x00NETCODE 1.02\x00" + zeros(100)}},
	{HalfLife, udp, 27015, []string{"\xff\xff\xff\xff" + zeros(11) + "0000\x00", "S:\xff\xff\xff\xff" + zeros(11) + "0000\x00"}},
	{KCP, udp, 4000, []string{le32(7) + "\x51\x00\x20\x00" + zeros(12) + le32(4) + "data"}},
	{OpenVPN, udp, 1194, []string{"\x38ABCDEFGH\x00\x00\x00\x00\x00", "S:\x40abcdefgh\x01\x00\x00\x00\x00ABCDEFGH" + zeros(4)}},
	{RTCP, udp, 5005, []string{"\x80\xc8\x00\x06" + zeros(24)}},
	{RTP, udp, 5004, []string{"\x80\x00\x00\x01" + zeros(4) + "SSRC" + zeros(160), "\x80\x00\x00\x02" + zeros(4) + "SSRC" + zeros(160)}},
	{ICMP, 1, 0, []string{"\x08\x00" + zeros(6)}},
	{SCTP, 132, 0, []string{zeros(12)}},
}

// play gives the payloads of an example to a flow.
func play(e *example) *Flow {
	f := &Flow{}
	sequence := [2]uint32{1, 1}
	for _, data := range e.payloads {
		way := 0
		data, reply := strings.CutPrefix(data, "S:")
		if reply {
			way = 1
		}
		p := Packet{Transport: e.transport, Source: 40000, Destination: e.port, Payload: []byte(data), Reply: reply, Sequence: sequence[way]}
		if reply {
			p.Source, p.Destination = p.Destination, p.Source
		}
		f.Packet(&p)
		sequence[way] += uint32(len(data))
	}
	return f
}

func TestExamplesOfEveryProtocol(t *testing.T) {
	seen := map[recogniserID]bool{}
	for i := range examples {
		e := &examples[i]
		if got := play(e).Protocol(); got != e.protocol {
			t.Errorf("%v over %d: %v", e.protocol, e.transport, got)
		}
		seen[recogniserID{e.protocol, e.transport}] = true
	}
	for i := range specified {
		seen[recogniserID{specified[i].protocol, specified[i].transport}] = true
	}
	for _, r := range recognisers {
		if !seen[recogniserID{r.protocol, r.transport}] {
			t.Errorf("%v over %d has no example", r.protocol, r.transport)
		}
	}
}

type recogniserID struct {
	protocol  Protocol
	transport uint8
}

// A payload in two segments, and one that is sent again, shows what it shows at once, where it is a text.
func TestSegmentsThatAreSentAgainShowNothingNew(t *testing.T) {
	var f Flow
	p := Packet{Transport: tcp, Source: 40000, Destination: 6667, Sequence: 1, Payload: []byte("NICK a\r\n")}
	for range 3 {
		f.Packet(&p)
	}
	if f.payloads[0] != 1 {
		t.Errorf("%d payloads were looked at", f.payloads[0])
	}
	p.Sequence, p.Payload = 5, []byte(" a\r\nUSER a 0 * :a\r\n") // half of it is new
	if got := f.Packet(&p); got != IRC {
		t.Error(got)
	}
}
