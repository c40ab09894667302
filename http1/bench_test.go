package http1

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"

	"github.com/millrace/millrace/semantics"
)

// browser is what a browser sends for a page.
const browser = "GET /catalogue/items/4711?page=2&sort=price HTTP/1.1\r\nHost: shop.example.org\r\nConnection: keep-alive\r\n" +
	"sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\n" +
	"Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\nSec-Fetch-Site: same-origin\r\n" +
	"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\nReferer: https://shop.example.org/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n" +
	"Accept-Language: en-GB,en;q=0.9\r\nCookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n"

const short = "GET / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n"

func BenchmarkRequest(b *testing.B) {
	for _, in := range []struct{ name, text string }{{"browser", browser}, {"short", short}} {
		b.Run(in.name, func(b *testing.B) {
			m, p, out := server(), []byte(in.text), []byte(nil)
			answer := &semantics.Message{Status: 200, ContentLength: 128}
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				_, n, _ := m.Input(p, false)
				_, _, _ = m.Input(p[n:], false)
				if m.sending = (sending{}); !m.request.open {
					b.Fatal("no request")
				}
				out, _ = m.AppendResponse(out[:0], answer, false)
				m.sending, m.request.open = sending{}, false
			}
		})
		b.Run(in.name+"/net-http", func(b *testing.B) {
			p := []byte(in.text)
			r := bytes.NewReader(p)
			br := bufio.NewReader(r)
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(p)
				br.Reset(r)
				if _, err := http.ReadRequest(br); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkForward(b *testing.B) {
	s, c, p := server(), NewMachine(RoleClient, Options{}), []byte(browser)
	if ev, _, err := s.Input(p, false); ev.Kind != Headers || err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		c.request.open = false
		out, _ = c.AppendRequest(out[:0], &s.Message().Message, true)
	}
}
