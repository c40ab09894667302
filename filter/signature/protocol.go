package signature

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// App is an application protocol.
type App uint8

// The application protocols that rules name.
const (
	AppAny App = iota
	AppHTTP
	AppTLS
	AppDNS
	AppSMTP
	AppSSH
	AppFTP
	AppFTPData
	AppSMB
	AppIMAP
	AppPOP3
	AppHTTP2 // HTTP/2 without TLS: rules on http are about it, too
	AppMQTT
	AppSIP
	AppNFS
	AppQUIC
	AppUnknown // recognised as none of these
)

var appNames = [...]string{"", "http", "tls", "dns", "smtp", "ssh", "ftp", "ftp-data", "smb", "imap", "pop3", "http2", "mqtt", "sip", "nfs", "quic", "unknown"}

// String returns the name that rules use.
func (a App) String() string { return appNames[a] }

// IPProtocols are protocols of IP packets, as bits.
type IPProtocols uint8

// The bits of IPProtocols. OtherIP is every protocol that has no bit of its own.
const (
	TCP IPProtocols = 1 << iota
	UDP
	ICMP // of IPv4 and IPv6
	SCTP
	OtherIP
	anyIP = TCP | UDP | ICMP | SCTP | OtherIP
)

// Protocol is the protocol of a rule.
type Protocol struct {
	Name   string
	IP     IPProtocols
	App    App
	V4, V6 bool // only this version of IP; neither means both
	Packet bool // tcp-pkt: single segments, not the stream
	Stream bool // tcp-stream: not single segments
	Only   bool // http1: no other version
}

var protocols = map[string]Protocol{
	"ip": {IP: anyIP}, "ipv4": {IP: anyIP, V4: true}, "ip4": {IP: anyIP, V4: true},
	"ipv6": {IP: anyIP, V6: true}, "ip6": {IP: anyIP, V6: true},
	"tcp": {IP: TCP}, "tcp-pkt": {IP: TCP, Packet: true}, "tcp-stream": {IP: TCP, Stream: true},
	"udp": {IP: UDP}, "icmp": {IP: ICMP}, "icmpv4": {IP: ICMP, V4: true}, "icmpv6": {IP: ICMP, V6: true}, "sctp": {IP: SCTP},
	"http": {IP: TCP, App: AppHTTP}, "http1": {IP: TCP, App: AppHTTP, Only: true}, "http2": {IP: TCP, App: AppHTTP2},
	"tls": {IP: TCP, App: AppTLS}, "ssl": {IP: TCP, App: AppTLS},
	"dns": {IP: TCP | UDP, App: AppDNS}, "smtp": {IP: TCP, App: AppSMTP}, "ssh": {IP: TCP, App: AppSSH},
	"ftp": {IP: TCP, App: AppFTP}, "smb": {IP: TCP, App: AppSMB},
	"imap": {IP: TCP, App: AppIMAP}, "pop3": {IP: TCP, App: AppPOP3}, "ftp-data": {IP: TCP, App: AppFTPData},
	"mqtt": {IP: TCP, App: AppMQTT}, "sip": {IP: TCP | UDP, App: AppSIP}, "nfs": {IP: TCP | UDP, App: AppNFS},
	"quic": {IP: UDP, App: AppQUIC},
}

// otherProtocols are those that the syntax has and this package does not recognise.
var otherProtocols = strings.Fields(`modbus dnp3 enip ike krb5 ntp dhcp rfb rdp snmp tftp pgsql
	dcerpc telnet websocket ldap doh2 rpc bittorrent-dht pkthdr template mdns`)

// appTest reads [!]PROTOCOL.
func (p *ruleParser) appTest(v string) error {
	name, not := strings.CutPrefix(strings.ToLower(v), "!")
	name = strings.TrimSpace(name)
	t := AppTest{Name: name, Not: not}
	switch q, ok := protocols[name]; {
	case name == "unknown" || name == "failed":
		t.App = AppUnknown
	case ok && q.App != AppAny:
		t.App, t.Only = q.App, q.Only
	case strings.Contains(name, ",") || slices.Contains(otherProtocols, name):
		return unsupported{"app-layer-protocol:" + name}
	default:
		return fmt.Errorf("%q is not an application protocol", name)
	}
	p.rule.AppIs = append(p.rule.AppIs, t)
	return nil
}

func parseProtocol(w string) (Protocol, error) {
	p, ok := protocols[strings.ToLower(w)]
	if !ok {
		if slices.Contains(otherProtocols, strings.ToLower(w)) {
			return p, unsupported{"protocol " + w}
		}
		return p, fmt.Errorf("%q is not a protocol%s", w, didYouMean(w, slices.Sorted(maps.Keys(protocols))))
	}
	p.Name = strings.ToLower(w)
	return p, nil
}
