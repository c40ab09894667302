package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/bench/webpeer"
)

// A feature is what a configuration has beside proxying.
type feature int

const (
	proxying    feature = iota
	serving             // files of a folder, in place of a backend
	caching             // responses: in memory by ours, in files by nginx, which are in the page cache and stay open
	compressing         // responses
	limiting            // requests of each path, far below the limit
	logging             // a line for each request
	everything          // all that a request can have, and none of it is for the requests that are made
)

// limitKeys is the number of keys whose requests are limited.
const limitKeys = 1_000_000

// filesDir has the files of the row, by the paths of the backend.
func (c webConfig) filesDir() string { return filepath.Join(c.dir, "files") }

// writeFiles makes them.
func (c webConfig) writeFiles() error {
	root := c.filesDir()
	err := os.MkdirAll(filepath.Join(root, "bytes"), 0o755)
	for _, size := range []int{4 << 10, webpeer.MaxContent} {
		err = errors.Join(err, os.WriteFile(root+webpeer.BytesPath(size), webpeer.Content(size), 0o644))
	}
	return err
}

func (c webConfig) nginxHTTP() string {
	switch c.with {
	case serving:
		return "\tsendfile on; tcp_nopush on; open_file_cache max=1024;\n"
	case caching:
		return "\tproxy_cache_path " + c.dir + "/nginx-cache keys_zone=one:8m inactive=1d;\n\tsendfile on; open_file_cache max=1024;\n"
	case compressing:
		return fmt.Sprintf("\tgzip on; gzip_proxied any; gzip_comp_level %d;\n", c.level)
	}
	return ""
}

func (c webConfig) nginxRule() string {
	switch c.with {
	case serving:
		return "root " + c.filesDir() + ";"
	case caching:
		return "proxy_pass http://backend; proxy_cache one; proxy_cache_valid 200 1h;"
	}
	return "proxy_pass http://backend;"
}

// nginxLog is off or has what ours has as far as nginx knows it, through a buffer as ours.
func (c webConfig) nginxLog() string {
	if c.with != logging {
		return "off"
	}
	return c.dir + "/nginx-access.log combined buffer=64k"
}

func (c webConfig) caddySite() string {
	if c.with == compressing {
		return "\tencode zstd gzip\n"
	}
	return ""
}

func (c webConfig) caddyRule() string {
	if c.with == serving {
		return "\t\troot * " + c.filesDir() + "\n\t\tfile_server\n"
	}
	return "\t\treverse_proxy " + webBackend + ` {
			transport http {
				keepalive_idle_conns_per_host 512
				compression off
			}
		}
`
}

// top are keys of our file at its top.
func (c webConfig) top() string {
	switch c.with {
	case caching:
		return "caches: [{name: all, memory: 67108864}]\n"
	case limiting:
		return fmt.Sprintf("rate_limits: [{name: paths, key: {by: path}, requests: 1000000, keys: %d}]\n", 2*limitKeys)
	case logging:
		return "access_log: {file: " + c.dir + "/access.log}\n"
	case everything:
		return `rate_limits: [{name: api, key: {by: header, name: x-api-key}, requests: 100}]
`
	}
	return ""
}

// listener are keys of our listener.
func (c webConfig) listener() string {
	switch c.with {
	case compressing:
		return ", compression: {}"
	case limiting:
		return ", rate_limits: [paths]"
	case everything:
		return `, compression: {}, sources: {deny: [192.0.2.0/24]}, forwarded: {trusted: [192.0.2.0/24]}`
	}
	return ""
}

// rule is what our rule for all requests does.
func (c webConfig) rule() string {
	switch c.with {
	case serving:
		return "static: {root: " + c.filesDir() + "}"
	case caching:
		return "backend_refs: [{name: one}], cache: {name: all, default_ttl: 1h}"
	}
	return "backend_refs: [{name: one}]"
}

// moreRoutes have what their requests alone pay for.
func (c webConfig) moreRoutes() string {
	if c.with != everything {
		return ""
	}
	return fmt.Sprintf(`  - name: api
    listeners: [web]
    hostnames: [api.bench.example]
    rate_limits: [api]
    concurrency: {requests: 100}
    sources: {allow: [198.18.0.0/15], default: deny}
    rules: [{matches: [{path: {type: PathPrefix, value: /}}], backend_refs: [{name: one}]}]
  - name: site
    listeners: [web]
    hostnames: [www.bench.example]
    rules: [{matches: [{path: {type: PathPrefix, value: /}}], static: {root: %s}}]
`, c.filesDir())
}

