package control

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/gateway/config"
)

const explained = `
listeners:
- {name: plain, address: "198.18.0.1:80", protocol: HTTP}
- {name: other, address: "198.18.0.2:80", protocol: HTTP}
- {name: secure, address: "198.18.0.5:8443", protocol: HTTPS, tls: {certificates: [{cert: c}]}}
- {name: tls, address: "198.18.0.3:443", protocol: TLS}
- {name: db, address: "198.18.0.3:5432", protocol: TCP}
routes:
- name: shop
  listeners: [plain, secure]
  hostnames: [shop.example, "*.shop.example"]
  rules:
  - name: api
    matches:
    - {path: {value: /api}, method: POST}
    - {path: {value: /api}, headers: [{name: x-a, value: "1"}], query_params: [{name: q, value: "2"}]}
    backend_refs: [{name: p, weight: 3}, {name: q}]
  - matches: [{path: {value: /api}, clients: [192.0.2.0/24]}]
    filters: [{type: RequestRedirect, hostname: elsewhere.example, status_code: 308}]
  - matches: [{path: {value: /api}, sni: shop.example, ja4: t13d1516h2_8daaf6152771_e5627efa2ab1}]
    backend_refs: [{name: q}]
tls_routes: [{name: mail, hostnames: mail.example, backend_refs: [{name: t}]}]
tcp_routes: [{name: db, backend_refs: [{name: t}]}]
pools:
- {name: p, backends: [{address: "198.18.1.1:80"}]}
- {name: q, backends: [{address: "198.18.1.2:80"}]}
- {name: t, protocol: TCP, backends: [{address: "198.18.1.3:80"}]}
`

func TestExplainSaysWhichRuleMatchesAndWhyOthersDoNot(t *testing.T) {
	cfg, err := config.Parse("f", []byte(explained))
	if err != nil {
		t.Fatal(err)
	}
	tried := func(list ...string) (out []TriedRule) {
		for i := 0; i < len(list); i += 2 {
			out = append(out, TriedRule{list[i], list[i+1]})
		}
		return out
	}
	p, q, only := PoolShare{"p", 75}, PoolShare{"q", 25}, []PoolShare{{"t", 100}}
	for _, c := range []struct {
		query Query
		want  Explanation
	}{
		{
			Query{URL: "http://shop.example/api/x", Method: "POST", Listener: "plain"},
			Explanation{Listener: "plain", Path: "/api/x", Route: "shop", Rule: "api", Match: 1, Pools: []PoolShare{p, q}},
		},
		{
			Query{URL: "http://A.Shop.example/b/../api?q=2", Headers: []Field{{Name: "x-a", Value: "1"}}, Listener: "plain"},
			Explanation{
				Listener: "plain", Host: "a.shop.example", Path: "/api", Route: "shop", Rule: "api", Match: 2, Pools: []PoolShare{p, q},
				Tried: tried("shop/api, match 1", "method"),
			},
		},
		{
			Query{URL: "http://shop.example/api?q=3", Headers: []Field{{Name: "x-a", Value: "1"}}, Client: netip.MustParseAddr("192.0.2.9"), Listener: "plain"},
			Explanation{
				Listener: "plain", Path: "/api", Route: "shop", Rule: "2", Match: 1, Status: 308,
				Tried: tried("shop/api, match 1", "method", "shop/api, match 2", "query q", "shop/3", "sni"),
			},
		},
		{
			Query{URL: "http://shop.example/api", SNI: "shop.example", Listener: "plain"},
			Explanation{
				Listener: "plain", Path: "/api",
				Tried: tried("shop/api, match 1", "method", "shop/api, match 2", "field x-a", "shop/3", "ja4", "shop/2", "clients"),
			},
		},
		{Query{URL: "http://other.example/", Listener: "plain"}, Explanation{Listener: "plain", Host: "other.example", Path: "/", OtherHost: true}},
		{Query{URL: "http://198.18.0.1/api"}, Explanation{Listener: "plain", Host: "198.18.0.1", Path: "/api", OtherHost: true}},
		{Query{URL: "http://shop.example/api", Method: "POST", Listener: "other"}, Explanation{Listener: "other", Path: "/api", OtherHost: true}}, // the route is not for it
		{Query{URL: "tls://mail.example"}, Explanation{Listener: "tls", Host: "mail.example", Path: "/", Route: "mail", Pools: only}},
		{Query{URL: "tls://web.example"}, Explanation{Listener: "tls", Host: "web.example", Path: "/", OtherHost: true}},
		{Query{URL: "tcp://198.18.0.3:5432"}, Explanation{Listener: "db", Host: "198.18.0.3", Path: "/", Route: "db", Pools: only}},
	} {
		got, err := Explain(cfg, c.query)
		if err != nil {
			t.Errorf("%+v: %v", c.query, err)
			continue
		}
		if c.want.Host == "" {
			c.want.Host = "shop.example"
		}
		if diff := cmp.Diff(c.want, *got, cmpopts.IgnoreFields(Explanation{}, "Rules", "Others"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%+v: %s", c.query, diff)
		}
	}
	for _, c := range []struct {
		query Query
		part  string
	}{
		{Query{URL: "shop.example"}, "write such as"},
		{Query{URL: "ftp://shop.example/"}, "scheme"},
		{Query{URL: "http://shop.example/"}, "name one of plain, other"},
		{Query{URL: "https://shop.example/"}, "no listener has protocol HTTPS and port 443"},
		{Query{URL: "http://shop.example:81/"}, "port 81"},
		{Query{URL: "http://shop.example/", Listener: "plan"}, `did you mean "plain"?`},
		{Query{URL: "http://shop.example/../x", Listener: "plain"}, "400"},
	} {
		if _, err := Explain(cfg, c.query); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%+v: %v", c.query, err)
		}
	}
}

