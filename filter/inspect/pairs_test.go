package inspect

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/testkit/testinitial"
	"github.com/millrace/millrace/wire"
)

// conversations plays a conversation of every protocol that rules name, with every buffer in it.
func conversations(t *testing.T, l *lab, hello, serverHello string, quicHello []byte) {
	t.Helper()
	open := func(port uint16) *conn { return l.tcp(port).open() }
	const request = "POST /a HTTP/1.1\r\nHost: a\r\nUser-Agent: u\r\nAccept: */*\r\nAccept-Encoding: x\r\nAccept-Language: en\r\nCookie: a=b\r\n" +
		"Referer: r\r\nConnection: close\r\nContent-Type: t\r\nContent-Length: 4\r\n\r\nbody"
	const response = "HTTP/1.1 302 Found\r\nServer: s\r\nLocation: /b\r\nSet-Cookie: a=b\r\nConnection: close\r\nContent-Type: t\r\nContent-Length: 4\r\n\r\nfile"
	open(80).send(true, request, 1400).send(false, response, 1400).close()
	ask := newH2().headers(1, false, requestLines("POST", "/a", "user-agent u", "accept */*", "accept-encoding x", "accept-language en", "cookie a=b", "referer r",
		"connection close", "content-type t", "content-length 4")...).data(1, true, "body", 0)
	reply := newH2().headers(1, false, ":status 302", "server s", "location /b", "set-cookie a=b", "content-type t", "content-length 4").data(1, true, "file", 0)
	open(80).send(true, http2.ClientPreface+ask.String(), 1400).send(false, reply.String(), 1400).close()
	open(443).send(true, hello, 1400).send(false, serverHello, 1400).close()
	const query = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01"
	l.udp(53, query)
	open(53).send(true, u16(len(query))+query, 1400).close()
	open(22).send(true, "SSH-2.0-client\r\n", 1400).send(false, "SSH-2.0-server\r\n", 1400).close()
	open(25).send(false, "220 mail\r\n", 1400).send(true, "EHLO a\r\n", 1400).send(false, "250 a\r\n", 1400).
		send(true, "MAIL FROM:<a@test>\r\nRCPT TO:<b@test>\r\nDATA\r\n", 1400).send(false, "250 a\r\n250 b\r\n354 c\r\n", 1400).
		send(true, "Subject: s\r\nContent-Disposition: attachment; filename=f\r\n\r\nbody\r\n.\r\n", 1400).close()
	open(21).send(false, "220 ftp\r\n", 1400).send(true, "USER a\r\nRETR f\r\n", 1400).
		send(false, "331 b\r\n227 ok (198,18,0,80,200,1)\r\n", 1400).send(true, "RETR f\r\n", 1400)
	open(200<<8|1).send(false, "file", 1400).send(true, "file", 1400).close()
	smb := open(445).send(true, smbTree(`\\h\share`)+smbTree(`\\h\IPC$`)+smbCreate(1, "f"), 1400).send(false, smbCreated(1, "0123456789abcdef"), 1400)
	smb.send(true, smbWrite("0123456789abcdef", 0, "file")+smbRead(2, "0123456789abcdef", 0), 1400).send(false, smbReadReply(2, "file"), 1400).close()
	open(1883).send(true, mqttHello+mqttPublished+"\x82\x06\x00\x01\x00\x01t\x00"+"\xa2\x05\x00\x02\x00\x01t", 1400).send(false, "\x20\x02\x00\x00"+mqttPublished, 1400).close()
	open(5060).send(true, sipRequest, 1400).send(false, sipResponse, 1400).close()
	l.udp(5061, sipRequest)
	l.udp(5061, sipResponse)
	open(2049).send(true, nfsRecord(nfsLookup(1, "f")), 1400).close()
	l.udp(2049, nfsLookup(1, "f"))
	l.udp(4433, string(testinitial.Seal(t, testinitial.V1, []byte("12345678"), 1, testinitial.Crypto(quicHello, 0, len(quicHello)))))
	l.udp(4434, googleHelloOf("SNI", "a.test", "UAID", "u"))
	open(143).send(false, "* OK imap\r\n", 1400).send(true, "a LOGIN b c\r\n", 1400).close()
	open(110).send(false, "+OK pop\r\n", 1400).send(true, "USER b\r\n", 1400).close()
	l.frame(ether(wire.EtherTypeIPv4, ipPacket(client, server, wire.ProtoICMP, append(wire.AppendICMP(nil, 8, 0, 0), "echo"...))))
	l.frame(ether(wire.EtherTypeIPv4, ipPacket(client, server, wire.ProtoSCTP, make([]byte, 40))))
}

