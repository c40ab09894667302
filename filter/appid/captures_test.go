package appid

import (
	"fmt"
	"path/filepath"
	"testing"
)

// recorded are the captures in testdata: what serves at each port of 198.18.5.1. How they were made is in their README.
var recorded = map[string]map[uint16]Protocol{
	"amqp":            {5672: AMQP, 61613: STOMP},
	"bitcoin":         {8333: Bitcoin},
	"bitcoin-regtest": {8333: Bitcoin},
	"bittorrent":      {6881: BitTorrent},
	"cassandra":       {9042: Cassandra},
	"ftp":             {21: FTP, 17734: Unknown},
	"coap":            {5683: CoAP},
	"mpegts":          {1234: MPEGTS},
	"ipsec":           {500: IPsec},
	"routing":         {520: RIP, 646: LDP},
	"geneve":          {6081: Geneve},
	"git":             {9418: Git},
	"http2":           {8080: HTTP2},
	"iec104":          {2404: IEC104},
	"imap":            {143: IMAP},
	"iscsi":           {3260: ISCSI},
	"gtp":             {2123: GTP, 2152: GTP},
	"kafka":           {9092: Kafka},
	"kerberos":        {88: Kerberos},
	"l2tp":            {1701: L2TP},
	"ldap":            {389: LDAP},
	"memcached":       {11211: Memcached},
	"minecraft":       {25565: Minecraft},
	"modbus":          {502: Modbus},
	"mqtt":            {1883: MQTT},
	"mysql":           {3306: MySQL},
	"nats":            {4222: NATS},
	"nfs":             {2049: NFS},
	"nntp":            {119: NNTP},
	"openvpn":         {1194: OpenVPN},
	"oracle":          {1521: Oracle},
	"pop3":            {110: POP3},
	"pptp":            {1723: PPTP},
	"radius":          {1812: RADIUS},
	"tftp":            {69: TFTP, 45854: TFTP},
	"rdp":             {3389: RDP},
	"redis":           {6379: Redis},
	"rocev2":          {4791: RoCE},
	"rpc":             {111: NFS},
	"s7":              {102: S7},
	"sctp":            {}, // by the number of IP
	"sip":             {5060: SIP},
	"smb":             {139: SMB, 445: SMB},
	"smtp":            {25: SMTP},
	"snmp":            {161: SNMP},
	"stun":            {3478: STUN},
	"svn":             {3690: SVN},
	"tacacs":          {49: TACACS},
	"tds":             {1433: TDS},
	"telnet":          {23: Telnet},
	"vnc":             {5907: VNC},
	"vxlan":           {4789: VXLAN},
	"whois":           {43: Whois},
	"wireguard":       {51820: WireGuard},
	"x11":             {6007: X11},
	"zookeeper":       {2181: ZooKeeper},
}

// recording is a flow of a capture.
type recording struct {
	name    string
	id      flowID
	want    Protocol
	packets []Packet
}

// payloads counts the packets that are not empty.
func (r *recording) payloads() (n int) {
	for i := range r.packets {
		if len(r.packets[i].Payload) > 0 {
			n++
		}
	}
	return n
}

// recordings reads all flows with payload that have an expected protocol. Any flow of a capture must have one.
func recordings(t testing.TB) []*recording {
	var all []*recording
	for name, ports := range recorded {
		flows := map[flowID]*recording{}
		eachOf(t, filepath.Join("testdata", "captures", name+".pcap"), true, func(id flowID, p *Packet) {
			r := flows[id]
			if r == nil {
				if r = flows[id.reversed()]; r != nil {
					p.Reply = true
				} else {
					want, ok := ports[p.Destination]
					if !ok {
						want, ok = ports[p.Source]
					}
					if !ok && p.Destination == 0 {
						want, ok = byNumber(p.Transport), true
					}
					if !ok {
						t.Errorf("%s: %v has no expected protocol", name, id)
					}
					r = &recording{name: name, id: id, want: want}
					flows[id] = r
					all = append(all, r)
				}
			}
			q := *p
			q.Payload = append([]byte{}, p.Payload...)
			r.packets = append(r.packets, q)
		})
		if len(flows) == 0 {
			t.Errorf("%s has no flows", name)
		}
	}
	return all
}

// play gives the packets from one on to a flow, each cut to size bytes, at the ports that they have or at others.
func (r *recording) play(from, size int, port uint16) *Flow {
	f := &Flow{}
	first := true
	opener := false
	for i := from; i < len(r.packets); i++ {
		p := r.packets[i]
		if first {
			opener, first = p.Reply, false
		}
		p.Reply = p.Reply != opener // the first packet that is seen is taken for the client's
		p.Payload = p.Payload[:min(size, len(p.Payload))]
		if port != 0 {
			if p.Reply != opener {
				p.Source = port
			} else {
				p.Destination = port
			}
		}
		f.Packet(&p)
	}
	return f
}

const whole = 1 << 16

// Each flow between real programs is what they speak.
func TestRecordedFlows(t *testing.T) {
	right, all := 0, 0
	said := map[string]bool{}
	for _, r := range recordings(t) {
		if r.payloads() == 0 {
			continue
		}
		all++
		said[r.name] = true
		if got := r.play(0, whole, 0).Protocol(); got != r.want {
			t.Errorf("%s %v: %v, not %v", r.name, r.id, got, r.want)
			continue
		}
		right++
	}
	for name := range recorded {
		if !said[name] {
			t.Errorf("%s has no payload", name)
		}
	}
	t.Logf("%d of %d flows of %d captures", right, all, len(recorded))
}

// also are protocols that a flow may show when its beginning is not seen: what it carries, or what it became.
var also = map[Protocol][]Protocol{
	FTP: {TLS}, IMAP: {TLS}, POP3: {TLS}, SMTP: {TLS}, LDAP: {TLS}, RDP: {TLS}, MySQL: {TLS}, MQTT: {},
	NNTP: {TLS}, SMB: {NetBIOS},
}

func (r *recording) right(got Protocol) bool {
	if got == Unknown || got == r.want {
		return true
	}
	for _, p := range also[r.want] {
		if got == p {
			return true
		}
	}
	return false
}

// A flow that is seen from its middle on, or whose packets are cut short, or both, is never another protocol.
func TestPartsOfRecordedFlows(t *testing.T) {
	wrong := map[string]int{}
	for _, r := range recordings(t) {
		for from := range r.packets {
			for _, size := range []int{1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 128, whole} {
				if got := r.play(from, size, 0).Protocol(); !r.right(got) {
					wrong[fmt.Sprintf("%s in %d bytes is %v", r.name, size, got)]++
				}
			}
		}
	}
	for w, n := range wrong {
		t.Errorf("%s, %d times", w, n)
	}
}

// A flow at the usual port of another protocol is not that protocol.
func TestRecordedFlowsAtOtherPorts(t *testing.T) {
	wrong := map[string]int{}
	flows := 0
	ports := usualPorts()
	for _, r := range recordings(t) {
		for _, port := range ports[r.packets[0].Transport] {
			flows++
			if got := r.play(0, whole, port).Protocol(); !r.right(got) {
				wrong[r.name+" is "+got.String()]++
			}
		}
	}
	for w, n := range wrong {
		t.Errorf("%s at %d ports", w, n)
	}
	t.Logf("%d flows", flows)
}
