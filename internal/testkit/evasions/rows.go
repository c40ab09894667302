package evasions

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// DecodedBody decodes a body as a program does that trusts the bytes more than their label.
func DecodedBody(codings string, body []byte) string {
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

// Packed returns a text in a coding.
func Packed(coding, text string) string {
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if coding == "deflate" {
		w = zlib.NewWriter(&b)
	}
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

// Letters cuts a text into parts of a size.
func Letters(text string, size int) (parts []string) {
	for len(text) > size {
		parts, text = append(parts, text[:size]), text[size:]
	}
	return append(parts, text)
}

// HTTP returns the rows of HTTP/1.1 and those of HTTP2.
func HTTP() (rows []Row) {
	add := func(name string, at Server, text string, parts ...string) {
		rows = append(rows, Row{Name: "HTTP: " + name, Server: at, Text: text, Send: func(c *Conn) { c.Put(parts...) }})
	}
	const end = " HTTP/1.1\r\nHost: a\r\n\r\n"
	for i, at := range []Server{Web, Nginx} {
		path := func(n int) string { return fmt.Sprintf("/evil-%d-%d", i, n) }
		add("plain", at, path(1), "GET "+path(1)+end)
		add("single letters", at, path(2), Letters("GET "+path(2)+end, 1)...)
		add("an escaped letter", at, path(3), "GET "+strings.Replace(path(3), "v", "%76", 1)+end)
		add("segments of dots", at, path(4), "GET /a/.."+path(4)+end)
		add("absolute form", at, path(5), "GET http://a"+path(5)+end)
		add("an unknown method", at, path(6), "FETCH "+path(6)+end)
		add("empty lines first", at, path(7), "\r\n\r\nGET "+path(7)+end)
		add("no version", at, path(8), "GET "+path(8)+"\r\n")
		add("no version, in letters", at, path(9), Letters("GET "+path(9)+"\r\n", 1)...)
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
		rows = append(rows, Row{Name: "HTTP: an urgent byte", Server: at, Text: path(21), Send: func(c *Conn) {
			c.Put("GET /ev")
			c.Urgent('X')
			c.Put(path(21)[3:] + end)
		}})
	}
	for _, size := range []int{1, 7, 10000} {
		text := fmt.Sprintf("%d%s evilbody", size, strings.Repeat("x", 100))
		for _, c := range []struct{ name, codings, body string }{
			{"plain", "", text},
			{"gzip", "gzip", Packed("gzip", text)},
			{"deflate", "deflate", Packed("deflate", text)},
			{"gzip twice", "gzip, gzip", Packed("gzip", Packed("gzip", text))},
			{"a list", "deflate, gzip", Packed("gzip", Packed("deflate", text))},
			{"a label that is wrong", "gzip", text},
			{"an unknown coding before", "foo, gzip", Packed("gzip", text)},
			{"an unknown coding behind", "gzip, foo", Packed("gzip", text)},
		} {
			marked := strings.Replace(c.name, " ", "-", -1)
			body := c.body
			head := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: a\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n", marked, c.codings, len(body))
			add(fmt.Sprintf("body, %s, in %d bytes", c.name, size), Web, "body "+text, append([]string{head}, Letters(body, size)...)...)
		}
	}
	return append(rows, HTTP2()...)
}

// HTTP2 returns the rows of HTTP/2 without TLS.
func HTTP2() (rows []Row) {
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
			rows = append(rows, Row{Name: "HTTP/2: " + c.name, Server: Web, Text: path, Send: func(conn *Conn) {
				conn.Put(Letters(http2.ClientPreface+frames(c.to, path, "GET", ""), size)...)
			}})
		}
	}
	for n, pad := range []int{0, 30} {
		text := fmt.Sprintf("body of HTTP/2 %d %s evilbody", n, strings.Repeat("y", 50))
		rows = append(rows, Row{Name: "HTTP/2: body", Server: Web, Text: text, Send: func(conn *Conn) {
			conn.Put(http2.ClientPreface + frames(func(f *http2.Framer, block []byte, body string) {
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true})
				for i, part := range Letters(body, 9) {
					f.WriteDataPadded(1, (i+1)*9 >= len(body), []byte(part), make([]byte, pad))
				}
			}, "/fine", "POST", text))
		}})
	}
	const upgrade = "GET /fine HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
	for n, wait := range []bool{true, false} {
		path := fmt.Sprintf("/evil-upgrade-%d", n)
		rows = append(rows, Row{Name: "HTTP/2: Upgrade", Server: Web, Text: path, Send: func(conn *Conn) {
			conn.Put(upgrade)
			if wait {
				if got := conn.Answered(); strings.Contains(got, " 101 ") != conn.Upgrades {
					conn.T.Errorf("Upgrade is answered with %q", got)
				}
			}
			conn.Put(http2.ClientPreface + frames(func(f *http2.Framer, block []byte, _ string) {
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