// Rules ask for the protocol that a flow is recognised as, for buffers that are not there, and for text in base64.
func TestProtocolsAbsenceAndBase64(t *testing.T) {
	const request = "GET /a HTTP/1.1\r\nHost: a\r\nCookie: aGVsbG8gd29ybGQ=;\r\n\r\n"
	for rule, want := range map[string]bool{
		`app-layer-protocol:http; content:"GET";`:                             true,
		`app-layer-protocol:!http; content:"GET";`:                            false,
		`app-layer-protocol:!tls; content:"GET";`:                             true,
		`app-layer-protocol:http1; content:"GET";`:                            true,
		`app-layer-protocol:http2; content:"GET";`:                            false,
		`app-layer-protocol:unknown; content:"GET";`:                          false,
		`app-layer-protocol:http;`:                                            true,
		`http.referer; absent;`:                                               true,
		`http.host; absent;`:                                                  false,
		`http.uri; content:"/a"; http.user_agent; absent;`:                    true,
		`http.uri; content:"/a"; http.host; absent;`:                          false,
		`http.host; absent:or_else; content:"a";`:                             true,
		`http.host; absent:or_else; content:"b";`:                             false,
		`http.referer; absent:or_else; content:"b";`:                          true,
		`http.request_body; absent; http.method; content:"GET";`:              true,
		`http.cookie; from_base64; content:"hello world"; bsize:11;`:          true,
		`http.cookie; from_base64:mode rfc4648; content:"hello"; startswith;`: true,
		`http.cookie; from_base64; content:"aGVs";`:                           false,
	} {
		for name, cfg := range map[string]Config{"capture": {}, "inline": {Inline: true}} {
			l := &lab{t: t, now: 1e9}
			l.e = New(rulesOf(t, "alert tcp any any -> any any (flow:to_server; "+rule+" sid:1;)", nil), cfg, func(a *Alert) { l.alerts = append(l.alerts, *a) })
			l.tcp(8080).open().send(true, request, 7).send(false, "HTTP/1.1 204 No\r\n\r\n", 1400)
			l.e.Flush()
			if got := len(l.alerts) > 0; got != want {
				t.Errorf("%s, %s: %d alerts", name, rule, len(l.alerts))
			}
		}
	}
	l := newLab(t, `alert tcp any any -> any any (app-layer-protocol:unknown; content:"some"; sid:1;)
alert tcp any any -> any any (app-layer-protocol:!http; content:"some"; sid:2;)`)
	l.tcp(8080).open().send(true, strings.Repeat("some other protocol ", 100), 1400).send(false, strings.Repeat("x", 2000), 1400)
	l.want("no protocol", "1 2")
	l.alerts = nil
	c := l.tcp(8081).open().send(true, "some text", 1400)
	l.want("too little to say", "")
	c.close()
	l.want("at the end", "1 2")
}

