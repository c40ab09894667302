package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/testkit/testinitial"
	"github.com/millrace/millrace/wire"
)

// Files of FTP are those of the data connection that the commands announce, in each of its four forms and both directions.
func TestFilesOfFTP(t *testing.T) {
	const rules = `alert ftp-data any any -> any any (file.data; content:"evil"; ftpdata_command:retr; sid:1;)
alert ftp-data any any -> any any (file.data; content:"evil"; ftpdata_command:stor; sid:2;)
alert ftp-data any any -> any any (file.name; content:"a.exe"; startswith; endswith; sid:3;)
alert tcp any any -> any any (app-layer-protocol:ftp-data; content:"evil"; sid:4;)
alert ftp any any -> any any (ftp.command; content:"STOR"; ftp.command_data; content:"a.exe"; startswith; endswith; sid:5;)`
	for _, form := range []struct {
		name, asks, reply string
		passive           bool
	}{
		{"PASV", "PASV\r\n", "227 Entering Passive Mode (10,0,0,9,200,1).\r\n", true},
		{"EPSV", "EPSV\r\n", "229 ok (|||51201|)\r\n", true},
		{"PORT", "PORT 192,0,2,1,200,1\r\n", "200 ok\r\n", false},
		{"EPRT", "EPRT |1|192.0.2.1|51201|\r\n", "200 ok\r\n", false},
	} {
		for command, want := range map[string]string{"RETR a.exe\r\n": "1 3 4", "STOR a.exe\r\n": "2 3 4 5"} {
			for _, mss := range []int{1, 1400} {
				l := newLab(t, rules)
				c := l.tcp(21).open().send(false, "220 hello\r\n", mss).send(true, "USER a\r\n"+form.asks, mss).send(false, "331 a\r\n"+form.reply, mss)
				c.send(true, command, mss)
				data := l.tcp(51201)
				data.active = !form.passive
				data.open().send(strings.HasPrefix(command, "STOR") == form.passive, "so evil", mss).close()
				l.want(fmt.Sprintf("%s, %q, segments of %d", form.name, command, mss), want)
				if l.e.transfers.Len() != 0 {
					t.Errorf("%s: %d transfers are expected", form.name, l.e.transfers.Len())
				}
			}
		}
	}
}

// A control connection waits for one data connection, and for none when it has ended.
func TestTransfersOfFTPAreBounded(t *testing.T) {
	l := newLab(t, `alert ftp-data any any -> any any (file.data; content:"evil"; sid:1;)`)
	c := l.tcp(21).open().send(false, "220 hello\r\n", 1400).send(true, "USER a\r\n", 1400)
	for port := range 300 {
		c.send(false, fmt.Sprintf("227 (198,18,0,1,9,%d)\r\n", port%256), 1400)
	}
	if n := l.e.transfers.Len(); n != 1 {
		t.Errorf("%d transfers are expected", n)
	}
	c.close()
	if n := l.e.transfers.Len(); n != 0 || l.e.budget.Used() != 0 {
		t.Errorf("%d transfers are expected, %d bytes are held", n, l.e.budget.Used())
	}
}

