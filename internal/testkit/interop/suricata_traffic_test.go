package interop

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strconv"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// message is what one end says.
type message struct {
	dir  signature.Direction
	text []byte
}

// messages returns a conversation for a rule: what it asks for is in its last message to the rule's direction.
func (s *synth) messages(r *signature.Rule) []message {
	parts := map[signature.Buffer][]byte{}
	app, dir := r.Protocol.App, r.Flow.Dir
	for i := range r.Parts {
		p := &r.Parts[i]
		parts[p.Buffer] = append(parts[p.Buffer], s.buffer(p)...)
		app = cmp.Or(app, p.Buffer.App())
		if d := p.Buffer.Directions(); d != signature.BothWays {
			dir = d
		}
	}
	if dir == 0 {
		dir = signature.ToServer
	}
	switch app {
	case signature.AppHTTP:
		return s.http(parts, dir)
	case signature.AppTLS:
		if parts[signature.Payload] == nil {
			return []message{{signature.ToServer, clientHello(parts[signature.TLSSNI])}}
		}
	case signature.AppDNS:
		if name, ok := parts[signature.DNSQuery]; ok {
			return []message{{dir, dnsQuery(name)}}
		}
	case signature.AppSSH:
		banner := func(d signature.Direction) message {
			version, software := cmp.Or(string(parts[signature.SSHProto]), "2.0"), cmp.Or(string(parts[signature.SSHSoftware]), "x")
			return message{d, []byte("SSH-" + version + "-" + software + "\r\n")}
		}
		return []message{banner(signature.ToServer), banner(signature.ToClient)}
	}
	return append(opening(app), message{dir, parts[signature.Payload]})
}

// opening is what makes a flow one of a protocol.
func opening(app signature.App) []message {
	switch app {
	case signature.AppSMTP:
		return []message{{signature.ToClient, []byte("220 x ESMTP\r\n")}, {signature.ToServer, []byte("EHLO x\r\n")}, {signature.ToClient, []byte("250 x\r\n")}}
	case signature.AppFTP:
		return []message{{signature.ToClient, []byte("220 x\r\n")}, {signature.ToServer, []byte("USER x\r\n")}, {signature.ToClient, []byte("331 x\r\n")}}
	}
	return nil
}

// http returns a request and a response that have the buffers of a rule.
func (s *synth) http(parts map[signature.Buffer][]byte, dir signature.Direction) []message {
	get := func(b signature.Buffer, otherwise string) []byte {
		if v, ok := parts[b]; ok {
			return v
		}
		return []byte(otherwise)
	}
	uri := get(signature.HTTPURI, string(get(signature.HTTPURIRaw, "/")))
	if len(uri) == 0 || uri[0] != '/' {
		uri = append([]byte("/"), uri...)
	}
	body := get(signature.HTTPRequestBody, "")
	answer := get(signature.HTTPResponseBody, "")
	if dir == signature.ToServer {
		body = append(body, parts[signature.FileData]...)
		body = append(body, parts[signature.Payload]...)
	} else {
		answer = append(answer, parts[signature.FileData]...)
		answer = append(answer, parts[signature.Payload]...)
	}
	method := "GET"
	if len(body) > 0 {
		method = "POST"
	}
	var q, a bytes.Buffer
	q.Write(get(signature.HTTPRequestLine, string(get(signature.HTTPMethod, method))+" "+string(uri)+" "+string(get(signature.HTTPProtocol, "HTTP/1.1"))))
	q.WriteString("\r\n")
	a.Write(get(signature.HTTPResponseLine, "HTTP/1.1 "+string(get(signature.HTTPStatCode, "200"))+" "+string(get(signature.HTTPStatMsg, "OK"))))
	a.WriteString("\r\n")
	s.headers(&q, parts, dir == signature.ToServer, len(body), requestHeaders)
	s.headers(&a, parts, dir == signature.ToClient, len(answer), responseHeaders)
	q.Write(body)
	a.Write(answer)
	return []message{{signature.ToServer, q.Bytes()}, {signature.ToClient, a.Bytes()}}
}

type namedHeader struct {
	b    signature.Buffer
	name string
}