// The head of a request may follow its line: what is absent then is not known yet.
func TestNothingIsAbsentBeforeTheHeadIsComplete(t *testing.T) {
	g := newGate(t, Config{}, `drop http any any -> any any (http.user_agent; absent; sid:1;)
drop http any any -> any any (http.method; content:"POST"; http.request_body; absent; sid:2;)`)
	g.open()
	for seq, text := range map[uint32]string{1: "POST /\r\n"} {
		if r := g.segment(true, seq, wire.FlagACK, text); r.Outcome != Pass {
			t.Errorf("%q: %+v", text, r)
		}
	}
	if r := g.segment(true, 9, wire.FlagACK, "User-Agent: a\r\nContent-Length: 4\r\n\r\nbody"); r.Outcome != Pass {
		t.Errorf("a body: %+v", r)
	}
	g.segment(true, 49, wire.FlagACK, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := g.sids(); got != "1" {
		t.Errorf("alerts %q", got)
	}
}

// valueOptions are the forms of buffers that have no contents of their own.
var valueOptions = map[signature.Buffer]string{
	signature.Payload: `content:!"zzz";`, signature.FTPDataCommand: "ftpdata_command:retr;", signature.MQTTType: "mqtt.type:!unassigned;",
	signature.MQTTFlags: "mqtt.flags:!dup;", signature.MQTTQoS: "mqtt.qos:0;", signature.MQTTVersion: "mqtt.protocol_version:>0;",
	signature.MQTTReason: "mqtt.reason_code:0;", signature.MQTTSession: "mqtt.connack.session_present:no;",
	signature.MQTTConnectFlags: "mqtt.connect.flags:username;", signature.NFSProcedure: "nfs_procedure:3;", signature.NFSVersion: "nfs_version:3;",
}

// Each pair of protocol and buffer matches where the protocol has the buffer, or is refused by the names of both.
func TestPairsOfProtocolAndBufferWorkOrAreRefused(t *testing.T) {
	hello, serverHello := record(t, tls.VersionTLS12)
	quicHello := testinitial.Hello(t)
	loaded := 0
	for _, proto := range strings.Fields("ip tcp udp icmp sctp tcp-pkt tcp-stream http http1 http2 tls ssl dns smtp ssh ftp smb imap pop3 ftp-data mqtt sip nfs quic") {
		for b := signature.Payload; b < signature.Buffers; b++ {
			if b == signature.Base64Data {
				continue // filled by a rule itself
			}
			options := b.String() + `; content:!"zzz";`
			if o, ok := valueOptions[b]; ok {
				options = o
			}
			text := fmt.Sprintf("alert %s any any -> any any (%s sid:1;)", proto, options)
			f := signature.Parse("test", text, nil)
			if len(f.Errors) > 0 {
				t.Fatal(f.Errors)
			}
			if len(f.Skipped) > 0 {
				if msg := f.Skipped[0].Error(); !strings.Contains(msg, proto) || b != signature.Payload && !strings.Contains(msg, b.String()) {
					t.Errorf("%s %v: %s", proto, b, msg)
				}
				continue
			}
			loaded++
			r, err := Compile(f.Rules)
			if err != nil {
				t.Fatal(err)
			}
			l := &lab{t: t, now: 1e9}
			l.e = New(r, Config{}, func(a *Alert) { l.alerts = append(l.alerts, *a) })
			conversations(t, l, hello, serverHello, quicHello)
			l.e.Flush()
			if len(l.alerts) == 0 {
				t.Errorf("%s: it loads, and never matches", text)
			}
		}
	}
	if loaded < 400 {
		t.Errorf("%d pairs load", loaded)
	}
	for text, want := range map[string]string{
		`alert tcp any any -> any any (http.uri; content:"a"; tls.sni; content:"b"; sid:1;)`: "tls.sni beside http.uri",
		`alert nfs any any -> any any (file_data; content:"a"; sid:1;)`:                      "file.data of nfs",
		`alert udp any any -> any any (http.uri; content:"a"; sid:1;)`:                       "http.uri of udp",
	} {
		if f := signature.Parse("test", text, nil); len(f.Skipped) != 1 || !strings.Contains(f.Skipped[0].Error(), want) || f.Missing[want] != 1 {
			t.Errorf("%s: %v", text, f.Skipped)
		}
	}
}