// Files of SMB are put together by their offsets, and known by the names that they were opened with.
func TestFilesOfSMB(t *testing.T) {
	const id, rules = "0123456789abcdef", `alert smb any any -> any any (flow:to_server; file.data; content:"so evil"; startswith; file.name; content:"dir|5c|a.exe"; startswith; endswith; sid:1;)
alert smb any any -> any any (flow:to_client; file.data; content:"so evil"; sid:2;)
alert smb any any -> any any (smb.share; content:"|5c 5c|host|5c|share"; startswith; endswith; sid:3;)
alert smb any any -> any any (smb.named_pipe; content:"IPC$"; nocase; sid:4;)
alert smb any any -> any any (file.name; content:"a.exe"; endswith; sid:5;)`
	for _, mss := range []int{1, 13, 1400} {
		l := newLab(t, rules)
		c := l.tcp(445).open().send(true, smbTree(`\\host\share`)+smbTree(`\\host\ipc$`), mss)
		c.send(true, smbCreate(7, `dir\a.exe`), mss).send(false, smbCreated(7, id), mss)
		c.send(true, smbWrite(id, 5, "il")+smbWrite(id, 0, "so ev"), mss)
		c.send(true, smbRead(8, id, 3)+smbRead(9, id, 0), mss).send(false, smbReadReply(9, "so ")+smbReadReply(8, "evil"), mss)
		c.send(true, smbClosed(id), mss)
		l.want(fmt.Sprintf("SMB 2, segments of %d", mss), "1 2 3 4 5 5")
	}
	for _, mss := range []int{1, 1400} {
		l := newLab(t, rules)
		c := l.tcp(445).open()
		c.send(true, smb1Message(smb1Tree, 1, false, noAndX+le16(0)+le16(1), "\x00\\\\host\\share\x00A:\x00"), mss)
		c.send(true, smb1Message(smb1CreateAndX, 2, false, noAndX+strings.Repeat("\x00", 44), "dir\\a.exe\x00"), mss)
		c.send(false, smb1Message(smb1CreateAndX, 2, true, noAndX+"\x00"+le16(77)+strings.Repeat("\x00", 61), ""), mss)
		c.send(true, smb1Message(smb1WriteAndX, 3, false, noAndX+le16(77)+le32(0)+le32(0)+le16(0)+le16(0)+le16(0)+le16(7)+le16(32+3+24)+"", "so evil"), mss)
		c.send(true, smb1Message(smb1ReadAndX, 4, false, noAndX+le16(77)+le32(0)+strings.Repeat("\x00", 10), ""), mss)
		c.send(false, smb1Message(smb1ReadAndX, 4, true, noAndX+strings.Repeat("\x00", 6)+le16(7)+le16(32+3+24)+strings.Repeat("\x00", 10), "so evil"), mss)
		c.send(true, smb1Message(smb1Close, 5, false, le16(77)+le32(0), ""), mss)
		l.want(fmt.Sprintf("SMB 1, segments of %d", mss), "1 2 3 5 5")
	}
}

// A write of SMB 1 may follow another command in its message, here one that unlocks bytes.
func TestChainedWritesOfSMB(t *testing.T) {
	l := newLab(t, `alert smb any any -> any any (file.data; content:"evil"; sid:1;)`)
	lock := smb1Message(smb1Locking, 1, false, "\x2f\x00"+le16(32+3+16)+strings.Repeat("\x00", 12), "")[4:]
	write := "\x0c" + noAndX + le16(77) + le32(0) + strings.Repeat("\x00", 10) + le16(7) + le16(len(lock)+3+24) + le16(7) + "so evil"
	l.tcp(445).open().send(true, netbios(lock+write), 1400).close()
	l.want("a chain", "1")
}

// Inline, a file is dropped before its end comes, whatever protocol carries it.
func TestFilesAreDroppedBeforeTheirEnd(t *testing.T) {
	g := newGate(t, Config{Refuse: true}, `drop smb any any -> any any (file.data; content:"evil"; sid:1;)`)
	g.open()
	text, seq := smbCreate(1, "a")+smbWrite("0123456789abcdef", 0, "so evil")+smbClosed("0123456789abcdef"), uint32(1)
	for _, part := range parts(text, 40) {
		if r := g.segment(true, seq, wire.FlagACK, part); r.Outcome == Drop {
			break
		}
		seq += uint32(len(part))
	}
	if got := g.received(); strings.Contains(got, "evil") || g.sids() != "1" {
		t.Errorf("the server has the file: %q, alerts %q", got, g.sids())
	}
}

