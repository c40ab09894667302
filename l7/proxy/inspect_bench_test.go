package proxy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/internal/testkit/memtransport"
)

// manyRules are rules on buffers of requests and responses, none of which the requests of benchmarks match.
func manyRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "drop http any any -> any any (flow:established,to_server; %s sid:%d;)\n", []string{
			fmt.Sprintf(`http.method; content:"GET"; http.uri; content:"/app-%d/admin.php"; nocase; content:"cmd="; distance:0;`, i),
			fmt.Sprintf(`http.header; content:"X-Probe-%d|3a| ";`, i),
			fmt.Sprintf(`http.user_agent; content:"scanner-%d"; startswith;`, i),
			fmt.Sprintf(`http.uri; content:"/cgi-%d/"; pcre:"/\/cgi-%d\/[a-z]{3,9}\.(?:pl|sh)/";`, i, i),
			fmt.Sprintf(`http.request_body; content:"payload-%d=";`, i),
		}[i%5], i+1)
	}
	return b.String()
}

// BenchmarkInspectedRequest is BenchmarkRequest of HTTP/1.1 at a listener whose policy has so many rules; "responses" has a rule on their
// content too.
func BenchmarkInspectedRequest(b *testing.B) {
	request := []byte("GET /bytes/128 HTTP/1.1\r\nhost: bench.example\r\nuser-agent: bench\r\naccept: */*\r\n\r\n")
	for _, c := range []struct{ name, rules string }{
		{"1 rule", manyRules(1)},
		{"2000 rules", manyRules(2000)},
		{"2000 rules, responses", manyRules(2000) + `drop http any any -> any any (flow:to_client; http.response_body; content:"secret"; sid:9999;)` + "\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newInspectRig(b, inspect.Prevent, 1<<16, c.rules)
			r.worker.OnRecord(nil)
			r.backend = func(p *memtransport.Peer) {
				p.Handler = func(p *memtransport.Peer) {
					for range bytes.Count(p.Take(), []byte("\r\n\r\n")) {
						p.Write(benchResponse)
					}
				}
			}
			var clients []*memtransport.Peer
			for range benchClients {
				clients = append(clients, r.connect(memHTTP1))
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				c := clients[n%benchClients]
				c.Write(request)
				if n%benchClients == benchClients-1 {
					r.run()
					for _, c := range clients {
						if got := c.Take(); !bytes.HasSuffix(got, benchResponse[len(benchResponse)-128:]) {
							b.Fatalf("%q", got)
						}
					}
				}
			}
		})
	}
}

// BenchmarkInspectedContent is BenchmarkInspectedRequest with content of 16 KiB, in a response that rules search.
func BenchmarkInspectedContent(b *testing.B) {
	request := []byte("GET /bytes/16384 HTTP/1.1\r\nhost: bench.example\r\nuser-agent: bench\r\naccept: */*\r\n\r\n")
	var content strings.Builder
	for i := 0; content.Len() < 16384; i++ {
		fmt.Fprintf(&content, "<p>Line %d of a page, with words as they are in text.</p>\n", i)
	}
	text := content.String()[:16384]
	response := []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nserver: bench\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n", len(text)) + text)
	rules := manyRules(1000)
	for i := range 1000 {
		rules += fmt.Sprintf("drop http any any -> any any (flow:established,to_client; file_data; content:\"secret-%d-%x\"; sid:%d;)\n", i, i*7919, 5000+i)
	}
	for name, list := range map[string]string{"requests": manyRules(1000), "responses": rules} {
		b.Run(name, func(b *testing.B) {
			r := newInspectRig(b, inspect.Prevent, 1<<16, list)
			r.worker.OnRecord(nil)
			r.backend = func(p *memtransport.Peer) {
				p.Handler = func(p *memtransport.Peer) {
					for range bytes.Count(p.Take(), []byte("\r\n\r\n")) {
						p.Write(response)
					}
				}
			}
			c := r.connect(memHTTP1)
			b.ReportAllocs()
			for b.Loop() {
				c.Write(request)
				r.run()
				if got := c.Take(); len(got) < len(text) {
					b.Fatalf("%d bytes", len(got))
				}
			}
		})
	}
}
