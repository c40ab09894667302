package appid

import (
	crypto "crypto/tls"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testinitial"
)

// firstFlight returns what a client of TLS sends first.
func firstFlight(t *testing.T) []byte {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go crypto.Client(a, &crypto.Config{ServerName: "hello.example.test", NextProtos: []string{"h2", "http/1.1"}}).Handshake()
	b.SetReadDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 1<<15)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// segments gives the bytes of a client to a flow, n in each segment.
func segments(f *Flow, port uint16, stream []byte, cut func(rest int) int) {
	p := Packet{Transport: tcp, Source: 40000, Destination: port, Sequence: 1}
	for len(stream) > 0 {
		n := cut(len(stream))
		p.Payload, stream = stream[:n], stream[n:]
		f.Packet(&p)
		p.Sequence += uint32(n)
	}
}

// A ClientHello shows the same in one segment, cut in two anywhere, and in many.
func TestClientHelloInSegments(t *testing.T) {
	stream := firstFlight(t)
	var all Flow
	segments(&all, 4443, stream, func(n int) int { return n })
	want := all.Details()
	if all.Protocol() != TLS || want.Name != "hello.example.test" || want.ALPN != "h2" || !strings.HasPrefix(want.JA4, "t13d") {
		t.Fatalf("%v, %+v", all.Protocol(), want)
	}
	check := func(what string, n int, f *Flow) {
		if f.Protocol() != TLS || f.Details() != want || !f.Done() {
			t.Errorf("%s %d: %v, %+v, done %v", what, n, f.Protocol(), f.Details(), f.Done())
		}
	}
	for at := 1; at < len(stream); at++ {
		var f Flow
		first := true
		segments(&f, 4443, stream, func(rest int) int {
			if first {
				first = false
				return at
			}
			return rest
		})
		check("cut at", at, &f)
	}
	var slow Flow // one byte in each segment
	segments(&slow, 4443, stream, func(int) int { return 1 })
	if !slow.Done() || slow.payloads[0] > maxPending {
		t.Errorf("done %v after %d payloads", slow.Done(), slow.payloads[0])
	}
	for _, n := range []int{100, 128, 512} {
		var f Flow
		segments(&f, 4443, stream, func(rest int) int { return min(n, rest) })
		check("in segments of", n, &f)
	}
}

// A request in two segments has the same host, and those behind the first of a pipeline change nothing.
func TestRequestsInSegmentsAndPipelines(t *testing.T) {
	one := "GET /a HTTP/1.1\r\nUser-Agent: a\r\nHost: one.example.test\r\nAccept: */*\r\n\r\n"
	for _, text := range []string{
		one, one + "GET /b HTTP/1.1\r\nHost: two.example.test\r\n\r\n",
		strings.Replace(one, "\r\n", "\n", -1),
	} {
		for at := 1; at < len(text); at++ {
			var f Flow
			first := true
			segments(&f, 8099, []byte(text), func(rest int) int {
				if first {
					first = false
					return at
				}
				return rest
			})
			if f.Protocol() != HTTP || f.Details().Name != "one.example.test" {
				t.Fatalf("%q cut at %d: %v, %+v", text, at, f.Protocol(), f.Details())
			}
		}
	}
	for text, want := range map[string]string{
		"GET / HTTP/1.0\r\n\r\nHost: body.test\r\n":                "",
		"GET / HTTP/1.1\r\nX-Host: no.test\r\nHOST:b.test\r\n\r\n": "b.test",
		"CONNECT c.test:443 HTTP/1.1\r\nHost: other\r\n\r\n":       "c.test:443",
	} {
		var f Flow
		segments(&f, 8099, []byte(text), func(n int) int { return n })
		if got := f.Details().Name; got != want || !f.Done() {
			t.Errorf("%q: %q", text, got)
		}
	}
	var f Flow // a request that never ends
	segments(&f, 8099, []byte("GET / HTTP/1.1\r\n"+strings.Repeat("X-A: "+strings.Repeat("b", 990)+"\r\n", 40)), func(n int) int { return min(n, 999) })
	if !f.Done() || len(f.collector.stream) > 0 {
		t.Errorf("%d bytes are kept", len(f.collector.stream))
	}
}

// A flow that goes on with TLS after its own command keeps its protocol, and has the name of the ClientHello.
func TestUpgradesToTLS(t *testing.T) {
	hello := string(firstFlight(t))
	for _, e := range []example{
		{SMTP, tcp, 2525, []string{"S:220 a ESMTP\r\n", "EHLO b\r\n", "S:250-a\r\n250 STARTTLS\r\n", "STARTTLS\r\n", "S:220 go\r\n", hello}},
		{IMAP, tcp, 1143, []string{"S:* OK IMAP4rev1\r\n", "1 STARTTLS\r\n", "S:1 OK\r\n", hello[:700], hello[700:]}},
		{POP3, tcp, 1100, []string{"S:+OK POP3\r\n", "STLS\r\n", "S:+OK\r\n", hello}},
		{FTP, tcp, 2121, []string{"S:220 FTP\r\n", "AUTH TLS\r\n", "S:234 go\r\n", hello}},
		{PostgreSQL, tcp, 5432, []string{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "S:S", hello}},
		{XMPP, tcp, 5222, []string{"<stream:stream xmlns='jabber:client'>", "<starttls/>", hello}},
		{LDAP, tcp, 389, []string{"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037", "S:\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00", hello}},
	} {
		f := play(&e)
		if d := f.Details(); f.Protocol() != e.protocol || d.Name != "hello.example.test" || d.JA4 == "" {
			t.Errorf("%v: %v, %+v", e.protocol, f.Protocol(), d)
		}
		f = play(&example{e.protocol, e.transport, e.port, e.payloads[:len(e.payloads)-1]})
		if e.protocol != IMAP && f.collector != nil {
			t.Errorf("%v has memory for details before there are any", e.protocol)
		}
	}
}

