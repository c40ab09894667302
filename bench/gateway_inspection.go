package main

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/webpeer"
)

// inspectedRules is the number of rules of the row on inspection: about as many as ET-open has on requests of web servers.
const inspectedRules = 2000

// requestRules are rules on buffers of requests and responses, none of which the load matches.
func requestRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "drop http any any -> any any (msg:\"rule %d\"; flow:established,", i)
		switch i % 10 {
		case 0, 1, 2, 3:
			fmt.Fprintf(&b, `to_server; http.method; content:"GET"; http.uri; content:"/app-%d/admin.php"; nocase; content:"cmd="; distance:0; `, i)
		case 4, 5:
			fmt.Fprintf(&b, `to_server; http.header; content:"X-Probe-%d|3a| "; `, i)
		case 6:
			fmt.Fprintf(&b, `to_server; http.user_agent; content:"scanner-%d"; startswith; `, i)
		case 7:
			fmt.Fprintf(&b, `to_server; http.uri; content:"/cgi-%d/"; pcre:"/\/cgi-%d\/[a-z]{3,9}\.(?:pl|sh)/"; `, i, i)
		case 8:
			fmt.Fprintf(&b, `to_server; http.request_body; content:"payload-%d="; `, i)
		case 9:
			fmt.Fprintf(&b, `to_client; file.data; content:"<iframe id=%d"; `, i)
		}
		fmt.Fprintf(&b, "sid:%d;)\n", i+1)
	}
	return b.String()
}

// inspection asks what rules on requests cost: of requests without content, and of those whose responses are searched.
func (b *gatewayBench) inspection() (all []harness.Measure) {
	for _, size := range []int{128, 16 << 10} {
		with := fmt.Sprintf("%s, %d rules", ours, inspectedRules)
		m := harness.Measure{Name: fmt.Sprintf("inspection of requests, responses of %d B", size), Unit: "request", Peer: ours}
		w := webRow{name: m.Name, count: "requests", port: webPort, conns: 32, size: size, op: webpeer.OpGet}
		m.Contestants = append(m.Contestants, b.contestant(ours, ours, webConfig{}, w), b.contestant(with, ours, webConfig{rules: inspectedRules}, w))
		all = append(all, m)
	}
	return all
}