var (
	requestHeaders = []namedHeader{
		{signature.HTTPHost, "Host"},
		{signature.HTTPHostRaw, "Host"},
		{signature.HTTPUserAgent, "User-Agent"},
		{signature.HTTPAccept, "Accept"},
		{signature.HTTPAcceptEnc, "Accept-Encoding"},
		{signature.HTTPAcceptLang, "Accept-Language"},
		{signature.HTTPReferer, "Referer"},
		{signature.HTTPCookie, "Cookie"},
		{signature.HTTPContentType, "Content-Type"},
		{signature.HTTPConnection, "Connection"},
	}
	responseHeaders = []namedHeader{
		{signature.HTTPServer, "Server"},
		{signature.HTTPLocation, "Location"},
		{signature.HTTPCookie, "Set-Cookie"},
		{signature.HTTPContentType, "Content-Type"},
	}
)

// headers writes the headers of a message and the empty line.
func (s *synth) headers(w *bytes.Buffer, parts map[signature.Buffer][]byte, mine bool, length int, known []namedHeader) {
	line := func(name string, value []byte) {
		w.WriteString(name + ": ")
		w.Write(value)
		w.WriteString("\r\n")
	}
	written := map[string]bool{}
	if mine {
		for name := range bytes.SplitSeq(parts[signature.HTTPHeaderNames], []byte("\r\n")) {
			if n := string(name); n != "" && !written[n] {
				value := []byte("x")
				for _, h := range known {
					if v, ok := parts[h.b]; ok && h.name == n {
						value = v
					}
				}
				if n == "Content-Length" {
					value = strconv.AppendInt(nil, int64(length), 10)
				}
				line(n, value)
				written[n] = true
			}
		}
		for _, h := range known {
			if v, ok := parts[h.b]; ok && !written[h.name] {
				line(h.name, v)
				written[h.name] = true
			}
		}
		for _, b := range []signature.Buffer{signature.HTTPHeader, signature.HTTPHeaderRaw, signature.HTTPStart} {
			if v := bytes.Trim(parts[b], "\r\n"); len(v) > 0 {
				if !bytes.ContainsRune(v, ':') || v[0] == ':' {
					v = append([]byte("X-A: "), v...)
				}
				w.Write(v)
				w.WriteString("\r\n")
			}
		}
		if v, ok := parts[signature.HTTPContentLen]; ok {
			line("Content-Length", v)
			written["Content-Length"] = true
		}
	}
	if !written["Content-Length"] && (length > 0 || known[0].name == "Server") {
		line("Content-Length", strconv.AppendInt(nil, int64(length), 10))
	}
	w.WriteString("\r\n")
}

// clientHello returns a record with a ClientHello (RFC 8446 4.1.2) for a name.
func clientHello(name []byte) []byte {
	sni := binary.BigEndian.AppendUint16(nil, uint16(len(name)+3))
	sni = append(binary.BigEndian.AppendUint16(append(sni, 0), uint16(len(name))), name...)
	ext := append([]byte{0, 0}, binary.BigEndian.AppendUint16(nil, uint16(len(sni)))...)
	ext = append(ext, sni...)
	body := append([]byte{3, 3}, bytes.Repeat([]byte{7}, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(ext))), ext...)
	hs := append([]byte{1, 0}, binary.BigEndian.AppendUint16(nil, uint16(len(body)))...)
	hs = append(hs, body...)
	return append(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, uint16(len(hs))), hs...)
}

// dnsQuery returns a query for a name (RFC 1035 4).
func dnsQuery(name []byte) []byte {
	b := []byte{0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range bytes.SplitSeq(bytes.Trim(name, "."), []byte(".")) {
		if len(label) > 0 {
			label = label[:min(len(label), 63)]
			b = append(append(b, byte(len(label))), label...)
		}
	}
	return append(b, 0, 0, 1, 0, 1)
}

// conversation writes the packets of flows.
type conversation struct {
	now  int64
	list []timed
}

// ends are the two ends of a flow for a rule.
type ends struct{ client, server netip.AddrPort }

// endsOf returns addresses and ports that a rule is about, the client's address being the n-th.
func endsOf(r *signature.Rule, n int, rng *rand.Rand) ends {
	src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)}), uint16(20000+n%40000))
	dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 10}), 80)
	if r.Protocol.App == signature.AppDNS {
		dst = netip.AddrPortFrom(dst.Addr(), 53)
	}
	toClient := r.Flow.Dir == signature.ToClient
	srcAddrs, dstAddrs, srcPorts, dstPorts := r.Src, r.Dst, r.SrcPorts, r.DstPorts
	if toClient {
		srcAddrs, dstAddrs, srcPorts, dstPorts = dstAddrs, srcAddrs, dstPorts, srcPorts
	}
	return ends{
		netip.AddrPortFrom(addrIn(srcAddrs, src.Addr()), portIn(srcPorts, src.Port(), rng)),
		netip.AddrPortFrom(addrIn(dstAddrs, dst.Addr()), portIn(dstPorts, dst.Port(), rng)),
	}
}