// product are what operators ask of a proxy beside proxying, and what that costs those who do not ask.
func (b *gatewayBench) product() (all []harness.Measure) {
	for _, size := range []struct {
		name        string
		conns, size int
		unit, count string
	}{
		{"static file of 4 KiB", 32, 4 << 10, "request", "requests"},
		{"static file of 1 MiB", 8, webpeer.MaxContent, "byte", "bytes"},
	} {
		w := webRow{name: size.name, unit: size.unit, count: size.count, port: webPort, conns: size.conns, size: size.size}
		m := harness.Measure{Name: w.name, Unit: w.unit, Peer: webNginx, Gates: []harness.Gate{ownGate(webNginx, 1)}}
		for _, name := range []string{ours, webNginx, webCaddy} {
			m.Contestants = append(m.Contestants, b.contestant(name, name, webConfig{with: serving}, w))
		}
		all = append(all, m)
	}
	w := webRow{name: "cache hit of 4 KiB", unit: "request", count: "requests", port: webPort, conns: 32, size: 4 << 10}
	m := harness.Measure{Name: w.name, Unit: w.unit, Peer: webNginx, Gates: []harness.Gate{ownGate(webNginx, 1)}}
	for _, name := range []string{ours, webNginx} {
		m.Contestants = append(m.Contestants, b.contestant(name, name, webConfig{with: caching}, w))
	}
	all = append(append(all, m), b.codings()...)
	return append(all, b.costs()...)
}

// nginxLevels are levels of gzip around that of ours: what counts is the cost at an equal length.
var nginxLevels = []int{1, 3, 4, 5}

// codings compress text of 64 KiB. own is for each byte before it is compressed.
func (b *gatewayBench) codings() (all []harness.Measure) {
	for _, coding := range []string{"gzip", "zstd", "br"} {
		w := webRow{
			name: coding + " of 64 KiB of text", unit: "byte", count: "bytes", port: webPort, conns: 8, size: 64 << 10,
			web: role.WebOptions{Coding: coding},
		}
		m := harness.Measure{Name: w.name, Unit: w.unit, Peer: webCaddy}
		m.Contestants = append(m.Contestants, b.contestant(ours, ours, webConfig{with: compressing}, w))
		if coding == "gzip" {
			for _, level := range nginxLevels {
				as := fmt.Sprintf("%s, level %d", webNginx, level)
				m.Contestants = append(m.Contestants, b.contestant(as, webNginx, webConfig{with: compressing, level: level}, w))
			}
			m.Peer = webNginx + ", level 4"
			m.Gates = []harness.Gate{ownGate(m.Peer, 1)}
		}
		if coding != "br" { // Caddy has none of its own
			m.Contestants = append(m.Contestants, b.contestant(webCaddy, webCaddy, webConfig{with: compressing}, w))
		}
		all = append(all, m)
	}
	return all
}

// costs compare requests with a feature and without.
func (b *gatewayBench) costs() (all []harness.Measure) {
	for _, f := range []struct {
		name   string
		with   feature
		bound  float64
		paths  int
		beside bool // nginx does it, too
	}{
		{"everything configured, nothing used", everything, 1.03, 0, false},
		{"a rate limit with 1 000 000 keys", limiting, 1.03, limitKeys, false},
		{"an access log", logging, 1.05, 0, true},
	} {
		w := webRow{
			name: "HTTP/1.1, 128 B, with " + f.name, unit: "request", count: "requests", port: webPort, conns: 32, size: 128,
			web: role.WebOptions{Paths: f.paths},
		}
		if f.paths > 0 {
			w.warmup = 4 * time.Second // all keys have had a request, at 250 000 a second
		}
		without, with := ours+" without", ours
		m := harness.Measure{
			Name: w.name, Unit: w.unit, Peer: without, Gates: []harness.Gate{gate(with, harness.MetricOwn, without, "<=", f.bound)},
			Contestants: []harness.Contestant{b.contestant(with, ours, webConfig{with: f.with}, w), b.contestant(without, ours, webConfig{}, w)},
		}
		if f.beside {
			m.Contestants = append(m.Contestants, b.contestant(webNginx, webNginx, webConfig{with: f.with}, w),
				b.contestant(webNginx+" without", webNginx, webConfig{}, w))
		}
		all = append(all, m)
	}
	return all
}