// A flow with more open files than the bound, and with an offset far away, holds no more than the bound.
func TestFilesOfSMBAreBounded(t *testing.T) {
	l := newLab(t, `alert smb any any -> any any (file.data; content:"evil"; sid:1;)`)
	c := l.tcp(445).open()
	for i := range 2 * maxSMBFiles {
		c.send(true, smbWrite(fmt.Sprintf("%016d", i), 0, "so evil"), 1400)
	}
	c.send(true, smbWrite("0123456789abcdef", 1<<62, "far"), 1400)
	if n := len(l.alerts); n < maxSMBFiles {
		t.Errorf("%d files are evaluated", n)
	}
	for f := l.e.oldest; f != nil; f = f.newer {
		if n := f.proto.parser.Size(); n > maxSMBFiles*1000 {
			t.Errorf("%d bytes are held of files", n)
		}
	}
	c.close()
	if n := l.e.budget.Used(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// Each part of a multipart body is a file with its name; other bodies have the name of Content-Disposition or of the URI.
func TestFilesOfHTTP(t *testing.T) {
	get := func(head string) [2]string {
		return [2]string{"GET /dir/b.exe?q HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n" + head + "Content-Length: 4\r\n\r\ndata"}
	}
	for rule, c := range map[string]struct {
		texts [2]string
		want  bool
	}{
		`file.data; content:"data"; startswith; endswith; file.name; content:"evil.exe"; startswith; endswith;`: {[2]string{multipartRequest}, true},
		`file.data; content:"va"; startswith; endswith;`:                                                        {[2]string{multipartRequest}, true},
		`file.data; content:"va"; file.name; content:"evil.exe";`:                                               {[2]string{multipartRequest}, false},
		`file.data; content:"va"; content:"data";`:                                                              {[2]string{multipartRequest}, false},
		`http.request_body; content:"va"; content:"data";`:                                                      {[2]string{multipartRequest}, true},
		`http.uri; content:"/up"; file.name; content:"evil.exe";`:                                               {[2]string{multipartRequest}, true},
		`flow:to_client; file.name; content:"/dir/b.exe"; startswith; endswith;`:                                {get(""), true},
		`flow:to_client; file.name; content:"c.exe"; startswith; endswith;`:                                     {get("Content-Disposition: attachment; filename=\"c.exe\"\r\n"), true},
		`flow:to_client; file.name; content:"b.exe";`:                                                           {get("Content-Disposition: attachment; filename=\"c.exe\"\r\n"), false},
	} {
		for name, cfg := range map[string]Config{"capture": {}, "inline": {Inline: true}} {
			for _, mss := range []int{1, 1400} {
				l := &lab{t: t, now: 1e9}
				l.e = New(rulesOf(t, "alert http any any -> any any ("+rule+" sid:1;)", nil), cfg, func(a *Alert) { l.alerts = append(l.alerts, *a) })
				l.tcp(80).open().send(true, c.texts[0], mss).send(false, c.texts[1], mss)
				l.e.Flush()
				if got := len(l.alerts); (got == 1) != c.want || got > 1 {
					t.Errorf("%s, %s, segments of %d: %d alerts", name, rule, mss, got)
				}
			}
		}
	}
}

// TestMessagesOfProtocols has a message, and what a buffer of it has.
func TestMessagesOfProtocols(t *testing.T) {
	const five = "\x10\x14\x00\x04MQTT\x05\x02\x00\x3c\x03\x21\x00\x14\x00\x04abcd"
	for _, c := range []struct {
		proto, text, rule string
		want              bool
	}{
		{"mqtt", mqttHello, `mqtt.connect.clientid; content:"c"; bsize:1;`, true},
		{"mqtt", mqttHello, `mqtt.connect.willtopic; content:"w"; bsize:1;`, true},
		{"mqtt", mqttHello, `mqtt.connect.willmessage; content:"m"; bsize:1;`, true},
		{"mqtt", mqttHello, `mqtt.connect.password; content:"pw"; bsize:2;`, true},
		{"mqtt", mqttHello, `mqtt.connect.flags:username,password,!will_retain;`, true},
		{"mqtt", mqttHello, `mqtt.connect.flags:!username;`, false},
		{"mqtt", mqttHello, `mqtt.protocol_version:4; mqtt.type:CONNECT;`, true},
		{"mqtt", five, `mqtt.protocol_version:5; mqtt.connect.clientid; content:"abcd"; bsize:4;`, true},
		{"mqtt", five + "\x32\x09\x00\x01t\x00\x07\x00abc", `mqtt.qos:1; mqtt.publish.message; content:"abc"; bsize:3;`, true},
		{"mqtt", five + "\xe0\x01\x8e", `mqtt.type:disconnect; mqtt.reason_code:142;`, true},
		{"mqtt", mqttHello + mqttPublished, `mqtt.type:!publish; mqtt.publish.message; content:"hello";`, false},
		{"mqtt", mqttHello + "\x82\x0b\x00\x01\x00\x01t\x00\x00\x02uv\x01", `mqtt.subscribe.topic; content:"uv"; bsize:2;`, true},
		{"sip", sipRequest, `sip.uri; content:"sip|3a|b@example.test"; startswith; endswith;`, true},
		{"sip", sipRequest, `sip.content_length; content:"4"; bsize:1;`, true},
		{"sip", sipResponse, `sip.stat_msg; content:"Ringing"; bsize:7;`, true},
		{"sip", sipResponse, `sip.via; content:"SIP/2.0/UDP h"; startswith;`, true},
		{"nfs", nfsLookup(1, "secret.txt"), `nfs_version:3; nfs_procedure:3; file.name; content:"secret.txt"; startswith; endswith;`, true},
		{"nfs", nfsCallOf(1, 3, 14, xdr("a")+xdr("old")+xdr("b")+xdr("new")), `file.name; content:"new"; startswith;`, true},
		{"nfs", nfsCallOf(1, 2, 4, strings.Repeat("h", 32)+xdr("two")), `nfs_version:2; file.name; content:"two";`, true},
		{"nfs", nfsCallOf(1, 4, 1, xdr("tag")+be32(0)+be32(3)+be32(24)+be32(15)+xdr("dir")+be32(28)+xdr("gone")), `file.name; content:"gone";`, true},
		{"nfs", nfsCallOf(1, 3, 1, xdr("handle")), `nfs_procedure:>1;`, false},
		{"quic", googleHelloOf("SNI", "a.test", "UAID", "agent"), `quic.sni; content:"a.test"; bsize:6; quic.cyu.string; content:"46,SNI-UAID"; quic.ua; content:"agent";`, true},
		{"quic", googleHelloOf("SNI", "a.test"), `quic.version; content:"Q046"; bsize:4;`, true},
	} {
		l := newLab(t, "alert "+c.proto+" any any -> any any ("+c.rule+" sid:1;)")
		if c.proto != "mqtt" {
			l.udp(9, c.text)
		}
		if text := map[string]string{"nfs": nfsRecord(c.text), "sip": c.text, "mqtt": c.text}[c.proto]; text != "" {
			for _, mss := range []int{1, 1400} {
				l.tcp(uint16(1000+mss)).open().send(true, text, mss)
			}
		}
		want := map[string]int{"quic": 1, "mqtt": 2, "sip": 3, "nfs": 3}[c.proto]
		if !c.want {
			want = 0
		}
		if got := len(l.alerts); got != want {
			t.Errorf("%s, %s: %d alerts, want %d", c.proto, c.rule, got, want)
		}
	}
}

// A file that was looked up is named in what follows about its handle.
func TestNFSHandlesHaveNames(t *testing.T) {
	l := newLab(t, `alert nfs any any -> any any (nfs_procedure:6; file.name; content:"secret"; sid:1;)`)
	read := nfsCallOf(2, 3, 6, xdr("handle")+be32(0))
	c := l.tcp(2049).open().send(true, nfsRecord(nfsLookup(1, "secret")), 7).send(true, nfsRecord(read), 7)
	l.want("before the reply", "")
	c.send(false, nfsRecord(nfsReply(1, be32(0)+xdr("handle"))), 7).send(true, nfsRecord(read), 7)
	l.want("behind it", "1")
}

// The ClientHello of QUIC is read from its Initial packets, in both versions, in pieces and with damaged ones between them.
func TestBuffersOfQUIC(t *testing.T) {
	hello := testinitial.Hello(t)
	for _, version := range []uint32{testinitial.V1, testinitial.V2} {
		l := newLab(t, `alert quic any any -> any any (quic.sni; content:"quic.example.test"; startswith; endswith; sid:1;)
alert quic any any -> any any (ja4.hash; content:"q13"; startswith; ja3.hash; bsize:32; sid:2;)
alert udp any any -> any any (quic.version; bsize:4; sid:3;)
alert tls any any -> any any (ja3.hash; bsize:32; sid:4;)`)
		seal := func(number uint16, from, to int) string {
			return string(testinitial.Seal(t, version, []byte("12345678"), number, testinitial.Crypto(hello, from, to)))
		}
		damaged := []byte(seal(1, 0, 100))
		damaged[60] ^= 1
		l.udp(443, seal(2, 100, len(hello)))
		l.udp(443, string(damaged))
		l.want("a part", "")
		l.udp(443, seal(1, 0, 100))
		l.want(fmt.Sprintf("version %x", version), "1 2 3")
		l.e.Flush()
		if n := l.e.budget.Used(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	}
}

// Rules on DNS match in the first datagram of a flow already, also on its payload.
func TestFirstDatagramHasItsProtocol(t *testing.T) {
	l := newLab(t, `alert dns any any -> any any (content:"|01|a|04|test"; sid:1;)`)
	l.udp(53, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01")
	l.want("a query", "1")
}

// TestDatasets has sets from files and sets that rules fill, which other rules ask for.
func TestDatasets(t *testing.T) {
	files := map[string]string{"agents": "Y3VybA==\n# none\n", "hashes": "5d41402abc4b2a76b9719d911017c592\n", "hosts": "::ffff:192.0.2.1\n"}
	cfg := &signature.Config{Read: func(_, name string) (string, error) {
		if text, ok := files[name]; ok {
			return text, nil
		}
		return "", fmt.Errorf("no file %s", name)
	}}
	f := signature.Parse("test", `alert http any any -> any any (http.user_agent; dataset:isset,ua,type string,load agents; sid:1;)
alert http any any -> any any (http.user_agent; dataset:isnotset,ua,type string,load agents; sid:2;)
alert http any any -> any any (http.request_body; to_md5; dataset:isset,bad,type md5,load hashes; sid:3;)
alert tcp any any -> any any (ip.src; dataset:isset,hosts,type ip,load hosts; content:!"zz"; dsize:>0; sid:4;)
alert http any any -> any any (http.uri; dataset:set,seen,type string,memcap 150; sid:5;)
alert http any any -> any any (http.uri; dataset:isset,seen,type string; sid:6;)`, cfg)
	if len(f.Errors)+len(f.Skipped) > 0 {
		t.Fatal(f.Errors, f.Skipped)
	}
	r, err := Compile(f.Rules)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, now: 1e9}
	l.e = New(r, Config{}, func(a *Alert) { l.alerts = append(l.alerts, *a) })
	ask := func(uri, agent string) {
		l.alerts = nil
		l.tcp(80).open().send(true, "POST "+uri+" HTTP/1.1\r\nUser-Agent: "+agent+"\r\nContent-Length: 5\r\n\r\nhello", 1400).close()
	}
	ask("/a", "curl")
	l.want("a new URI", "1 3 4 5 6")
	ask("/a", "other")
	l.want("a known URI", "2 3 4 6")
	ask("/b", "curl")
	ask("/c", "curl")
	l.want("beyond the bound", "1 3 4")
	if s := l.e.Stats(); s.SetsFull != 1 || l.e.budget.Used() == 0 {
		t.Errorf("%+v, %d bytes", s, l.e.budget.Used())
	}
	next, err := CompileNext(f.Rules[:2], r)
	if err != nil {
		t.Fatal(err)
	}
	if l.e.Swap(next, Config{}); l.e.budget.Used() != 0 {
		t.Errorf("%d bytes are held for sets that are gone", l.e.budget.Used())
	}
}

// base64_decode and tests of bytes stand in the buffer of the content before them, and reach no further than it does.
func TestTestsBehindAModifier(t *testing.T) {
	const request = "GET /?arg=dGhpc2lzYXRlc3QK HTTP/1.1\r\nHost: a\r\n\r\n"
	for rule, want := range map[string]bool{
		`content:"arg"; http_uri; base64_decode:bytes 17, offset 1, relative; base64_data; content:"thisisatest";`:    true,
		`content:"arg"; http_uri; base64_decode:bytes 10, offset 1, relative; base64_data; content:"test";`:           false,
		`content:"arg"; http_uri; base64_decode:bytes 60000, offset 1, relative; base64_data; content:"thisisatest";`: true,
		`content:"arg"; http_uri; base64_decode:bytes 4, offset 17, relative; base64_data; content:"t";`:              false,
		`content:"3QK"; http_uri; isdataat:!1,relative;`:                                                              true,
		`content:"3QK"; http_uri; isdataat:1,relative;`:                                                               false,
		`content:"/?arg="; http_uri; byte_test:1,=,100,0,relative;`:                                                   true,
		`content:"dG"; http_uri; byte_jump:0,0,relative,post_offset -100; content:"/?"; http_uri; within:2;`:          true,
	} {
		l := newLab(t, "alert http any any -> any any ("+rule+" sid:1;)")
		l.tcp(80).open().send(true, request, 1400)
		if got := len(l.alerts) > 0; got != want {
			t.Errorf("%s: %d alerts", rule, len(l.alerts))
		}
	}
}

// Datagrams of any bytes are read without a panic, and nothing is held of them when their flow has ended.
func FuzzDatagrams(f *testing.F) {
	hello := testinitial.Hello(f)
	for _, text := range []string{
		sipRequest, sipResponse, nfsLookup(1, "f"), nfsReply(1, be32(0)+xdr("handle")), googleHelloOf("SNI", "a.test", "UAID", "u"),
		string(testinitial.Seal(f, testinitial.V1, []byte("12345678"), 1, testinitial.Crypto(hello, 0, len(hello)))),
	} {
		f.Add([]byte(text), []byte(text[:len(text)/2]))
	}
	r := rulesOf(&testing.T{}, `alert udp any any -> any any (file.name; content:"f"; sid:1;)
alert udp any any -> any any (sip.method; content:"I"; sid:2;)
alert udp any any -> any any (quic.sni; content:"a"; sid:3;)`, nil)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if len(first) > 1400 || len(second) > 1400 {
			return
		}
		l := &lab{t: t, now: 1e9}
		l.e = New(r, Config{}, func(*Alert) {})
		l.udp(443, string(first))
		l.udp(443, string(second))
		l.e.Flush()
		if n := l.e.budget.Used(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	})
}