func addrIn(s *signature.Addrs, otherwise netip.Addr) netip.Addr {
	if s.Any() || s.Contains(netip.AddrFrom16(otherwise.As16())) {
		return otherwise
	}
	found := otherwise
	s.Each(func(first, _ netip.Addr) {
		if first = first.Unmap(); found == otherwise && first.Is4() {
			found = first
		}
	})
	return found
}

func portIn(s *signature.Ports, otherwise uint16, rng *rand.Rand) uint16 {
	if s.Any() || s.Contains(otherwise) {
		return otherwise
	}
	var list []uint16
	s.Each(func(p uint16) {
		if p > 0 {
			list = append(list, p)
		}
	})
	if len(list) == 0 {
		return otherwise
	}
	return list[rng.IntN(len(list))]
}

func (c *conversation) packet(src, dst netip.Addr, proto uint8, body []byte) {
	c.now += 1e6
	f := wire.AppendEthernet(nil, wire.MAC{2}, wire.MAC{4}, wire.EtherTypeIPv4)
	f = wire.AppendIPv4(f, &wire.IPv4Header{Src: src.As4(), Dst: dst.As4(), Proto: proto, TTL: 64, PayloadLen: len(body)})
	c.list = append(c.list, timed{c.now, append(f, body...)})
}

// udp writes datagrams.
func (c *conversation) udp(e ends, list []message) {
	for _, m := range list {
		src, dst := e.client, e.server
		if m.dir == signature.ToClient {
			src, dst = dst, src
		}
		c.packet(src.Addr(), dst.Addr(), wire.ProtoUDP, append(wire.AppendUDP(nil, src.Port(), dst.Port(), len(m.text)), m.text...))
	}
}

// tcp writes a connection: handshake, messages that the other end acknowledges, and its end.
func (c *conversation) tcp(e ends, list []message) {
	const mss = 1400
	seq := [2]uint32{1000, 5000}
	send := func(side int, flags wire.TCPFlags, text []byte) {
		src, dst := e.client, e.server
		if side == 1 {
			src, dst = dst, src
		}
		h := wire.TCPHeader{SrcPort: src.Port(), DstPort: dst.Port(), Seq: seq[side], Ack: seq[1-side], Flags: flags, Window: 65535}
		c.packet(src.Addr(), dst.Addr(), wire.ProtoTCP, append(wire.AppendTCP(nil, &h), text...))
		seq[side] += uint32(len(text))
		if flags.Any(wire.FlagSYN | wire.FlagFIN) {
			seq[side]++
		}
	}
	send(0, wire.FlagSYN, nil)
	send(1, wire.FlagSYN|wire.FlagACK, nil)
	send(0, wire.FlagACK, nil)
	for _, m := range list {
		side := 0
		if m.dir == signature.ToClient {
			side = 1
		}
		for text := m.text; len(text) > 0; {
			n := min(len(text), mss)
			send(side, wire.FlagACK|wire.FlagPSH, text[:n])
			text = text[n:]
			send(1-side, wire.FlagACK, nil)
		}
	}
	send(0, wire.FlagACK|wire.FlagFIN, nil)
	send(1, wire.FlagACK|wire.FlagFIN, nil)
	send(0, wire.FlagACK, nil)
}

// icmp writes a message that has the type and code of a rule.
func (c *conversation) icmp(e ends, r *signature.Rule, list []message) {
	b := []byte{8, 0, 0, 0, 0, 1, 0, 1}
	for _, t := range r.Packet {
		switch t.Field {
		case signature.FieldICMPType:
			b[0] = byte(t.Range.Low)
		case signature.FieldICMPCode:
			b[1] = byte(t.Range.Low)
		}
	}
	for _, m := range list {
		c.packet(e.client.Addr(), e.server.Addr(), wire.ProtoICMP, append(bytes.Clone(b), m.text...))
	}
}
