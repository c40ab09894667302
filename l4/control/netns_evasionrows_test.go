package control_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	evasionText  = "198.18.1.1:7000"
	evasionWeb   = "198.18.1.1:80"
	evasionNginx = "198.18.1.1:90"
	evasionTLS   = "198.18.1.1:443"
	evasionSSL   = "198.18.1.1:444"
)

// decodedBody decodes a body as a program does that trusts the bytes more than their label.
func decodedBody(codings string, body []byte) string {
	list := strings.Split(codings, ",")
	for i := len(list) - 1; i >= 0; i-- {
		var r io.Reader
		var err error
		switch strings.TrimSpace(list[i]) {
		case "gzip":
			r, err = gzip.NewReader(bytes.NewReader(body))
		case "deflate":
			r, err = zlib.NewReader(bytes.NewReader(body))
		default:
			continue
		}
		if err != nil {
			return string(body)
		}
		body, _ = io.ReadAll(r)
	}
	return string(body)
}

func packedBody(coding, text string) string {
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if coding == "deflate" {
		w = zlib.NewWriter(&b)
	}
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

// letters cuts a text into parts of a size.
func letters(text string, size int) (parts []string) {
	for len(text) > size {
		parts, text = append(parts, text[:size]), text[size:]
	}
	return append(parts, text)
}

// hello returns the records of a ClientHello with a server name.
func hello(name string) []byte {
	a, b := net.Pipe()
	go tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
	defer a.Close()
	b.SetReadDeadline(time.Now().Add(5 * time.Second))
	p := make([]byte, 4096)
	n, _ := b.Read(p)
	return p[:n]
}

// textEvasions are those of the stream, and of TLS.
func textEvasions() (rows []evasion) {
	rows = []evasion{
		{name: "plain text", at: evasionText, text: "one attack at dawn", send: func(c *evasionConn) { c.put("one attack at dawn\n") }},
		{name: "single letters", at: evasionText, text: "two attack at dawn", send: func(c *evasionConn) { c.put(letters("two attack at dawn\n", 1)...) }},
		{name: "an urgent byte", at: evasionText, text: "three attack at dawn", send: func(c *evasionConn) {
			c.put("three attack a")
			c.urgent('X')
			c.put("t dawn\n")
		}},
		{name: "two urgent bytes", at: evasionText, text: "four attack at dawn", send: func(c *evasionConn) {
			c.put("four attack a")
			c.urgent('X')
			c.put("t ")
			c.urgent('Y')
			c.put("dawn\n")
		}},
	}
	for name, edit := range map[string]func(b []byte) []byte{
		"plain":               func(b []byte) []byte { return b },
		"version 3.153":       func(b []byte) []byte { b[2] = 0x99; return b },
		"version 9.9":         func(b []byte) []byte { b[1], b[2] = 9, 9; return b },
		"an empty record":     func(b []byte) []byte { return append([]byte{22, 3, 1, 0, 0}, b...) },
		"two empty records":   func(b []byte) []byte { return append([]byte{22, 3, 1, 0, 0, 22, 3, 1, 0, 0}, b...) },
		"an alert before it":  func(b []byte) []byte { return append([]byte{21, 3, 1, 0, 2, 1, 90}, b...) },
		"records of one byte": func(b []byte) []byte { return recordsOf(b, 1) },
		"records of 40 bytes": func(b []byte) []byte { return recordsOf(b, 40) },
		"a change before it":  func(b []byte) []byte { return append([]byte{20, 3, 3, 0, 1, 1}, b...) },
	} {
		for i, at := range []string{evasionTLS, evasionSSL} {
			server := fmt.Sprintf("n%d%s.evil.test", i, strings.NewReplacer(" ", "-", ".", "-").Replace(name))
			rows = append(rows, evasion{name: "TLS: " + name + " to " + at, at: at, text: server, send: func(c *evasionConn) { c.put(string(edit(hello(server)))) }})
		}
	}
	return append(rows, evasion{name: "TLS: an urgent byte", at: evasionTLS, text: "urgent.evil.test", send: func(c *evasionConn) {
		b := hello("urgent.evil.test")
		at := bytes.Index(b, []byte("evil"))
		c.put(string(b[:at+2]))
		c.urgent('X')
		c.put(string(b[at+2:]))
	}})
}

// recordsOf cuts the message of a record into records of a size.
func recordsOf(b []byte, size int) (out []byte) {
	for _, part := range letters(string(b[5:]), size) {
		out = append(binary.BigEndian.AppendUint16(append(out, b[:3]...), uint16(len(part))), part...)
	}
	return out
}

// httpEvasions are those of HTTP.
func httpEvasions() (rows []evasion) {
	add := func(name, at, text string, parts ...string) {
		rows = append(rows, evasion{name: "HTTP: " + name, at: at, text: text, send: func(c *evasionConn) { c.put(parts...) }})
	}
	const end = " HTTP/1.1\r\nHost: a\r\n\r\n"
	for i, at := range []string{evasionWeb, evasionNginx} {
		path := func(n int) string { return fmt.Sprintf("/evil-%d-%d", i, n) }
		add("plain", at, path(1), "GET "+path(1)+end)
		add("single letters", at, path(2), letters("GET "+path(2)+end, 1)...)
		add("an escaped letter", at, path(3), "GET "+strings.Replace(path(3), "v", "%76", 1)+end)
		add("segments of dots", at, path(4), "GET /a/.."+path(4)+end)
		add("absolute form", at, path(5), "GET http://a"+path(5)+end)
		add("an unknown method", at, path(6), "FETCH "+path(6)+end)
		add("empty lines first", at, path(7), "\r\n\r\nGET "+path(7)+end)
		add("no version", at, path(8), "GET "+path(8)+"\r\n")
		add("no version, in letters", at, path(9), letters("GET "+path(9)+"\r\n", 1)...)
		add("no version, a line feed", at, path(10), "GET "+path(10)+"\n")
		add("version 0.9", at, path(11), "GET "+path(11)+" HTTP/0.9\r\n")
		add("the second of two", at, path(12), "GET /fine"+end+"GET "+path(12)+end)
		add("a blank in the URI", at, path(13), "GET /a "+path(13)+end)
		add("two lengths, the first short", at, path(14), "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 300\r\n\r\nGET "+path(14)+end)
		add("two lengths, the last short", at, path(15), "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\nContent-Length: 0\r\n\r\nGET "+path(15)+end)
		add("a length and chunks", at, path(16), "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET "+path(16)+end)
		add("a coding that is none", at, path(17), "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET "+path(17)+end)
		add("a blank before the colon", at, path(18), "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length : 300\r\n\r\nGET "+path(18)+end)
		add("chunks in HTTP/1.0", at, path(19), "POST /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n12c\r\nGET "+path(19)+end)
		add("a tab between the words", at, path(20), "GET\t"+path(20)+"\tHTTP/1.1\r\nHost: a\r\n\r\n")
		rows = append(rows, evasion{name: "HTTP: an urgent byte", at: at, text: path(21), send: func(c *evasionConn) {
			c.put("GET /ev")
			c.urgent('X')
			c.put(path(21)[3:] + end)
		}})
	}
	for _, size := range []int{1, 7, 10000} {
		text := fmt.Sprintf("%d%s evilbody", size, strings.Repeat("x", 100))
		for _, c := range []struct{ name, codings, body string }{
			{"plain", "", text},
			{"gzip", "gzip", packedBody("gzip", text)},
			{"deflate", "deflate", packedBody("deflate", text)},
			{"gzip twice", "gzip, gzip", packedBody("gzip", packedBody("gzip", text))},
			{"a list", "deflate, gzip", packedBody("gzip", packedBody("deflate", text))},
			{"a label that is wrong", "gzip", text},
		} {
			marked := strings.Replace(c.name, " ", "-", -1)
			body := c.body
			head := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: a\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n", marked, c.codings, len(body))
			add(fmt.Sprintf("body, %s, in %d bytes", c.name, size), evasionWeb, "body "+text, append([]string{head}, letters(body, size)...)...)
		}
	}
	return append(rows, http2Evasions()...)
}

// http2Evasions are those of HTTP/2 without TLS.
func http2Evasions() (rows []evasion) {
	for n, c := range []struct {
		name string
		to   func(f *http2.Framer, block []byte, body string)
	}{
		{"prior knowledge", func(f *http2.Framer, block []byte, _ string) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true})
		}},
		{"padding and priority", func(f *http2.Framer, block []byte, _ string) {
			f.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true, PadLength: 50,
				Priority: http2.PriorityParam{StreamDep: 3, Weight: 9},
			})
		}},
		{"CONTINUATION", func(f *http2.Framer, block []byte, _ string) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:3], EndStream: true})
			f.WriteContinuation(1, false, block[3:9])
			f.WriteContinuation(1, true, block[9:])
		}},
		{"a second stream", func(f *http2.Framer, block []byte, _ string) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndHeaders: true, EndStream: true})
		}},
	} {
		path := fmt.Sprintf("/evil-h2-%d", n)
		for _, size := range []int{1, 100000} {
			path := fmt.Sprintf("%s-%d", path, size)
			rows = append(rows, evasion{name: "HTTP/2: " + c.name, at: evasionWeb, text: path, send: func(conn *evasionConn) {
				conn.put(letters(http2.ClientPreface+frames(c.to, path, "GET", ""), size)...)
			}})
		}
	}
	for n, pad := range []int{0, 30} {
		text := fmt.Sprintf("body of HTTP/2 %d %s evilbody", n, strings.Repeat("y", 50))
		rows = append(rows, evasion{name: "HTTP/2: body", at: evasionWeb, text: text, send: func(conn *evasionConn) {
			conn.put(http2.ClientPreface + frames(func(f *http2.Framer, block []byte, body string) {
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true})
				for i, part := range letters(body, 9) {
					f.WriteDataPadded(1, (i+1)*9 >= len(body), []byte(part), make([]byte, pad))
				}
			}, "/fine", "POST", text))
		}})
	}
	const upgrade = "GET /fine HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
	for n, wait := range []bool{true, false} {
		path := fmt.Sprintf("/evil-upgrade-%d", n)
		rows = append(rows, evasion{name: "HTTP/2: Upgrade", at: evasionWeb, text: path, send: func(conn *evasionConn) {
			conn.put(upgrade)
			if wait {
				if got := conn.answered(); !strings.Contains(got, "101") {
					conn.v.t.Errorf("Upgrade is answered with %q", got)
				}
			}
			conn.put(http2.ClientPreface + frames(func(f *http2.Framer, block []byte, _ string) {
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndHeaders: true, EndStream: true})
			}, path, "GET", ""))
		}})
	}
	return rows
}

// frames returns SETTINGS and what a function writes of a request.
func frames(to func(f *http2.Framer, block []byte, body string), path, method, body string) string {
	var out, block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", method}, {":scheme", "http"}, {":path", path}, {":authority", "a"}, {"x-filler", "some text"}} {
		enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	f := http2.NewFramer(&out, nil)
	f.WriteSettings()
	to(f, block.Bytes(), body)
	return out.String()
}
