package convert

import (
	"strings"
	"testing"
	"time"
)

// A count of each request by its client, and a refusal by it alone, is a limit. Anything else stays closed.
func TestRatesOfHAProxy(t *testing.T) {
	const table, track = " stick-table type ip size 100k expire 30s store gpc0,http_req_rate(10s)\n", " http-request track-sc0 src\n"
	const deny = " http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }\n"
	elsewhere := "backend counts\n" + strings.Replace(table, "type ip", "type ipv6", 1)
	for name, c := range map[string]struct {
		text string
		most int64 // 0: closed
	}{
		"as documented":          {inFrontend(table + track + deny), 20},
		"older name of a sample": {inFrontend(table + " tcp-request content track-sc1 src\n acl fast sc1_http_req_rate ge 20\n http-request tarpit if fast\n"), 19},
		"a table elsewhere":      {inFrontend(" tcp-request connection track-sc2 src table counts\n http-request deny if { sc_http_req_rate(2) gt 20 }\n") + elsewhere, 20},
		"its own table":          {inFrontend(table + " http-request track-sc0 src table f\n" + deny), 20},

		"no table":                    {inFrontend(track + deny), 0},
		"no such table":               {inFrontend(" http-request track-sc0 src table none\n" + deny), 0},
		"no rate of requests":         {inFrontend(" stick-table type ip size 1k store conn_rate(10s)\n" + track + deny), 0},
		"a table of texts":            {inFrontend(" stick-table type string size 1k store http_req_rate(10s)\n" + track + deny), 0},
		"counted behind it":           {inFrontend(table + deny + track), 0},
		"counted twice":               {inFrontend(table + track + " http-request track-sc0 hdr(x-key)\n" + deny), 0},
		"counted by a field":          {inFrontend(table + " http-request track-sc0 hdr(x-key)\n" + deny), 0},
		"some counted":                {inFrontend(table + " http-request track-sc0 src if { path_beg /g/ }\n" + deny), 0},
		"another counter":             {inFrontend(table + " http-request track-sc1 src\n" + deny), 0},
		"another client":              {inFrontend(table + " http-request set-src hdr(x-client)\n" + track + deny), 0},
		"some refused":                {inFrontend(table + track + " http-request deny if { path_beg / } { sc_http_req_rate(0) gt 20 }\n"), 0},
		"those below refused":         {inFrontend(table + track + " http-request deny if { sc_http_req_rate(0) lt 20 }\n"), 0},
		"negated":                     {inFrontend(table + track + " http-request deny if !{ sc_http_req_rate(0) gt 20 }\n"), 0},
		"unless":                      {inFrontend(table + track + " http-request deny unless { sc_http_req_rate(0) gt 20 }\n"), 0},
		"two alternatives":            {inFrontend(table + track + " acl fast sc_http_req_rate(0) gt 20\n acl fast hdr(x) y\n http-request deny if fast\n"), 0},
		"none is let pass":            {inFrontend(table + track + " http-request deny if { sc_http_req_rate(0) gt 0 }\n"), 0},
		"a period below a second":     {inFrontend(strings.Replace(table, "10s", "10", 1) + track + deny), 0},
		"refused by the backend":      {strings.Replace(inBackend(deny), " bind :80\n", " bind :80\n"+table+track, 1), 0},
		"a section that others reach": {"frontend g\n mode http\n bind :81\n default_backend f\n" + strings.NewReplacer("frontend f", "listen f", " default_backend web\n", " server s 127.0.0.1:3\n").Replace(inFrontend(table+track+deny)), 0},
	} {
		cfg, r := converted(t, HAProxy, c.text)
		if c.most == 0 {
			if len(cfg.RateLimits) > 0 || r.Closed == 0 {
				t.Errorf("%s: %d limits, %d closed\n%s\n%s", name, len(cfg.RateLimits), r.Closed, r.Config, r.Text(true))
			}
			continue
		}
		if len(cfg.RateLimits) != 1 || r.Left > 0 {
			t.Errorf("%s: %d limits\n%s\n%s", name, len(cfg.RateLimits), r.Config, r.Text(true))
			continue
		}
		if l := &cfg.RateLimits[0]; int64(l.Requests) != c.most || int64(l.Burst) != c.most || l.Interval != 10*time.Second || l.Key.By != "client" || l.Key.Prefix6 != 128 {
			t.Errorf("%s: %+v", name, l)
		}
		for _, route := range cfg.Routes {
			if len(route.RateLimits) != 1 {
				t.Errorf("%s: route %s has no limit\n%s", name, route.Name, r.Config)
			}
		}
		if text := r.Text(false); !strings.Contains(text, "counts the requests of the last 10s, refused ones too") {
			t.Errorf("%s: the difference is not named:\n%s", name, text)
		}
	}
}

// A section listen has the limit in its own routes.
func TestRatesOfASectionListen(t *testing.T) {
	cfg, r := converted(t, HAProxy, "listen f\n mode http\n bind :80\n stick-table type ip size 1k store http_req_rate(1m)\n http-request track-sc0 src\n http-request deny if { sc_http_req_rate(0) gt 60 }\n server s 127.0.0.1:3\n")
	if len(cfg.RateLimits) != 1 || r.Closed > 0 || len(cfg.Routes[0].RateLimits) != 1 || cfg.RateLimits[0].Interval != time.Minute {
		t.Errorf("%s\n%s", r.Config, r.Text(true))
	}
}

// A use_backend that stays open is named, with where its requests go.
func TestBackendsThatStayOpenAreNamed(t *testing.T) {
	_, r := converted(t, HAProxy, inFrontend(" use_backend web if { hdr_beg(host) static }"))
	if l := resultOf(t, r, "use_backend web"); l.Result != Left || l.Closed || !strings.Contains(l.Reason, "it stays open") || !strings.Contains(l.Reason, "default_backend") {
		t.Errorf("%+v", l)
	}
}