const explainedGuards = `
listeners:
- name: web
  address: "198.18.0.1:80"
  protocol: HTTP
  limits: {target_bytes: 256, header_fields: 8, body_bytes: 9}
  sources: {deny: [192.0.2.0/24, 192.0.2.200/32], allow: [192.0.2.128/25]}
  rate_limits: [all]
- {name: db, address: "198.18.0.1:5432", protocol: TCP, sources: {default: deny, allow: [192.0.2.0/24]}}
- {name: filed, address: "198.18.0.1:81", protocol: HTTP, sources: {deny: [bad.prefixes]}}
rate_limits: [{name: all, requests: 5}, {name: login, requests: 1}]
routes:
- {name: closed, listeners: [web], hostnames: [closed.example], maintenance: {allow: [198.18.9.0/24]}, rules: [{backend_refs: [{name: p}]}]}
- name: inside
  listeners: [web]
  hostnames: [inside.example]
  sources: {default: deny, allow: [198.18.9.0/24]}
  rate_limits: [login]
  concurrency: {requests: 1}
  limits: {body_bytes: 5}
  auth: {basic: {file: users}}
  rules: [{backend_refs: [{name: p}]}]
- {name: all, rules: [{backend_refs: [{name: p}]}]}
tcp_routes: [{name: db, backend_refs: [{name: t}]}]
pools:
- {name: p, backends: [{address: "198.18.1.1:80"}]}
- {name: t, protocol: TCP, backends: [{address: "198.18.1.3:80"}]}
inspection: {policies: [{name: edge, mode: prevent, listeners: [web], rules: [r.rules]}]}
`

// What refuses a request is named with its key, and so is what may.
func TestExplainNamesWhatRefuses(t *testing.T) {
	cfg, err := config.Parse("f", []byte(explainedGuards))
	if err != nil {
		t.Fatal(err)
	}
	of := []string{"rate limit all of listener web", "limits.body_bytes of listener web", "inspection policy edge of listener web"}
	from := netip.MustParseAddr
	many := slices.Repeat([]Field{{"a", ""}}, 8)
	for _, c := range []struct {
		query Query
		want  *Refusal
		may   []string
	}{
		{Query{URL: "http://x.example/", Client: from("198.18.9.1")}, nil, of},
		{Query{URL: "http://x.example/", Client: from("192.0.2.1")}, &Refusal{403, "sources of listener web"}, of},
		{Query{URL: "http://x.example/", Client: from("::ffff:192.0.2.1")}, &Refusal{403, "sources of listener web"}, of},
		{Query{URL: "http://x.example/", Client: from("192.0.2.129")}, nil, of},
		{Query{URL: "http://x.example/", Client: from("192.0.2.200")}, &Refusal{403, "sources of listener web"}, of},
		{Query{URL: "http://x.example/"}, nil, append([]string{"sources of listener web"}, of...)},
		{Query{URL: "http://x.example/" + strings.Repeat("a", 256), Client: from("198.18.9.1")}, &Refusal{414, "limits.target_bytes of listener web"}, of},
		{Query{URL: "http://x.example/" + strings.Repeat("a", 255), Client: from("198.18.9.1"), Headers: many[:7]}, nil, of},
		{Query{URL: "http://x.example/", Client: from("198.18.9.1"), Headers: many}, &Refusal{431, "limits.header_fields of listener web"}, of},
		{Query{URL: "http://x.example/", Method: "CONNECT", Client: from("192.0.2.1")}, &Refusal{405, "the method CONNECT, which is for WebSockets alone, of listener web"}, of},
		{Query{URL: "http://closed.example/", Client: from("198.18.8.1")}, &Refusal{503, "maintenance of route closed"}, of},
		{Query{URL: "http://closed.example/", Client: from("198.18.9.1")}, nil, of},
		{
			Query{URL: "http://inside.example/", Client: from("198.18.9.1")},
			nil,
			append(of[:3:3], "limits.body_bytes of route inside", "rate limit login of route inside", "auth.basic of route inside", "concurrency of route inside"),
		},
		{
			Query{URL: "http://inside.example/", Client: from("198.18.8.1")},
			&Refusal{403, "sources of route inside"},
			append(of[:3:3], "limits.body_bytes of route inside", "rate limit login of route inside", "auth.basic of route inside", "concurrency of route inside"),
		},
		{Query{URL: "tcp://198.18.0.1:5432", Client: from("198.18.9.1")}, &Refusal{0, "sources of listener db"}, nil},
		{Query{URL: "tcp://198.18.0.1:5432", Client: from("192.0.2.1")}, nil, nil},
		{Query{URL: "http://x.example:81/", Client: from("198.18.9.1")}, nil, []string{"sources of listener filed"}},
	} {
		got, err := Explain(cfg, c.query)
		if err != nil {
			t.Errorf("%+v: %v", c.query, err)
			continue
		}
		if diff := cmp.Diff(c.want, got.Refused) + cmp.Diff(c.may, got.Limits); diff != "" || got.Route == "" {
			t.Errorf("%+v: route %q: %s", c.query, got.Route, diff)
		}
	}
}