// The upgrades in the captures of real servers have the names that their clients asked for.
func TestUpgradesInRecordedFlows(t *testing.T) {
	names := map[string]string{}
	for _, r := range recordings(t) {
		if d := r.play(0, whole, 0).Details(); d.JA4 != "" {
			names[filepath.Base(r.name)] = d.Name
		}
	}
	for _, n := range []string{"imap", "pop3", "smtp", "ftp"} {
		if names[n] != "mail.example.test" {
			t.Errorf("%s: %q in %v", n, names[n], names)
		}
	}
	if _, ok := names["ldap"]; !ok {
		t.Errorf("no ClientHello in ldap: %v", names)
	}
}

// span is a part of a ClientHello.
type span struct{ from, to int }

func cryptoFrame(hello []byte, s span) []byte { return testinitial.Crypto(hello, s.from, s.to) }

// permutations calls f with every order of n numbers.
func permutations(n int, f func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var walk func(k int)
	walk = func(k int) {
		if k == n {
			f(order)
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			walk(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	walk(0)
}

// A ClientHello over several Initial packets is read in any order of its frames and packets, with gaps closed late, frames
// sent again and overlaps, in both versions.
func TestInitialsInAnyOrder(t *testing.T) {
	hello := testinitial.Hello(t)
	n := len(hello)
	cuts := []span{{0, 3}, {3, n / 3}, {n / 3, n / 2}, {n/2 - 20, n - 40}, {n - 60, n}}
	var want Details
	r := rand.New(rand.NewPCG(3, 4))
	for _, version := range []uint32{1, 0x6b3343cf} {
		permutations(len(cuts), func(order []int) {
			var f Flow
			p := Packet{Transport: udp, Source: 40000, Destination: 4433}
			for i, k := range order {
				frames := []byte{0, 1, 0, 0} // PADDING and PING
				frames = append(frames, cryptoFrame(hello, cuts[k])...)
				if r.UintN(2) == 0 {
					frames = append(frames, cryptoFrame(hello, cuts[order[0]])...)
				}
				p.Payload = testinitial.Seal(t, version, []byte("12345678"), uint16(i+r.IntN(300)), frames)
				if i+1 < len(order) && f.Details().JA4 != "" {
					t.Fatalf("%v: details after %d", order, i)
				}
				f.Packet(&p)
			}
			if want.JA4 == "" {
				want = f.Details()
			}
			if d := f.Details(); f.Protocol() != QUIC || d != want || d.Name != "quic.example.test" || d.ALPN != "h3" || d.JA4[0] != 'q' {
				t.Fatalf("version %x, order %v: %v, %+v", version, order, f.Protocol(), d)
			}
		})
	}
}

// A ClientHello over more datagrams than are looked at for recognition is read to its end.
func TestHelloOverManyInitials(t *testing.T) {
	hello := testinitial.Hello(t)
	var f Flow
	const n = 12
	for i := range n {
		s := span{i * len(hello) / n, (i + 1) * len(hello) / n}
		f.Packet(&Packet{
			Transport: udp, Source: 1, Destination: 2,
			Payload: testinitial.Seal(t, 1, []byte("abcdefgh"), uint16(i), cryptoFrame(hello, s)),
		})
	}
	if f.Details().Name != "quic.example.test" || !f.Done() {
		t.Errorf("%+v, done %v", f.Details(), f.Done())
	}
}

// Several Initial packets in one datagram are read; one that is damaged is skipped, and may be sent again.
func TestCoalescedAndDamagedInitials(t *testing.T) {
	hello := testinitial.Hello(t)
	a := testinitial.Seal(t, 1, []byte("abcdefgh"), 1, cryptoFrame(hello, span{100, len(hello)}))
	b := testinitial.Seal(t, 1, []byte("abcdefgh"), 2, cryptoFrame(hello, span{0, 100}))
	damaged := slices.Clone(b)
	damaged[len(damaged)-1] ^= 1
	for _, c := range []struct {
		datagrams [][]byte
		name      string
	}{
		{[][]byte{slices.Concat(a, b)}, "quic.example.test"},
		{[][]byte{slices.Concat(b, a)}, "quic.example.test"},
		{[][]byte{slices.Concat(a, damaged)}, ""},
		{[][]byte{slices.Concat(a, damaged), b}, "quic.example.test"},
		{[][]byte{a, a, a}, ""},
	} {
		var f Flow
		for _, d := range c.datagrams {
			f.Packet(&Packet{Transport: udp, Source: 1, Destination: 2, Payload: d})
		}
		if f.Protocol() != QUIC || f.Details().Name != c.name {
			t.Errorf("%v, %q, not %q", f.Protocol(), f.Details().Name, c.name)
		}
	}
}

// TestOnlyTheClientSendsAHello: a record of the server is none, whatever it says.
func TestOnlyTheClientSendsAHello(t *testing.T) {
	hello := []byte{22, 3, 1, 2, 0, 1}
	for _, c := range []struct {
		v    view
		want bool
	}{
		{view{p: hello}, true},
		{view{p: hello[:5]}, true},
		{view{p: hello, reply: true}, false},
		{view{p: []byte{22, 3, 1, 2, 0, 2}}, false},
		{view{p: []byte{23, 3, 1, 2, 0, 1}}, false},
		{view{p: []byte{22, 2, 1, 2, 0, 1}}, false},
	} {
		if got := c.v.startsHello(); got != c.want {
			t.Errorf("%v, of the server %v: %v", c.v.p, c.v.reply, got)
		}
	}
}
