package inspect

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/millrace/millrace/filter/signature"
)

// cutRules have a rule or more for each parser of a protocol.
const cutRules = `alert http any any -> any any (http.method; content:!"q"; sid:1;)
alert http any any -> any any (http.uri; content:"/a"; sid:2;)
alert http any any -> any any (http.header; content:"x"; sid:3;)
alert http any any -> any any (http.request_body; content:"body"; sid:4;)
alert http any any -> any any (flow:to_client; file.data; content:"data"; sid:5;)
alert http any any -> any any (http.stat_code; content:"200"; sid:6;)
alert http any any -> any any (http.cookie; content:"c"; sid:7;)
alert http any any -> any any (http.header_names; content:!"Accept"; sid:8;)
alert tls any any -> any any (tls.sni; content:"a"; sid:9;)
alert tls any any -> any any (ja3.hash; content:"a"; sid:10;)
alert tls any any -> any any (tls.cert_subject; content:"CN"; sid:11;)
alert tls any any -> any any (tls.cert_issuer; content:!"q"; sid:12;)
alert dns any any -> any any (dns.query; content:"a"; sid:13;)
alert ssh any any -> any any (ssh.software; content:"x"; sid:14;)
alert http any any -> any any (http.host; dotprefix; content:".com"; endswith; sid:15;)
alert http any any -> any any (flow:to_client; file.data; bsize:>4; pcre:"/d.t/"; sid:16;)
alert ftp any any -> any any (ftp.command; content:"RETR"; ftp.command_data; content:"f"; sid:17;)
alert smb any any -> any any (smb.share; content:"share"; sid:18;)
alert smb any any -> any any (file.data; content:"data"; file.name; content:"f"; sid:19;)
alert mqtt any any -> any any (mqtt.type:publish; mqtt.publish.topic; content:"t"; mqtt.publish.message; content:"hello"; sid:20;)
alert mqtt any any -> any any (mqtt.connect.username; content:"us"; mqtt.connect.flags:password; sid:21;)
alert sip any any -> any any (sip.method; content:"INVITE"; sip.from; content:"a@"; sid:22;)
alert sip any any -> any any (sip.stat_code; content:"180"; sid:23;)
alert nfs any any -> any any (nfs_procedure:3; file.name; content:"f"; sid:24;)
alert http any any -> any any (file.name; content:"evil.exe"; file.data; content:"data"; startswith; endswith; sid:25;)`

// FuzzCuts gives the parsers of protocols over TCP both directions of a connection, in whole and in pieces: the
// rules that match are the same.
func FuzzCuts(f *testing.F) {
	dns := "\x00\x13\x00\x09\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"
	zip := gzipped("some data")
	for _, s := range [][2]string{
		{"GET /a HTTP/1.1\r\nHost: x.com\r\nCookie: c\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata"},
		{"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;x\r\ndy\r\n0\r\nT: x\r\n\r\nGET /a", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\ndata"},
		{"GET / HTTP/1.0\r\na: x\r\n b\r\nA: c\r\n\r\n", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(zip), zip)},
		{"CONNECT a:1 HTTP/1.1\r\n\r\nGET /a", "HTTP/1.1 200 OK\r\n\r\nx"},
		{helloFor("a.com"), "\x16\x03\x03\x00\x04\x0e\x00\x00\x00"},
		{dns, dns},
		{"SSH-2.0-x\r\n", "SSH-1.99-y x\r\n"},
		{"USER a\r\nRETR f\r\n", "220 a\r\n227 (198,18,0,80,1,2)\r\n"},
		{smbTree(`\\h\share`) + smbCreate(1, "f") + smbWrite("0123456789abcdef", 0, "data") + smbRead(2, "0123456789abcdef", 0), smbCreated(1, "0123456789abcdef") + smbReadReply(2, "data")},
		{mqttHello + mqttPublished, "\x20\x02\x00\x00" + mqttPublished},
		{"\r\n" + sipRequest + sipRequest, sipResponse},
		{nfsRecord(nfsLookup(1, "f")) + nfsRecord(nfsCallOf(2, 3, 6, xdr("handle"))), nfsRecord(nfsReply(1, be32(0)+xdr("handle")))},
		{multipartRequest, ""},
	} {
		f.Add([]byte(s[0]), []byte(s[1]), uint16(3))
		f.Add([]byte(s[0]), []byte(s[1]), uint16(0x0701))
	}
	parsed := signature.Parse("test", cutRules, nil)
	rules, err := Compile(parsed.Rules)
	if err != nil || len(parsed.Errors)+len(parsed.Skipped) > 0 {
		f.Fatal(err, parsed.Errors, parsed.Skipped)
	}
	f.Fuzz(func(t *testing.T, toServer, toClient []byte, cut uint16) {
		if len(toServer) > 1<<14 || len(toClient) > 1<<14 {
			return
		}
		var got [2]string
		for i := range got {
			found := map[uint32]bool{}
			l := &lab{t: t, now: 1e9}
			l.e = New(rules, Config{}, func(a *Alert) {
				if a.Rule != nil {
					found[a.Rule.SID] = true
				}
			})
			mss := [2]int{1 << 15, 1 << 15}
			if i == 1 {
				mss = [2]int{1 + int(cut&0xff), 1 + int(cut>>8)}
			}
			c := l.tcp(53).open()
			c.send(true, string(toServer), mss[0]).send(false, string(toClient), mss[1]).close()
			got[i] = fmt.Sprint(slices.Sorted(maps.Keys(found)))
			if s := l.e.Stats(); s.GaveUp > 0 || l.e.budget.Used() != 0 {
				t.Errorf("%+v, %d bytes held", s, l.e.budget.Used())
			}
		}
		if got[0] != got[1] {
			t.Errorf("in whole %s, in pieces of %d and %d: %s", got[0], 1+int(cut&0xff), 1+int(cut>>8), got[1])
		}
	})
}
