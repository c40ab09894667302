package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// apiSuite is a conformance test of Gateway API v1 (conformance/tests of its repository): its rules in our file, its requests, and
// what has to come of them. HTTPRouteHostnames is what HTTPRouteHostnameIntersection asks without hostnames of listeners,
// HTTPRouteRedirects the cases of HTTPRouteRedirectPath, -Port, -Scheme, -PortAndScheme and -303, -307 and -308.
type apiSuite struct {
	name   string
	routes string
	cases  []apiCase
}

// apiCase is a request, "METHOD host path name=value ...", and what is expected of it:
//
//	404                      a status
//	302 http://host/path     a status and the Location field; ADDR is the listener's address
//	v1 path=/x name=value    the backend, and what it gets: "host", "path", lines of a field joined by commas, "-name": absent
//	v1 <name=value <-name    the same of the response
type apiCase struct{ request, want string }

// echo is a backend that answers with what it got, with the fields that the request's echo-set names.
func echo(t *testing.T, name string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, pair := range strings.Split(r.Header.Get("Echo-Set"), ";") {
			if k, v, ok := strings.Cut(pair, ":"); ok {
				w.Header().Add(k, v)
			}
		}
		got := map[string]string{"backend": name, "host": r.Host, "path": r.URL.RequestURI()}
		for k, v := range r.Header {
			got[strings.ToLower(k)] = strings.Join(v, ",")
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(got)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

const apiListener = `
admin: {socket: SOCKET}
loops: 1
listeners: [{name: web, address: "LISTEN", protocol: HTTP}]
routes:
`

func TestGatewayAPIConformance(t *testing.T) {
	pools := "pools:\n"
	for _, name := range []string{"v1", "v2", "v3"} {
		pools += "- {name: " + name + ", backends: [{address: \"" + echo(t, name) + "\"}]}\n"
	}
	for _, suite := range apiSuites {
		t.Run(suite.name, func(t *testing.T) {
			s := newSite(t, apiListener+suite.routes+pools)
			for _, c := range suite.cases {
				s.checkAPI(c)
			}
		})
	}
}

func (s *site) checkAPI(c apiCase) {
	s.t.Helper()
	words := strings.Fields(c.request)
	req, err := http.NewRequest(words[0], "http://"+s.addr+words[2], nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if req.Host = words[1]; words[1] == "-" {
		req.Host = s.addr
	}
	for _, w := range words[3:] {
		k, v, _ := strings.Cut(w, "=")
		req.Header.Set(k, v)
	}
	resp, err := s.client.Transport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	want := strings.Fields(strings.ReplaceAll(c.want, "ADDR", s.addr))
	if want[0][0] != 'v' {
		if resp.Status[:3] != want[0] || len(want) > 1 && resp.Header.Get("Location") != want[1] {
			s.t.Errorf("%s: %s, %q, want %v", c.request, resp.Status, resp.Header.Get("Location"), want)
		}
		return
	}
	got := map[string]string{}
	if req.Method == "HEAD" || json.Unmarshal(body, &got) != nil || got["backend"] != want[0] {
		s.t.Errorf("%s: %s %s, want %v", c.request, resp.Status, body, want)
		return
	}
	for k, v := range resp.Header {
		got["<"+strings.ToLower(k)] = strings.Join(v, ",")
	}
	for _, w := range want[1:] {
		k, v, present := strings.Cut(w, "=")
		if !present {
			k = strings.Replace(k, "-", "", 1)
		}
		if has, ok := got[k]; ok != present || has != v {
			s.t.Errorf("%s: %s is %q, want %s", c.request, k, has, w)
		}
	}
}

// modified is what the header modifiers of several suites leave.
const modified = "x-header-add=header-val-1 x-header-add-append=append-val-1,header-val-2 x-header-set=set-overwrites-values -x-header-remove"

var apiSuites = []apiSuite{
	{
		"HTTPRouteMatching", `
- name: m
  rules:
  - {matches: [{path: {value: /}}, {headers: [{name: version, value: one}]}], backend_refs: [{name: v1}]}
  - {matches: [{path: {value: /v2}}, {headers: [{name: version, value: two}]}], backend_refs: [{name: v2}]}
`, []apiCase{
			{"GET - /", "v1"},
			{"GET - /example", "v1"},
			{"GET - / Version=one", "v1"},
			{"GET - /v2", "v2"},
			{"GET - /v2/example", "v2"},
			{"GET - / Version=two", "v2"},
			{"GET - /v2/", "v2"},
			{"GET - /v2example", "v1"},
			{"GET - /foo/v2/example", "v1"},
		},
	},
	{
		"HTTPRouteMatchingAcrossRoutes", `
- name: one
  hostnames: [example.com, example.net]
  rules:
  - {matches: [{path: {value: /}}, {headers: [{name: version, value: one}]}], backend_refs: [{name: v1}]}
- name: two
  hostnames: [example.com]
  rules:
  - {matches: [{path: {value: /v2}}, {headers: [{name: version, value: two}]}], backend_refs: [{name: v2}]}
`, []apiCase{
			{"GET example.com /", "v1"},
			{"GET example.com /example", "v1"},
			{"GET example.net /example", "v1"},
			{"GET example.com /example Version=one", "v1"},
			{"GET example.com /v2", "v2"},
			{"GET example.net /v2", "v1"},
			{"GET example.com /v2/example", "v2"},
			{"GET example.com / Version=two", "v2"},
		},
	},
	{
		"HTTPRoutePathMatchOrder", `
- name: o
  rules:
  - {matches: [{path: {type: Exact, value: /match}}], backend_refs: [{name: v1}]}
  - {matches: [{path: {type: Exact, value: /match/exact}}], backend_refs: [{name: v2}]}
  - {matches: [{path: {type: Exact, value: /match/exact/one}}], backend_refs: [{name: v3}]}
  - {matches: [{path: {value: /match/}}], backend_refs: [{name: v3}]}
  - {matches: [{path: {value: /match/prefix/}}], backend_refs: [{name: v1}]}
  - {matches: [{path: {value: /match/prefix/one}}], backend_refs: [{name: v2}]}
`, []apiCase{
			{"GET - /match/exact/one", "v3"},
			{"GET - /match/exact", "v2"},
			{"GET - /match", "v1"},
			{"GET - /match/prefix/one/any", "v2"},
			{"GET - /match/prefix/any", "v1"},
			{"GET - /match/any", "v3"},
		},
	},
	{
		"HTTPRouteMethodMatching", `
- name: m
  rules:
  - {matches: [{method: POST}], backend_refs: [{name: v1}]}
  - {matches: [{method: GET}], backend_refs: [{name: v2}]}
  - {matches: [{path: {value: /path1}, method: GET}], backend_refs: [{name: v1}]}
  - {matches: [{headers: [{name: version, value: one}], method: PUT}], backend_refs: [{name: v2}]}
  - {matches: [{path: {value: /path2}, headers: [{name: version, value: two}], method: POST}], backend_refs: [{name: v3}]}
  - matches: [{path: {value: /path3}, method: PATCH}, {path: {value: /path4}, headers: [{name: version, value: three}], method: DELETE}]
    backend_refs: [{name: v1}]
  - {matches: [{path: {value: /path5}}], backend_refs: [{name: v1}]}
  - {matches: [{method: PATCH}], backend_refs: [{name: v2}]}
  - {matches: [{headers: [{name: version, value: four}]}], backend_refs: [{name: v3}]}
`, []apiCase{
			{"POST - /", "v1"},
			{"GET - /", "v2"},
			{"HEAD - /", "404"},
			{"GET - /path1", "v1"},
			{"PUT - / version=one", "v2"},
			{"POST - /path2 version=two", "v3"},
			{"PATCH - /path3", "v1"},
			{"DELETE - /path4 version=three", "v1"},
			{"PUT - /", "404"},
			{"DELETE - /path4", "404"},
			{"PATCH - /path5", "v1"},
			{"PATCH - / version=four", "v2"},
		},
	},
	{
		"HTTPRouteQueryParamMatching", `
- name: q
  rules:
  - {matches: [{query_params: [{name: animal, value: whale}]}], backend_refs: [{name: v1}]}
  - {matches: [{query_params: [{name: animal, value: dolphin}]}], backend_refs: [{name: v2}]}
  - matches: [{query_params: [{name: animal, value: dolphin}, {name: color, value: blue}]}, {query_params: [{name: ANIMAL, value: Whale}]}]
    backend_refs: [{name: v3}]
  - {matches: [{path: {value: /path1}, query_params: [{name: animal, value: whale}]}], backend_refs: [{name: v1}]}
  - {matches: [{headers: [{name: version, value: one}], query_params: [{name: animal, value: whale}]}], backend_refs: [{name: v2}]}
  - matches: [{path: {value: /path2}, headers: [{name: version, value: two}], query_params: [{name: animal, value: whale}]}]
    backend_refs: [{name: v3}]
  - matches:
    - {path: {value: /path3}, query_params: [{name: animal, value: shark}]}
    - {path: {value: /path4}, headers: [{name: version, value: three}], query_params: [{name: animal, value: kraken}]}
    backend_refs: [{name: v1}]
`, []apiCase{
			{"GET - /?animal=whale", "v1"},
			{"GET - /?animal=dolphin", "v2"},
			{"GET - /?animal=dolphin&color=blue", "v3"},
			{"GET - /?ANIMAL=Whale", "v3"},
			{"GET - /?animal=whale&otherparam=irrelevant", "v1"},
			{"GET - /?animal=dolphin&color=yellow", "v2"},
			{"GET - /?color=blue", "404"},
			{"GET - /?animal=dog", "404"},
			{"GET - /?animal=whaledolphin", "404"},
			{"GET - /", "404"},
			{"GET - /path1?animal=whale", "v1"},
			{"GET - /?animal=whale version=one", "v2"},
			{"GET - /path2?animal=whale version=two", "v3"},
			{"GET - /path3?animal=shark", "v1"},
			{"GET - /path4?animal=kraken version=three", "v1"},
			{"GET - /?animal=shark", "404"},
			{"GET - /path4?animal=kraken", "404"},
		},
	},
	{
		"HTTPRouteHeaderMatching", `
- name: h
  rules:
  - {matches: [{headers: [{name: version, value: one}]}], backend_refs: [{name: v1}]}
  - {matches: [{headers: [{name: version, value: two}]}], backend_refs: [{name: v2}]}
  - {matches: [{headers: [{name: version, value: two}, {name: color, value: orange}]}], backend_refs: [{name: v1}]}
  - {matches: [{headers: [{name: color, value: blue}]}, {headers: [{name: color, value: green}]}], backend_refs: [{name: v1}]}
  - {matches: [{headers: [{name: color, value: red}]}, {headers: [{name: color, value: yellow}]}], backend_refs: [{name: v2}]}
`, []apiCase{
			{"GET - / Version=one", "v1"},
			{"GET - / Version=two", "v2"},
			{"GET - / Version=two Color=orange", "v1"},
			{"GET - / Version=two Color=blue", "v2"},
			{"GET - / Color=orange", "404"},
			{"GET - / Some-Other-Header=one", "404"},
			{"GET - / Color=blue", "v1"},
			{"GET - / Color=green", "v1"},
			{"GET - / Color=red", "v2"},
			{"GET - / Color=yellow", "v2"},
			{"GET - / Color=purple", "404"},
		},
	},
	{
		"HTTPRouteExactPathMatching", `
- name: e
  rules:
  - {matches: [{path: {type: Exact, value: /one}}], backend_refs: [{name: v1}]}
  - {matches: [{path: {type: Exact, value: /two}}], backend_refs: [{name: v2}]}
`, []apiCase{
			{"GET - /one", "v1"}, {"GET - /two", "v2"}, {"GET - /", "404"}, {"GET - /one/example", "404"}, {"GET - /two/", "404"}, {"GET - /Two", "404"},
		},
	},
	{
		"HTTPRouteHostnames", `
- {name: s1, hostnames: [very.specific.com], rules: [{matches: [{path: {value: /s1}}], backend_refs: [{name: v1}]}]}
- {name: s2, hostnames: [foo.wildcard.io, bar.wildcard.io, foo.bar.wildcard.io], rules: [{matches: [{path: {value: /s2}}], backend_refs: [{name: v2}]}]}
- {name: s4, hostnames: ["*.anotherwildcard.io"], rules: [{matches: [{path: {value: /s4}}], backend_refs: [{name: v1}]}]}
`, []apiCase{
			{"GET very.specific.com /s1", "v1"},
			{"GET very.specific.com:1234 /s1", "v1"},
			{"GET non.matching.com /s1", "404"},
			{"GET foo.nonmatchingwildcard.io /s1", "404"},
			{"GET foo.wildcard.io /s1", "404"},
			{"GET very.specific.com /non-matching-prefix", "404"},
			{"GET foo.wildcard.io /s2", "v2"},
			{"GET bar.wildcard.io /s2", "v2"},
			{"GET foo.bar.wildcard.io /s2", "v2"},
			{"GET non.matching.com /s2", "404"},
			{"GET wildcard.io /s2", "404"},
			{"GET very.specific.com /s2", "404"},
			{"GET foo.wildcard.io /non-matching-prefix", "404"},
			{"GET foo.anotherwildcard.io /s4", "v1"},
			{"GET bar.anotherwildcard.io /s4", "v1"},
			{"GET foo.bar.anotherwildcard.io /s4", "v1"},
			{"GET anotherwildcard.io /s4", "404"},
			{"GET foo.wildcard.io /s4", "404"},
			{"GET very.specific.com /s4", "404"},
			{"GET foo.anotherwildcard.io /non-matching-prefix", "404"},
		},
	},
	{
		"HTTPRouteRewritePath", `
- name: r
  rules:
  - matches: [{path: {value: /prefix/one}}]
    filters: [{type: URLRewrite, path: {type: ReplacePrefixMatch, value: /one}}]
    backend_refs: [{name: v1}]
  - matches: [{path: {value: /strip-prefix}}]
    filters: [{type: URLRewrite, path: {type: ReplacePrefixMatch, value: /}}]
    backend_refs: [{name: v1}]
  - matches: [{path: {value: /full/one}}]
    filters: [{type: URLRewrite, path: {type: ReplaceFullPath, value: /one}}]
    backend_refs: [{name: v1}]
  - matches: [{path: {value: /full/rewrite-path-and-modify-headers}}]
    filters:
    - {type: URLRewrite, path: {type: ReplaceFullPath, value: /test}}
    - &modifier
      type: RequestHeaderModifier
      set: [{name: X-Header-Set, value: set-overwrites-values}]
      add: [{name: X-Header-Add, value: header-val-1}, {name: X-Header-Add-Append, value: header-val-2}]
      remove: [X-Header-Remove]
    backend_refs: [{name: v1}]
  - matches: [{path: {value: /prefix/rewrite-path-and-modify-headers}}]
    filters:
    - {type: URLRewrite, path: {type: ReplacePrefixMatch, value: /prefix}}
    - *modifier
    backend_refs: [{name: v1}]
`, []apiCase{
			{"GET - /prefix/one/two", "v1 path=/one/two"},
			{"GET - /strip-prefix/three", "v1 path=/three"},
			{"GET - /strip-prefix", "v1 path=/"},
			{"GET - /full/one/two", "v1 path=/one"},
			{
				"GET - /full/rewrite-path-and-modify-headers/test X-Header-Remove=remove-val X-Header-Add-Append=append-val-1 X-Header-Set=set-val",
				"v1 path=/test " + modified,
			},
			{
				"GET - /prefix/rewrite-path-and-modify-headers/one X-Header-Remove=remove-val X-Header-Add-Append=append-val-1 X-Header-Set=set-val",
				"v1 path=/prefix/one " + modified,
			},
		},
	},
	{
		"HTTPRouteRewriteHost", `
- name: r
  hostnames: [rewrite.example]
  rules:
  - {matches: [{path: {value: /one}}], filters: [{type: URLRewrite, hostname: one.example.org}], backend_refs: [{name: v1}]}
  - {filters: [{type: URLRewrite, hostname: example.org}], backend_refs: [{name: v2}]}
  - matches: [{path: {value: /rewrite-host-and-modify-headers}}]
    filters:
    - {type: URLRewrite, hostname: test.example.org}
    - type: RequestHeaderModifier
      set: [{name: X-Header-Set, value: set-overwrites-values}]
      add: [{name: X-Header-Add, value: header-val-1}, {name: X-Header-Add-Append, value: header-val-2}]
      remove: [X-Header-Remove]
    backend_refs: [{name: v2}]
`, []apiCase{
			{"GET rewrite.example /one", "v1 path=/one host=one.example.org"},
			{"GET rewrite.example /two", "v2 path=/two host=example.org"},
			{
				"GET rewrite.example /rewrite-host-and-modify-headers X-Header-Remove=remove-val X-Header-Add-Append=append-val-1",
				"v2 host=test.example.org " + modified,
			},
		},
	},
	{
		"HTTPRouteRedirects", `
- name: r
  rules:
  - {matches: [{path: {value: /original-prefix}}], filters: [{type: RequestRedirect, path: {type: ReplacePrefixMatch, value: /replacement-prefix}}]}
  - {matches: [{path: {value: /full}}], filters: [{type: RequestRedirect, path: {type: ReplaceFullPath, value: /full-path-replacement}}]}
  - matches: [{path: {value: /path-and-host}}]
    filters: [{type: RequestRedirect, hostname: example.org, path: {type: ReplacePrefixMatch, value: /replacement-prefix}}]
  - matches: [{path: {value: /path-and-status}}]
    filters: [{type: RequestRedirect, status_code: 301, path: {type: ReplacePrefixMatch, value: /replacement-prefix}}]
  - {matches: [{path: {value: /port}}], filters: [{type: RequestRedirect, port: 8083}]}
  - {matches: [{path: {value: /port-and-host-and-status}}], filters: [{type: RequestRedirect, port: 8083, hostname: example.org, status_code: 302}]}
  - {matches: [{path: {value: /scheme}}], filters: [{type: RequestRedirect, scheme: https}]}
  - {matches: [{path: {value: /scheme-and-host-and-status}}], filters: [{type: RequestRedirect, scheme: https, hostname: example.org, status_code: 302}]}
  - {matches: [{path: {value: /scheme-nil-and-port-80}}], filters: [{type: RequestRedirect, hostname: example.org, port: 80}]}
  - {matches: [{path: {value: /scheme-https-and-port-8443}}], filters: [{type: RequestRedirect, scheme: https, hostname: example.org, port: 8443}]}
  - {matches: [{path: {value: /303}}], filters: [{type: RequestRedirect, hostname: example.org, port: 80, status_code: 303}]}
  - {matches: [{path: {value: /307}}], filters: [{type: RequestRedirect, hostname: example.org, port: 80, status_code: 307}]}
  - {matches: [{path: {value: /308}}], filters: [{type: RequestRedirect, hostname: example.org, port: 80, status_code: 308}]}
`, []apiCase{
			{"GET - /original-prefix/lemon", "302 http://ADDR/replacement-prefix/lemon"},
			{"GET - /full/path/original", "302 http://ADDR/full-path-replacement"},
			{"GET x.example:1 /path-and-status", "301"},
			{"GET - /path-and-status", "301 http://ADDR/replacement-prefix"},
			{"GET - /port", "302 http://127.0.0.1:8083/port"},
			{"GET - /port-and-host-and-status", "302 http://example.org:8083/port-and-host-and-status"},
			{"GET - /scheme", "302 https://127.0.0.1/scheme"},
			{"GET - /scheme-and-host-and-status", "302 https://example.org/scheme-and-host-and-status"},
			{"GET - /scheme-nil-and-port-80", "302 http://example.org/scheme-nil-and-port-80"},
			{"GET - /scheme-https-and-port-8443?q=1", "302 https://example.org:8443/scheme-https-and-port-8443?q=1"},
			{"GET - /303", "303 http://example.org/303"},
			{"POST - /307", "307 http://example.org/307"},
			{"POST - /308", "308 http://example.org/308"},
		},
	},
	{
		"HTTPRouteRequestHeaderModifier", `
- name: m
  rules:
  - {matches: [{path: {value: /set}}], filters: [{type: RequestHeaderModifier, set: [{name: X-Header-Set, value: set-overwrites-values}]}], backend_refs: [{name: v1}]}
  - {matches: [{path: {value: /add}}], filters: [{type: RequestHeaderModifier, add: [{name: X-Header-Add, value: add-appends-values}]}], backend_refs: [{name: v1}]}
  - {matches: [{path: {value: /remove}}], filters: [{type: RequestHeaderModifier, remove: [X-Header-Remove]}], backend_refs: [{name: v1}]}
`, []apiCase{
			{"GET - /set Some-Other-Header=val", "v1 some-other-header=val x-header-set=set-overwrites-values"},
			{"GET - /set Some-Other-Header=val X-Header-Set=some-other-value", "v1 some-other-header=val x-header-set=set-overwrites-values"},
			{"GET - /add Some-Other-Header=val", "v1 some-other-header=val x-header-add=add-appends-values"},
			{"GET - /add X-Header-Add=some-other-value", "v1 x-header-add=some-other-value,add-appends-values"},
			{"GET - /remove X-Header-Remove=val", "v1 -x-header-remove"},
		},
	},
	{
		"HTTPRouteResponseHeaderModifier", `
- name: m
  rules:
  - matches: [{path: {value: /multiple}}]
    filters:
    - type: ResponseHeaderModifier
      set: [{name: X-Header-Set-1, value: header-set-1}, {name: X-Header-Set-2, value: header-set-2}]
      add: [{name: X-Header-Add-1, value: header-add-1}, {name: X-Header-Add-2, value: header-add-2}, {name: X-Header-Add-3, value: header-add-3}]
      remove: [X-Header-Remove-1, X-Header-Remove-2]
    backend_refs: [{name: v1}]
  - matches: [{path: {value: /both}}]
    filters:
    - {type: ResponseHeaderModifier, set: [{name: X-Header-Set-1, value: header-set-1}], remove: [X-Header-Remove-1]}
    - {type: RequestHeaderModifier, add: [{name: X-Header-Add-Append, value: header-val-2}], remove: [X-Header-Remove]}
    backend_refs: [{name: v1}]
`, []apiCase{
			{
				"GET - /multiple Echo-Set=X-Header-Set-2:set-val-2;X-Header-Add-2:add-val-2;X-Header-Remove-2:remove-val-2;" +
					"Another-Header:another-header-val;X-Header-Remove-1:val",
				"v1 <x-header-set-1=header-set-1 <x-header-set-2=header-set-2 <x-header-add-1=header-add-1 <x-header-add-2=add-val-2,header-add-2 " +
					"<x-header-add-3=header-add-3 <another-header=another-header-val <-x-header-remove-1 <-x-header-remove-2",
			},
			{
				"GET - /both X-Header-Remove=remove-val X-Header-Add-Append=append-val-1 Echo-Set=X-Header-Remove-1:x;X-Header-Echo:echo",
				"v1 x-header-add-append=append-val-1,header-val-2 -x-header-remove <x-header-set-1=header-set-1 <-x-header-remove-1 <x-header-echo=echo",
			},
		},
	},
}
